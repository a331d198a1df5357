package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// teller is a Completer that returns a set answer and records its requests.
type teller struct {
	mu    sync.Mutex
	asked []llm.Request
	tell  func(context.Context, llm.Request) (llm.Reply, error)
}

func (s *teller) Complete(ctx context.Context, req llm.Request) (llm.Reply, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req)
	s.mu.Unlock()
	return s.tell(ctx, req)
}

// tells returns a teller that answers every question the same way, as a real client would: in one call.
func tells(a llm.Answer) *teller {
	return &teller{tell: func(_ context.Context, req llm.Request) (llm.Reply, error) {
		return replyOf(req, a), nil
	}}
}

func replyOf(req llm.Request, a llm.Answer) llm.Reply {
	cost := 0.002
	model := req.Model
	if model == "" {
		model = "first"
	}
	return llm.Reply{
		Answer: a, Model: model, Reported: "first-2026", Fingerprint: "fp", Endpoint: "model.test", Rung: llm.RungTool,
		Usage: &llm.Usage{Prompt: 100, Completion: 20, Cached: 64}, CostUSD: &cost, Calls: 1, Breaker: "closed",
	}
}

func failsWith(err error) *teller {
	return &teller{tell: func(context.Context, llm.Request) (llm.Reply, error) { return llm.Reply{}, err }}
}

// ledger is a Memory for one guard key and one identity.
type ledger struct {
	mu    sync.Mutex
	held  Recollection
	past  []Precedent
	err   error
	asked []string
}

func (l *ledger) Recall(_ context.Context, guard, identity string, since time.Time) (Recollection, error) {
	l.asked = append(l.asked, fmt.Sprintf("%s %s %s", guard, identity, since.Format(time.RFC3339)))
	return l.held, l.err
}

// Precedents implements Precedents.
func (l *ledger) Precedents(context.Context, Case) ([]Precedent, error) { return l.past, l.err }

// learn stores the lesson of a verdict.
func (l *ledger) learn(v Verdict) {
	lesson := v.Lesson()
	if lesson.Refused {
		l.held.Refusals++
	}
	if lesson.Opinion != nil {
		l.held.Opinion = lesson.Opinion
	}
	if lesson.Cleared {
		l.held = Recollection{}
	}
}

const quote = "Compared table 1 with its sources"

// quotes are the quotes that meet criteria: each counts once.
var quotes = []string{quote, "read sections 1 to 3", "table 1 with its sources, and read"}

// reviewCase is an approval with two criteria.
func reviewCase(change ...func(*Case)) Case {
	none := document.ReadTrusted([]byte("{}"))
	data := document.ReadTrusted([]byte(`{"comments":"` + quote + `, and read sections 1 to 3.","count":3}`))
	c := Case{
		Operation: Advance, Workflow: "document-review", State: "reviewing", Action: "approve",
		DefinitionHash: "sha256:d", JudgeConfigHash: "sha256:j", Instance: "wf-1", Principal: "ann",
		Data: data, Context: none, Merged: data, MaskedData: data, MaskedContext: none, MaskedMerged: data,
		Candidates: []Candidate{{Target: "approved"}},
		Identity:   "identity", Guard: "guard",
		Rubric: rubric(useLLM, func(r *Rubric) {
			r.Criteria = []string{"The comments say what was read", "The comments say what was compared"}
		}),
		Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// idsOf returns the ids of a case's criteria in the question.
func idsOf(t testing.TB, c Case) []string {
	t.Helper()
	q, err := askQuestion(c, prompts.TransitionV4, "MMMMMMMMMMMMMMMMMMMM", "NNNNNNNNNNNNNNNNNNNN")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, one := range q.criteria {
		ids = append(ids, one.id)
	}
	return ids
}

// approving returns a consistent answer: every criterion met, with a quote.
func approving(ids []string) llm.Answer {
	a := llm.Answer{Approved: true, Confidence: 0.9, Keyed: true, Reasoning: "All is there."}
	for i, id := range ids {
		a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: llm.StatusMet, Evidence: quotes[i%len(quotes)]})
	}
	return a
}

// rejecting returns a consistent answer: the first criterion is not met.
func rejecting(ids []string) llm.Answer {
	a := approving(ids)
	a.Approved, a.Confidence, a.Reasoning = false, 0.8, "Nothing says what was read."
	a.Criteria[0].Status, a.Criteria[0].Evidence = llm.StatusNotMet, ""
	return a
}

func newModel(t testing.TB, cfg ModelConfig) Layer {
	t.Helper()
	layer, err := NewModel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// opine asks the layer and checks that its opinion is consistent.
func opine(t testing.TB, layer Layer, c Case) Opinion {
	t.Helper()
	op, err := layer.Weigh(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if sound, err := vetOpinion(LayerModel, op); err != nil || sound.Trouble != op.Trouble || op.Model == nil {
		t.Fatalf("%v, %s: %+v", err, sound.Reasoning, op)
	}
	return op
}

func codesOf(op Opinion) []string {
	var codes []string
	for _, f := range op.Findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// heard is the part of an opinion that the table checks.
type heard struct {
	Outcome  Outcome
	Trouble  Trouble
	C        float64
	Codes    string
	Statuses string
}

func heardOf(op Opinion) heard {
	var statuses []string
	for _, c := range op.Model.Criteria {
		statuses = append(statuses, c.Status)
	}
	return heard{op.Outcome, op.Trouble, op.Confidence, strings.Join(codesOf(op), " "), strings.Join(statuses, " ")}
}

// The outcome follows from the criteria, whatever else the model answers.
func TestModelOutcome(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	ids := idsOf(t, c)
	const (
		met, not, cannot = llm.StatusMet, llm.StatusNotMet, llm.StatusCannotAssess
		unmet, open      = CodeCriterionNotMet, CodeCriterionNotAssessable
	)
	no := func(c float64, codes, statuses string) heard { return heard{Reject, "", c, codes, statuses} }
	unsure := func(codes, statuses string) heard {
		return heard{Escalate, TroubleCannotAssess, 0.5, codes, statuses}
	}
	unreadable := heard{Escalate, TroubleUnreadable, 0.5, "", ""}
	incomplete := heard{Escalate, TroubleUnreadable, 0.5, "incomplete", ""}
	for _, tt := range []struct {
		name   string
		answer llm.Answer
		change func(*llm.Answer)
		want   heard
	}{
		{"approves", approving(ids), nil, heard{Approve, "", 0.82, "", met + " " + met}},
		{"approves with suggestions", approving(ids), func(a *llm.Answer) { a.Suggestions = []string{"Say more."} }, heard{Approve, "", 0.82, "", met + " " + met}},
		{"is as sure as can be", approving(ids), func(a *llm.Answer) { a.Confidence = 1 }, heard{Approve, "", shrinkConfidence(1), "", met + " " + met}},
		{"is not sure at all", approving(ids), func(a *llm.Answer) { a.Confidence = 0 }, heard{Approve, "", shrinkConfidence(0), "", met + " " + met}},
		{"ids in capitals", approving(ids), func(a *llm.Answer) { a.Criteria[0].ID = " " + strings.ToUpper(ids[0]) }, heard{Approve, "", 0.82, "", met + " " + met}},
		{"a stray criterion that is met", approving(ids), func(a *llm.Answer) {
			a.Criteria = append(a.Criteria, llm.Criterion{ID: "made up", Status: met})
		}, incomplete},

		{"rejects", rejecting(ids), nil, no(shrinkConfidence(0.8), unmet, not+" "+met)},
		{"rejects with objections", rejecting(ids), func(a *llm.Answer) { a.Violations = []string{"v", "v", "", "w"} }, no(shrinkConfidence(0.8), unmet+" model_objection model_objection", not+" "+met)},
		{"rejects on two", rejecting(ids), func(a *llm.Answer) { a.Criteria[1].Status = not }, no(shrinkConfidence(0.8), unmet+" "+unmet, not+" "+not)},
		{"not met beats cannot assess", rejecting(ids), func(a *llm.Answer) { a.Criteria[1].Status = cannot }, no(shrinkConfidence(0.8), unmet, not+" "+cannot)},
		{"rejects with evidence that is not there", rejecting(ids), func(a *llm.Answer) { a.Criteria[0].Evidence = "made up" }, no(shrinkConfidence(0.8), unmet, not+" "+met)},
		{"answers twice: the graver counts", rejecting(ids), func(a *llm.Answer) {
			a.Criteria = append(a.Criteria, llm.Criterion{ID: ids[0], Status: met, Evidence: quote})
		}, no(shrinkConfidence(0.8), unmet, not+" "+met)},
		{"a stray criterion that is not met", approving(ids), func(a *llm.Answer) {
			a.Approved = false
			a.Criteria = append(a.Criteria, llm.Criterion{ID: "made up", Status: not})
		}, incomplete},

		{"suspects an injection", rejecting(ids), func(a *llm.Answer) { a.InjectionSuspected = true }, no(shrinkConfidence(0.8), CodeInstructionInData+" "+unmet, not+" "+met)},
		{"suspects an injection and meets all", approving(ids), func(a *llm.Answer) { a.Approved, a.InjectionSuspected = false, true }, no(0.82, CodeInstructionInData, met+" "+met)},
		{"suspects an injection and approves", approving(ids), func(a *llm.Answer) { a.InjectionSuspected = true }, no(0.82, CodeInstructionInData, met+" "+met)},
		{"suspects an injection and cannot assess", approving(ids), func(a *llm.Answer) {
			a.InjectionSuspected, a.Criteria[0].Status = true, cannot
		}, no(0.82, CodeInstructionInData, cannot+" "+met)},

		{"cannot assess", approving(ids), func(a *llm.Answer) { a.Criteria[1].Status = cannot }, unsure(open, met+" "+cannot)},
		{"cannot assess and does not approve", approving(ids), func(a *llm.Answer) { a.Approved, a.Criteria[1].Status = false, cannot }, unsure(open, met+" "+cannot)},
		{"leaves a criterion out", approving(ids), func(a *llm.Answer) { a.Criteria = a.Criteria[:1] }, incomplete},
		{"leaves all out", approving(ids), func(a *llm.Answer) { a.Criteria = nil }, incomplete},
		{"leaves all out and does not approve", approving(ids), func(a *llm.Answer) { a.Criteria, a.Approved = nil, false }, incomplete},
		{"gives a list", approving(ids), func(a *llm.Answer) { a.Keyed = false }, incomplete},
		{"gives an empty list", approving(ids), func(a *llm.Answer) { a.Keyed, a.Criteria = false, nil }, incomplete},
		{"approves as a whole", approving(ids), func(a *llm.Answer) { a.Keyed, a.NoCriteria, a.Criteria = false, true, nil }, incomplete},
		{"rejects as a whole", rejecting(ids), func(a *llm.Answer) { a.Keyed, a.NoCriteria, a.Criteria = false, true, nil }, no(shrinkConfidence(0.8), CodeModelObjection, "")},
		{"words around a quote", approving(ids), func(a *llm.Answer) { a.Criteria[0].Evidence = `The agent says "` + quotes[0] + `", which names them.` }, heard{Approve, "", 0.82, "", met + " " + met}},
		{"words around three words", approving(ids), func(a *llm.Answer) { a.Criteria[0].Evidence = "The agent has read sections 1 and more" }, unsure(open, cannot+" "+met)},
		{"no evidence", approving(ids), func(a *llm.Answer) { a.Criteria[0].Evidence = " \n" }, unsure(open, cannot+" "+met)},
		{"evidence that is not there", approving(ids), func(a *llm.Answer) { a.Criteria[0].Evidence = "Compared table 2 with its sources" }, unsure(open, cannot+" "+met)},
		{"a pointer to nothing", approving(ids), func(a *llm.Answer) { a.Criteria[0].Evidence = "/nowhere" }, unsure(open, cannot+" "+met)},
		{"an unknown status", approving(ids), func(a *llm.Answer) { a.Criteria[0].Status = "MET" }, unsure(open, cannot+" "+met)},
		{"answers twice, once without evidence", approving(ids), func(a *llm.Answer) {
			a.Criteria = append(a.Criteria, llm.Criterion{ID: ids[0], Status: met})
		}, unsure(open, cannot+" "+met)},

		{"approves beside a stray that is not met", approving(ids), func(a *llm.Answer) {
			a.Criteria = append(a.Criteria, llm.Criterion{ID: "made up", Status: not})
		}, incomplete},
		{"approves with violations", approving(ids), func(a *llm.Answer) { a.Violations = []string{"v"} }, no(0.82, CodeModelObjection, met+" "+met)},
		{"a confidence of 95", approving(ids), func(a *llm.Answer) { a.Confidence = 95 }, unreadable},
		{"floods the criteria", approving(ids), func(a *llm.Answer) { a.Criteria = slices.Repeat(a.Criteria, 100) }, unreadable},
	} {
		if tt.change != nil {
			tt.answer.Criteria = slices.Clone(tt.answer.Criteria)
			tt.change(&tt.answer)
		}
		op := opine(t, newModel(t, ModelConfig{Completer: tells(tt.answer)}), c)
		class := llm.ClassInconsistent
		if tt.want == incomplete {
			tt.want, class = unreadable, llm.ClassIncomplete
		}
		if diff := cmp.Diff(tt.want, heardOf(op)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if tt.want.Trouble == TroubleUnreadable && op.Model.Failure != string(class) {
			t.Errorf("%s: failure %q", tt.name, op.Model.Failure)
		}
	}
}

// A finding has the criterion, the model's words on it, and the place.
func TestModelFindings(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	ids := idsOf(t, c)
	read, compared := c.Rubric.Criteria[0], c.Rubric.Criteria[1]
	type said struct{ Path, Message string }
	for _, tt := range []struct {
		name     string
		evidence string
		words    []string
		status   string
		want     []said
		why      string
	}{
		{"nothing more", "", nil, llm.StatusNotMet, []said{{"", "Not met: " + read}}, ""},
		{"a quote", "read sections", nil, llm.StatusNotMet, []said{{"", "Not met: " + read + ". The model points to: read sections."}}, ""},
		{"a pointer", "/comments", nil, llm.StatusNotMet, []said{{"/comments", "Not met: " + read}}, ""},
		{"a pointer with the document", "/data/comments", nil, llm.StatusNotMet, []said{{"/comments", "Not met: " + read}}, ""},
		{"a pointer as a fragment", "#/comments", nil, llm.StatusNotMet, []said{{"/comments", "Not met: " + read}}, ""},
		{"a pointer to nothing", "/nowhere", nil, llm.StatusNotMet, []said{{"", "Not met: " + read + ". The model points to: /nowhere."}}, ""},
		{"an objection", "/comments", []string{"No section is named"}, llm.StatusNotMet, []said{{"/comments", "Not met: " + read + ". No section is named."}}, ""},
		{"two objections to one", "", []string{"One.", "Two."}, llm.StatusNotMet, []said{{"", "Not met: " + read}, {"", "One."}, {"", "Two."}}, ""},
		{"cannot be assessed", "", nil, llm.StatusCannotAssess, []said{{"", "Cannot be assessed: " + read}}, ""},
		{"made up", "page 9", nil, llm.StatusMet, []said{{"", "Cannot be assessed (the quote is not in what the model was shown): " + read}}, ""},
		{"why", "read sections", nil, llm.StatusNotMet, []said{{"", "Not met: " + read + ". It names no section."}}, "It names no section."},
		{"why it cannot be assessed", "", nil, llm.StatusCannotAssess, []said{{"", "Cannot be assessed: " + read + ". It names no section."}}, "It names no section."},
	} {
		a := approving(ids)
		a.Approved, a.Violations = tt.status == llm.StatusMet, tt.words
		a.Criteria[0].Status, a.Criteria[0].Evidence, a.Criteria[0].Why = tt.status, tt.evidence, tt.why
		op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
		var got []said
		for _, f := range op.Findings {
			got = append(got, said{f.Path, f.Message})
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	// Each objection is in the finding of its criterion.
	a := rejecting(ids)
	a.Criteria[1].Status, a.Violations = llm.StatusNotMet, []string{"Nothing was read.", "Nothing was compared."}
	op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
	if len(op.Findings) != 2 || op.Findings[1].Message != "Not met: "+compared+". Nothing was compared." {
		t.Errorf("%+v", op.Findings)
	}
}

// A contradiction is reported with the id of the criterion.
func TestModelChecksAnswers(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	ids := idsOf(t, c)
	m := tells(approving(ids))
	opine(t, newModel(t, ModelConfig{Completer: m}), c)
	check := m.asked[0].Check
	if err := check(approving(ids)); err != nil {
		t.Errorf("a good answer: %v", err)
	}
	bad := approving(ids)
	bad.Criteria = bad.Criteria[:1]
	if err := check(bad); !errors.Is(err, llm.ErrIncomplete) || !strings.Contains(err.Error(), "left out "+ids[1]) {
		t.Errorf("left out: %v", err)
	}
}

// The record has everything that is needed to check the judgement later.
func TestModelRecordsHowItCameAbout(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	ids := idsOf(t, c)
	q, err := askQuestion(c, prompts.TransitionV4, "m", "n")
	if err != nil {
		t.Fatal(err)
	}
	answer := rejecting(ids)
	answer.Criteria[1] = llm.Criterion{ID: ids[1], Status: llm.StatusCannotAssess}
	m := tells(answer)
	tell := m.tell
	m.tell = func(ctx context.Context, req llm.Request) (llm.Reply, error) {
		r, err := tell(ctx, req)
		r.Lenient, r.Reasked, r.Shared, r.Calls, r.Breaker = true, true, true, 2, "half-open"
		return r, err
	}
	got := opine(t, newModel(t, ModelConfig{Completer: m, Memory: &ledger{held: Recollection{Refusals: 1}}}), c).Model
	prompt, completion, cached, cost := 100, 20, 64, 0.002
	want := &ModelRecord{
		Model: "first", Reported: "first-2026", Endpoint: "model.test", Fingerprint: "fp",
		PromptID: q.prompt.ID, PromptDigest: q.prompt.Digest, CriteriaDigest: CriteriaDigest(c.Rubric),
		Criteria: []CriterionVerdict{
			{ID: ids[0], Text: c.Rubric.Criteria[0], Status: llm.StatusNotMet},
			{ID: ids[1], Text: c.Rubric.Criteria[1], Status: llm.StatusCannotAssess},
		},
		Stated: 0.8, Rung: "tool", Lenient: true, Calls: 2, Reasked: true, Shared: true, Breaker: "half-open",
		PromptTokens: &prompt, CompletionTokens: &completion, CachedTokens: &cached, CostUSD: &cost,
		Refusals: 1, RefusalLimit: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestModelAppliesACalibration(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	ids := idsOf(t, c)
	q, err := askQuestion(c, prompts.TransitionV4, "m", "n")
	if err != nil {
		t.Fatal(err)
	}
	fitted, err := NewCalibrations([]Calibration{{
		Model: "first", PromptDigest: q.prompt.Digest, CriteriaDigest: CriteriaDigest(c.Rubric),
		Platt: Platt{A: -1, B: math.Log(3)}, N: 100,
		Approvals: &ApprovalFit{N: 100, Groups: 100, Mean: 0.6, Right: 0.6, RightLow: 0.5, ECE: 0.02},
	}})
	if err != nil {
		t.Fatal(err)
	}
	suspicious := approving(ids)
	suspicious.InjectionSuspected = true
	for _, tt := range []struct {
		name   string
		answer llm.Answer
		c      Case
		want   float64
		fits   bool
	}{
		{"approves", approving(ids), c, 0.75, true},
		{"rejects", rejecting(ids), c, 0.74, false},
		{"another model", approving(ids), reviewCase(func(c *Case) { c.Rubric.Model = "second" }), 0.82, false},
		{"other criteria", approving(ids), reviewCase(func(c *Case) { c.Rubric.Criteria[0] += "!" }), 0.82, false},
		{"suspects an instruction", suspicious, c, 0.82, false},
	} {
		op := opine(t, newModel(t, ModelConfig{Completer: tells(tt.answer), Calibrations: fitted}), tt.c)
		wantAssurance := AssuranceLLM
		if tt.fits {
			wantAssurance = AssuranceLLMCalibrated
		}
		if diff := op.Confidence - tt.want; diff > 1e-9 || diff < -1e-9 || op.Assurance != wantAssurance || (op.Model.Calibration != "") != tt.fits {
			t.Errorf("%s: %v %s %q, want %v", tt.name, op.Confidence, op.Assurance, op.Model.Calibration, tt.want)
		}
	}
}

// A model may write anything; the recorded text is short and clean, and contains neither
// marker nor nonce.
func TestModelWordsAreCleaned(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) {
		for i := range 60 {
			c.Rubric.Criteria = append(c.Rubric.Criteria, fmt.Sprintf("Criterion %d %s", i, strings.Repeat("x", 900)))
		}
	})
	ids := idsOf(t, c)
	for _, status := range []string{llm.StatusNotMet, llm.StatusCannotAssess} {
		m := &teller{}
		m.tell = func(_ context.Context, req llm.Request) (llm.Reply, error) {
			marker := "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			foul := req.Nonce + " " + marker + "\x1b[31m\x00\u202e\xff " + strings.Repeat("é", 2000)
			a := llm.Answer{Confidence: 0.9, Keyed: true, Reasoning: foul}
			for _, id := range ids {
				a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: status, Evidence: foul})
			}
			for i := range 500 {
				a.Violations = append(a.Violations, fmt.Sprint(i, foul))
				a.Suggestions = append(a.Suggestions, fmt.Sprint(i, foul))
			}
			r := replyOf(req, a)
			r.Reported, r.Fingerprint, r.Endpoint = foul, foul, foul
			return r, nil
		}
		op := opine(t, newModel(t, ModelConfig{Completer: m, Random: func() string { return "ABCDEFGHIJKLMNOPQRSTUVWXYZ" }}), c)
		text, err := json.Marshal(op)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "\\u001b", "\\u0000", "\u202e", "\\ufffd\\ufffd"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s: %q is kept", status, bad)
			}
		}
		if len(text) > 64<<10 || len(op.Suggestions) != maxRemarks {
			t.Errorf("%s: %d bytes, %d suggestions", status, len(text), len(op.Suggestions))
		}
		if last := op.Findings[maxUnmet].Message; last != fmt.Sprintf("And %d more criteria.", len(ids)-maxUnmet) {
			t.Errorf("%s: %q", status, last)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"  a \t b\r\n\u2028c  ", "a b c"},
		{"a\x1b]0;x\x07b", "a ]0;x b"},
		{"a\u202eb\u200bc\u00ad", "abc"},
		{"می\u200cخواهم", "می\u200cخواهم"},
		{"\xffa", "\uFFFDa"},
		{"the key NONCE1 and NONCE1NONCE1", "the key … and ……"},
		{"NONNONCE1CE1", "NON…CE1"},
		{"NON\u200bCE1", "…"},
		{strings.Repeat("é", 20), strings.Repeat("é", 13) + "…"},
		{strings.Repeat("a", 30), strings.Repeat("a", 30)},
	} {
		if got := cleanText(tt.in, 30, "NONCE1", ""); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestNewModelRefuses(t *testing.T) {
	t.Parallel()
	if layer, err := NewModel(ModelConfig{}); err == nil || layer != nil {
		t.Errorf("%v, %v", layer, err)
	}
	layer := newModel(t, ModelConfig{Completer: tells(llm.Answer{})})
	if layer.Name() != LayerModel {
		t.Errorf("name %q", layer.Name())
	}
}

// Every class of failure is either external or caused by the case.
func TestModelFailures(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	outside := []llm.Class{
		llm.ClassNetwork, llm.ClassUpstream, llm.ClassOverloaded, llm.ClassNoChoices, llm.ClassRateLimited,
		llm.ClassQuota, llm.ClassAuth, llm.ClassNotFound, llm.ClassCapability, llm.ClassBreakerOpen, llm.ClassNotBefore,
	}
	fromCase := []llm.Class{
		llm.ClassTooLong, llm.ClassFilter, llm.ClassRefusal, llm.ClassMalformed, llm.ClassEmpty, llm.ClassTruncated,
		llm.ClassAmbiguous, llm.ClassInconsistent, llm.ClassQuality,
	}
	want := map[llm.Class]Trouble{llm.ClassConfig: TroubleNotConfigured}
	for _, class := range outside {
		want[class] = TroubleUnavailable
	}
	for _, class := range fromCase {
		want[class] = TroubleUnreadable
	}
	for class, trouble := range want {
		err := &llm.Error{
			Class: class, Status: 500, Message: "it\x1b exploded", Advice: "mend it", RetryAfter: 7 * time.Second,
			Model: "second", Endpoint: "model.test", Breaker: "half-open", Calls: 3, Usage: &llm.Usage{Prompt: 9},
		}
		op := opine(t, newModel(t, ModelConfig{Completer: failsWith(fmt.Errorf("wrapped: %w", err))}), c)
		if op.Trouble != trouble || op.Outcome != Escalate || op.RetryAfter.Duration() != 7*time.Second || op.Reasoning == "" {
			t.Errorf("%s: %+v", class, op)
		}
		if strings.Contains(op.Reasoning, "exploded") || strings.Contains(op.Reasoning, "mend") {
			t.Errorf("%s: the agent is told what is the operator's: %s", class, op.Reasoning)
		}
		a := op.Model
		if a.Failure != string(class) || a.Detail != "it exploded; mend it" || a.Model != "second" || a.Endpoint != "model.test" ||
			a.Breaker != "half-open" || a.Calls != 3 || *a.PromptTokens != 9 || a.PromptDigest == "" || a.CriteriaDigest == "" {
			t.Errorf("%s: record %+v", class, a)
		}
	}
	// Failures that the caller can cause by asking decide nothing.
	for _, e := range []*llm.Error{
		{Class: llm.ClassTimeout},
		{Class: llm.ClassBusy},
		{Class: llm.ClassShareSpent, RetryAfter: time.Minute},
		{Class: llm.ClassRateLimited, CallerPart: true},
		{Class: llm.ClassNotBefore, CallerPart: true, RetryAfter: time.Minute},
		{Class: llm.ClassOverloaded, CallerPart: true},
		{Class: llm.ClassQuota, CallerPart: true},
	} {
		op, err := newModel(t, ModelConfig{Completer: failsWith(fmt.Errorf("wrapped: %w", e))}).Weigh(t.Context(), c)
		var busy *BusyError
		if !errors.As(err, &busy) || !errors.Is(err, ErrBusy) || op.Outcome != "" || busy.Message == "" || busy.RetryAfter != max(e.RetryAfter, minBusyRetry) {
			t.Errorf("%+v: %+v, %v", e, op, err)
		}
	}
	// The case may be the cause of an unknown failure.
	for _, err := range []error{errors.New("boom"), &llm.Error{}, context.DeadlineExceeded} {
		if op := opine(t, newModel(t, ModelConfig{Completer: failsWith(err)}), c); op.Trouble != TroubleUnreadable || op.Model.Failure == "" {
			t.Errorf("%v: %+v", err, op)
		}
	}
}

// A caller that cancels gets its own error, whatever the model answers.
func TestModelEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, samples := range []int{1, 3} {
		for name, answer := range map[string]error{
			"ends": context.Canceled, "blames the model": &llm.Error{Class: llm.ClassTimeout}, "answers all the same": nil,
		} {
			ctx, cancel := context.WithCancel(t.Context())
			m := &teller{tell: func(ctx context.Context, req llm.Request) (llm.Reply, error) {
				cancel()
				<-ctx.Done()
				return replyOf(req, llm.Answer{}), answer
			}}
			c := reviewCase(func(c *Case) { c.Rubric.Samples = samples })
			op, err := newModel(t, ModelConfig{Completer: m}).Weigh(ctx, c)
			if err != context.Canceled || op.Outcome != "" { //nolint:errorlint // as it is, not wrapped
				t.Errorf("%s, %d samples: %v %+v", name, samples, err, op)
			}
		}
	}
}

// several has two models.
type several struct{ *teller }

func (several) Names() []string { return []string{"first", "second"} }

func TestModelThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Trouble{"": "", "second": "", "third": TroubleNotConfigured} {
		c := reviewCase(func(c *Case) { c.Rubric.Model = name })
		m := several{tells(approving(idsOf(t, c)))}
		op := opine(t, newModel(t, ModelConfig{Completer: m}), c)
		if op.Trouble != want || (len(m.asked) == 1) != (want == "") {
			t.Errorf("%q: %+v after %d questions", name, op, len(m.asked))
		}
		if want != "" && (!strings.Contains(op.Reasoning, `"third"`) || op.Model.Failure != string(llm.ClassConfig)) {
			t.Errorf("%q: %s %+v", name, op.Reasoning, op.Model)
		}
		if len(m.asked) == 1 && m.asked[0].Model != name {
			t.Errorf("%q: %q was asked", name, m.asked[0].Model)
		}
	}
}

// A spent budget decides nothing: spending it must not open the gate.
func TestModelBudget(t *testing.T) {
	t.Parallel()
	clock := newHand()
	c := reviewCase(func(c *Case) { c.Identity = "" })
	m := tells(approving(idsOf(t, c)))
	layer := newModel(t, ModelConfig{Completer: m, Budget: 2, Now: clock.now})
	for range 2 {
		if op := opine(t, layer, c); op.Outcome != Approve {
			t.Fatalf("%+v", op)
		}
	}
	_, err := layer.Weigh(t.Context(), c)
	var busy *BusyError
	if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > 66*time.Minute {
		t.Fatal(err)
	}
	if !strings.Contains(busy.Message, `"ann"`) || !strings.Contains(busy.Message, roundUp(busy.RetryAfter).String()) {
		t.Error(busy.Message)
	}
	if other := opine(t, layer, reviewCase(func(c *Case) { c.Principal = "bob" })); other.Outcome != Approve {
		t.Errorf("another's budget: %+v", other)
	}
	clock.at = clock.at.Add(busy.RetryAfter)
	if op := opine(t, layer, c); op.Outcome != Approve {
		t.Errorf("after the window: %+v", op)
	}
	// Answers without a call are free.
	tell := m.tell
	m.tell = func(ctx context.Context, req llm.Request) (llm.Reply, error) {
		r, err := tell(ctx, req)
		r.Calls, r.CacheHit = 0, true
		return r, err
	}
	layer = newModel(t, ModelConfig{Completer: m, Budget: 1, Now: clock.now})
	for range 5 {
		if op := opine(t, layer, c); op.Outcome != Approve {
			t.Fatalf("from the cache: %+v", op)
		}
	}
}
