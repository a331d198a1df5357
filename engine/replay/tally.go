package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// What bounds the memory of a report, however many decisions there are.
const (
	mostRows   = 2000 // of each table; the rest is counted as others
	mostListed = 100
	mostCodes  = 5
	maxReason  = 600 // runes
	others     = "(others)"
)

type direction int

const (
	newApproval direction = iota
	rerouted
	newRefusal
	otherRefusal
	directions
)

type tally struct {
	cfg    Config
	r      Report
	listed [directions][]Flip

	workflows map[string]*WorkflowCount
	changes   map[ChangeCount]*ChangeCount // by itself without a count
	missing   map[[2]string]*Unreplayed    // by workflow and reason
	shadow    map[ShadowCount]*ShadowCount // by itself without counts
	lenient   int64                        // judged again without strictMode
}

func newTally(cfg Config) *tally {
	if cfg.Listed <= 0 {
		cfg.Listed = mostListed
	}
	return &tally{
		cfg: cfg, workflows: map[string]*WorkflowCount{}, changes: map[ChangeCount]*ChangeCount{},
		missing: map[[2]string]*Unreplayed{}, shadow: map[ShadowCount]*ShadowCount{},
	}
}

// entryOf is the entry of a key, that of rest when there is no room for another one.
func entryOf[K comparable, V any](m map[K]*V, key, rest K, made func(K) V) *V {
	if m[key] == nil {
		if len(m) >= mostRows {
			key = rest
		}
		if m[key] == nil {
			v := made(key)
			m[key] = &v
		}
	}
	return m[key]
}

func (t *tally) add(q Question, got result) {
	if q.Missing == MissingHistory {
		t.r.RemovedEvents += q.Removed
		t.countNotReplayed(q, got)
		return
	}
	d := q.Event.Decision
	t.r.Decisions++
	if q.Event.Kind == record.Prechecked {
		t.r.AskedOnly++
	}
	if d.Mode == judge.Shadow {
		t.addShadow(q.Event)
	}
	if t.cfg.ShadowOnly {
		return
	}
	w := entryOf(t.workflows, q.Event.Workflow, others, func(name string) WorkflowCount { return WorkflowCount{Workflow: name} })
	w.Decisions++
	if got.reason != "" {
		t.countNotReplayed(q, got)
		return
	}
	t.r.Replayed++
	w.Replayed++
	t.countAnswers(got)
	if got.rubric.Enabled && !got.rubric.StrictMode {
		t.lenient++
	}
	before, after := recordedSide(d), sideOf(got.verdict)
	how, flipped := compareSides(before, after)
	if !flipped {
		t.r.Same++
		w.Same++
		if before.reason() != after.reason() && d.Code != judge.CodeReviewLimit {
			t.r.OtherReason++
		}
		return
	}
	t.addFlip(q.Event, how, before, after, w)
}

func (t *tally) countAnswers(got result) {
	switch {
	case got.reused:
		t.r.Answers.Recorded++
		if got.otherChecks {
			t.r.Answers.OtherChecks++
		}
	case slices.ContainsFunc(got.verdict.Opinions, func(op judge.Opinion) bool { return op.Layer == judge.LayerModel }):
		t.r.Answers.Asked++
	}
}

func compareSides(before, after Side) (direction, bool) {
	was, is := before.Outcome == judge.Approve, after.Outcome == judge.Approve
	switch {
	case !was && is:
		return newApproval, true
	case was && !is:
		return newRefusal, true
	case before.Outcome != after.Outcome:
		return otherRefusal, true
	case is && before.Target != after.Target:
		return rerouted, true
	}
	return 0, false
}

func (t *tally) addFlip(ev record.Event, how direction, before, after Side, w *WorkflowCount) {
	t.r.Flips++
	*t.r.flips(how)++
	*w.flips(how)++
	key := ChangeCount{
		Workflow: ev.Workflow, Action: ev.Action, Before: before.Outcome, BeforeReason: before.reason(),
		After: after.Outcome, AfterReason: after.reason(),
	}
	rest := ChangeCount{Workflow: others, Before: before.Outcome, BeforeReason: others, After: after.Outcome, AfterReason: others}
	entryOf(t.changes, key, rest, func(k ChangeCount) ChangeCount { return k }).Count++
	if len(t.listed[how]) >= t.cfg.Listed {
		t.r.ListedLeftOut++
		return
	}
	t.listed[how] = append(t.listed[how], Flip{
		Instance: ev.Instance, Seq: ev.Seq, Time: ev.Time, Workflow: ev.Workflow, Version: ev.Version, State: ev.From, Action: ev.Action,
		Precheck: ev.Kind == record.Prechecked, Applied: ev.Decision.Applied, Before: before, After: after,
	})
}

func (t *tally) countNotReplayed(q Question, got result) {
	name := q.Event.Workflow
	at := q.Event.Instance
	if q.Event.Seq > 0 {
		at = fmt.Sprintf("%s event %d", at, q.Event.Seq)
	}
	u := entryOf(t.missing, [2]string{name, got.reason}, [2]string{others, got.reason}, func(k [2]string) Unreplayed {
		return Unreplayed{Workflow: k[0], Reason: k[1], Says: Says(k[1]), First: at, Detail: truncateText(got.detail)}
	})
	if q.Missing == MissingHistory {
		u.Count += q.Removed // events, as Says says
		return
	}
	u.Count++
	if got.reason == ReasonModel || got.reason == ReasonUndecided {
		t.r.Failed++
	}
}

func (t *tally) addShadow(ev record.Event) {
	d := ev.Decision
	side := recordedSide(d)
	t.r.Shadow.Decisions++
	switch side.Outcome {
	case judge.Approve:
		t.r.Shadow.WouldApprove++
	case judge.Reject:
		t.r.Shadow.WouldReject++
	case judge.Escalate:
		t.r.Shadow.WouldEscalate++
	}
	key := ShadowCount{Workflow: ev.Workflow, Action: ev.Action, Outcome: side.Outcome, Reason: side.reason()}
	s := entryOf(t.shadow, key, ShadowCount{Workflow: others, Outcome: side.Outcome, Reason: others}, func(k ShadowCount) ShadowCount { return k })
	s.Count++
	if d.Applied {
		s.Applied++
		if side.Outcome != judge.Approve {
			t.r.Shadow.AppliedAnyway++
		}
	}
}

// recordedSide is what the judge said then. That too many reviews waited was not the
// judge's word: it had escalated.
func recordedSide(d *record.Decision) Side {
	v := d.Verdict
	if v.Code == judge.CodeReviewLimit && len(v.Findings) > 0 {
		v.Outcome, v.Findings = judge.Escalate, v.Findings[1:]
	}
	return sideOf(v)
}

func sideOf(v judge.Verdict) Side {
	s := Side{Outcome: v.Outcome, DecidedBy: v.DecidedBy, Target: v.Target, Confidence: v.Confidence, Reasoning: truncateText(v.Reasoning)}
	if v.Outcome == judge.Approve {
		return s
	}
	for _, f := range v.Findings {
		if !slices.Contains(s.Codes, f.Code) && len(s.Codes) < mostCodes {
			s.Codes = append(s.Codes, f.Code)
		}
	}
	return s
}

func (s Side) reason() string {
	if len(s.Codes) == 0 {
		return string(s.DecidedBy)
	}
	return string(s.DecidedBy) + ": " + strings.Join(s.Codes, ", ")
}

func truncateText(text string) string {
	if r := []rune(text); len(r) > maxReason {
		return string(r[:maxReason-1]) + "…"
	}
	return text
}

func (t *tally) report() Report {
	r := t.r
	r.Listed, r.Changes, r.Workflows, r.NotReplayed = []Flip{}, []ChangeCount{}, []WorkflowCount{}, []Unreplayed{}
	r.Shadow.Rows, r.Notes = []ShadowCount{}, t.notes()
	for _, some := range t.listed {
		r.Listed = append(r.Listed, some...)
	}
	for _, c := range t.changes {
		r.Changes = append(r.Changes, *c)
	}
	slices.SortFunc(r.Changes, func(a, b ChangeCount) int {
		return cmp.Or(
			cmp.Compare(changeGravity(a), changeGravity(b)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Action, b.Action),
			cmp.Compare(a.Before, b.Before), cmp.Compare(a.After, b.After), cmp.Compare(a.BeforeReason, b.BeforeReason), cmp.Compare(a.AfterReason, b.AfterReason))
	})
	for _, name := range slices.Sorted(maps.Keys(t.workflows)) {
		r.Workflows = append(r.Workflows, *t.workflows[name])
	}
	for _, u := range t.missing {
		r.NotReplayed = append(r.NotReplayed, *u)
	}
	slices.SortFunc(r.NotReplayed, func(a, b Unreplayed) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	for _, s := range t.shadow {
		r.Shadow.Rows = append(r.Shadow.Rows, *s)
	}
	slices.SortFunc(r.Shadow.Rows, func(a, b ShadowCount) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
	})
	t.cfg.Gates.check(&r)
	return r
}

// changeGravity orders changes as flips are listed.
func changeGravity(c ChangeCount) direction {
	if how, flipped := compareSides(Side{Outcome: c.Before}, Side{Outcome: c.After}); flipped {
		return how
	}
	return rerouted
}

func (t *tally) notes() []string {
	notes := []string{}
	if t.cfg.ShadowOnly {
		return notes
	}
	notes = append(notes, "Each decision was judged by itself, in the context that it had: what would have happened after another decision is not in these figures.")
	if t.cfg.Change.MinConfidence != nil && t.lenient > 0 {
		notes = append(notes, fmt.Sprintf("%d decisions were judged without strictMode, where minConfidence only warns.", t.lenient))
	}
	if t.r.Answers.OtherChecks > 0 {
		notes = append(notes, fmt.Sprintf("%d recorded answers of a model counted although other checks would have passed before it now, of which it would have been told.", t.r.Answers.OtherChecks))
	}
	if t.r.RemovedEvents > 0 {
		notes = append(notes, fmt.Sprintf("%d events were removed from histories; decisions among them are in no figure.", t.r.RemovedEvents))
	}
	return notes
}

// Says explains a reason in a few words.
func Says(reason string) string {
	return map[string]string{
		string(MissingSensitive):      "sensitive values of the data are kept as digests only",
		string(MissingData):           "the data were not kept",
		string(MissingHistory):        "events were removed from the beginning of histories (counted: events)",
		string(MissingContext):        "what the instance was then is not known any more",
		string(MissingSameContext):    "the events give another context than the one that was examined",
		string(MissingDefinition):     "the version of the definition is not in the store, or is another one",
		string(MissingJudgeConfig):    "the judge's configuration of then is not in the store",
		string(MissingValues):         "sensitive values were destroyed, or the key for them is not here",
		string(MissingPerson):         "a person decided, or a review ended",
		string(MissingGate):           "it was about a call of another server's tool",
		string(MissingEvidence):       "evidence was fetched and is too large to be kept",
		string(MissingEvidenceMasked): "evidence was fetched and is kept without its sensitive values only",
		ReasonState:                   "the other definition has no such state",
		ReasonEvidence:                "other evidence would be needed than was fetched",
		ReasonNotAsked:                "a model would be asked now, and was not asked then",
		ReasonOtherQuestion:           "the model would be asked something else now",
		ReasonOtherPrompt:             "the model was asked with another prompt",
		ReasonModel:                   "the model was unavailable",
		ReasonUndecided:               "the judge could not decide",
	}[reason]
}
