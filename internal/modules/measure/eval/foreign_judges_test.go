package eval

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

const maxForeignLine = 8 << 20

const maxForeignWords = 1200

// Foreign holds cases with recorded judgements of other judges. They used their own prompts, so figures on them
// measure those judges and this package's arithmetic.
type Foreign struct {
	Cases  []Case
	Judges []ForeignJudge // by name
	// Raters[i] are the labels that each rater gave to Cases[i], in the source's words; nil if single raters are not
	// recorded.
	Raters [][]string
	// Unlabelled counts records without a right outcome, which are left out.
	Unlabelled int
}

// ForeignJudge is one judge, or one strategy of a judge if the source distinguishes strategies.
type ForeignJudge struct {
	Name string // judge, or judge/strategy
	// Results: the two orders of showing a pair are repeats; repeat 0 shows the candidate first. An answer that the
	// source could not read is Unreadable and escalated.
	Results []Result
}

// CasesOf returns the cases that a judge was asked about. Sources often apply a strategy to only some cases, which is
// not a failure.
func (f Foreign) CasesOf(j ForeignJudge) []Case {
	ids := make(map[string]bool, len(j.Results))
	for _, r := range j.Results {
		ids[r.Case] = true
	}
	var cases []Case
	for _, c := range f.Cases {
		if ids[c.ID] {
			cases = append(cases, c)
		}
	}
	return cases
}

// ApartOf returns each answer of a judge as a case of its own, in the group of its case.
func (f Foreign) ApartOf(j ForeignJudge) (cases []Case, results []Result) {
	byID := map[string]Case{}
	for _, c := range f.CasesOf(j) {
		byID[c.ID] = c
	}
	for _, r := range j.Results {
		c := byID[r.Case]
		c.Group = cmp.Or(c.Group, c.ID)
		c.ID = fmt.Sprint(c.ID, "/", r.Repeat)
		r.Case, r.Repeat = c.ID, 0
		cases, results = append(cases, c), append(results, r)
	}
	return cases, results
}

// foreignRecord is one line; other keys are ignored.
type foreignRecord struct {
	ID        string `json:"id"`
	Group     string `json:"group"`
	Split     Split  `json:"split"`
	Subset    string `json:"subset"`
	Generator string `json:"generator"`
	Gold      struct {
		Verdict    string            `json:"verdict"`
		Annotators []json.RawMessage `json:"annotators"`
	} `json:"gold"`
	Transition struct {
		Workflow string          `json:"workflow"`
		State    string          `json:"state"`
		Action   string          `json:"action"`
		Data     json.RawMessage `json:"data"`
		Context  json.RawMessage `json:"context"`
	} `json:"transition"`
	Judgements []foreignJudgement `json:"judgements"`
}

type foreignJudgement struct {
	Judge      string       `json:"judge"`
	Strategy   string       `json:"strategy"`
	Order      string       `json:"order"`
	Completion foreignWords `json:"completion"`
	Reasoning  string       `json:"reasoning"`
	Verdict    *string      `json:"verdict"` // null if the source could not read the answer
	PApprove   *float64     `json:"p_approve"`
}

// foreignWords is one completion, or a list of them: a judge that rates both parts of a pair answers twice.
type foreignWords string

// UnmarshalJSON accepts a string or a list of strings.
func (w *foreignWords) UnmarshalJSON(text []byte) error {
	var many []string
	if err := json.Unmarshal(text, &many); err == nil {
		*w = foreignWords(strings.Join(many, "\n"))
		return nil
	}
	return json.Unmarshal(text, (*string)(w))
}

// ReadForeign reads JSON Lines, one record with its judgements each:
//
//	{"id": "…", "group": "…", "subset": "…", "gold": {"verdict": "approve"},
//	 "transition": {"workflow": "…", "state": "…", "action": "…", "data": {…}},
//	 "judgements": [{"judge": "…", "strategy": "…", "order": "ab", "verdict": "reject"}]}
//
// Verdicts are approve, reject or tie; a tie is escalate, both as label and as answer.
// A verdict of null is an answer that could not be read. Cases without a split are put into
// the one given. The error names the line.
func ReadForeign(from io.Reader, split Split) (Foreign, error) {
	var f Foreign
	byName := map[string]*ForeignJudge{}
	seen := map[string]bool{}
	for l, err := range readLines(from, maxForeignLine) {
		var r foreignRecord
		switch {
		case l.isLong:
			err = fmt.Errorf("is longer than %d bytes", maxForeignLine)
		case err == nil:
			err = json.Unmarshal(l.text, &r)
		}
		if err != nil {
			return Foreign{}, fmt.Errorf("eval: foreign judgements: line %d: %w", l.number, err)
		}
		if r.ID == "" || seen[r.ID] {
			return Foreign{}, fmt.Errorf("eval: foreign judgements: line %d: the id %.60q is empty or a duplicate; give every record its own", l.number, r.ID)
		}
		seen[r.ID] = true
		if err := f.add(r, split, byName); err != nil {
			return Foreign{}, fmt.Errorf("eval: foreign judgements: line %d (%.60s): %w", l.number, r.ID, err)
		}
	}
	for _, j := range byName {
		f.Judges = append(f.Judges, *j)
	}
	slices.SortStableFunc(f.Judges, func(a, b ForeignJudge) int { return cmp.Compare(a.Name, b.Name) })
	return f, nil
}

func (f *Foreign) add(r foreignRecord, split Split, byName map[string]*ForeignJudge) error {
	expect, err := foreignOutcome(r.Gold.Verdict)
	if err != nil {
		f.Unlabelled++ // disputed or without a label
		return nil
	}
	workflow, err := json.Marshal(map[string]string{"ref": r.Transition.Workflow})
	if err != nil {
		return err
	}
	c := Case{
		ID: r.ID, Group: r.Group, Workflow: workflow, State: r.Transition.State, Action: r.Transition.Action,
		Context: r.Transition.Context, Data: r.Transition.Data, Expect: Expect{Outcome: expect},
		Label: Label{Source: "adjudicated", Raters: len(r.Gold.Annotators)}, Split: cmp.Or(r.Split, split),
	}
	if !slices.Contains([]Split{Dev, Cal, Test}, c.Split) {
		return fmt.Errorf("the split %.40q is unknown; use %s, %s or %s", c.Split, Dev, Cal, Test)
	}
	for kind, name := range map[string]string{"subset:": r.Subset, "generator:": r.Generator} {
		if name != "" {
			c.Tags = append(c.Tags, kind+name)
		}
	}
	slices.Sort(c.Tags)
	var raters []string
	for _, label := range r.Gold.Annotators {
		raters = append(raters, string(label))
	}
	if len(raters) > 0 {
		c.Label.Source = "human"
	}
	f.Cases, f.Raters = append(f.Cases, c), append(f.Raters, raters)
	for i, j := range r.Judgements {
		if err := f.addJudgement(r.ID, j, byName); err != nil {
			return fmt.Errorf("judgements[%d]: %w", i, err)
		}
	}
	return nil
}

func (f *Foreign) addJudgement(id string, j foreignJudgement, byName map[string]*ForeignJudge) error {
	if j.Judge == "" {
		return errors.New("judge is empty; name who judged")
	}
	name := j.Judge
	if j.Strategy != "" {
		name += "/" + j.Strategy
	}
	of := byName[name]
	if of == nil {
		of = &ForeignJudge{Name: name}
		byName[name] = of
	}
	r := Result{Case: id, DecidedBy: judge.LayerModel, Model: name, Reasoning: truncateText(cmp.Or(j.Reasoning, string(j.Completion)), maxForeignWords)}
	if j.Order == "ba" {
		r.Repeat = 1
	}
	for slices.ContainsFunc(of.Results[max(len(of.Results)-64, 0):], func(old Result) bool { return old.Case == id && old.Repeat == r.Repeat }) {
		r.Repeat++
	}
	if j.Verdict == nil {
		r.Outcome, r.Unreadable = judge.Escalate, true
	} else {
		outcome, err := foreignOutcome(*j.Verdict)
		if err != nil {
			return err
		}
		r.Outcome = outcome
		if p := j.PApprove; p != nil {
			if !(*p >= 0 && *p <= 1) {
				return fmt.Errorf("p_approve is %v; a probability is 0 to 1", *p)
			}
			r.Approval = p
			r.Confidence = *p
			if outcome != judge.Approve {
				r.Confidence = 1 - *p
			}
			r.Stated = new(r.Confidence)
		}
	}
	of.Results = append(of.Results, r)
	return nil
}

func foreignOutcome(verdict string) (judge.Outcome, error) {
	switch verdict {
	case "approve":
		return judge.Approve, nil
	case "reject":
		return judge.Reject, nil
	case "tie", "escalate":
		return judge.Escalate, nil
	}
	return "", fmt.Errorf("the verdict %.40q is unknown; use approve, reject, tie or null", verdict)
}
