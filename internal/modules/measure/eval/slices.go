package eval

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

// The kinds of slices, in the order of the report.
const (
	SliceTag       = "tag"
	SliceWorkflow  = "workflow"
	SliceRisk      = "risk"
	SliceState     = "state"
	SliceDecidedBy = "decidedBy"
	SliceLabel     = "label"
)

var sliceKinds = []string{SliceTag, SliceWorkflow, SliceRisk, SliceState, SliceDecidedBy, SliceLabel}

type sliceKey struct{ kind, name string }

// slicesOf lists the largest slices of each kind; leftOut counts the smaller ones.
func slicesOf(rows []Row, confidence float64) (all []Slice, leftOut int) {
	tables := map[sliceKey]*scores{}
	add := func(w Row, kind, name string) {
		if name == "" {
			return
		}
		at := tables[sliceKey{kind, name}]
		if at == nil {
			at = &scores{}
			tables[sliceKey{kind, name}] = at
		}
		at.add(w)
	}
	for _, w := range rows {
		for i, tag := range w.Case.Tags {
			if !slices.Contains(w.Case.Tags[:i], tag) {
				add(w, SliceTag, tag)
			}
		}
		add(w, SliceWorkflow, WorkflowOf(w.Case))
		add(w, SliceRisk, w.Case.Risk)
		add(w, SliceState, w.Case.State)
		add(w, SliceDecidedBy, string(w.Result.DecidedBy))
		add(w, SliceLabel, w.Case.Label.Source)
	}
	keys := slices.Collect(maps.Keys(tables))
	slices.SortStableFunc(keys, func(a, b sliceKey) int {
		return cmp.Or(cmp.Compare(tables[b].total(), tables[a].total()), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	leftOut = max(len(keys)-maxSlices, 0)
	keys = keys[:len(keys)-leftOut]
	slices.SortStableFunc(keys, func(a, b sliceKey) int {
		return cmp.Compare(slices.Index(sliceKinds, a.kind), slices.Index(sliceKinds, b.kind))
	})
	all = []Slice{}
	for _, key := range keys {
		all = append(all, sliceOf(key, tables[key], confidence))
	}
	return all, leftOut
}

// countLost counts, for each tag, the cases without an outcome that must not be approved.
func countLost(all []Slice, lost []*Case) {
	for i := range all {
		if all[i].Kind != SliceTag {
			continue
		}
		for _, c := range lost {
			if c.Expect.Outcome != judge.Approve && slices.Contains(c.Tags, all[i].Name) {
				all[i].Lost++
			}
		}
	}
}

func sliceOf(key sliceKey, s *scores, confidence float64) Slice {
	return Slice{
		Kind: key.kind, Name: key.name, N: s.total(),
		FalseApprove: s.falseApprove.rate(confidence),
		FalseRefuse:  s.falseRefuse.rate(confidence),
		Escalation:   s.escalation.rate(confidence),
		Accuracy:     s.accuracy.rate(confidence),
		GateAccuracy: s.gate.rate(confidence),
		Kappa:        s.kappa(),
	}
}

// statusIndex maps statuses of criteria to outcomes: met corresponds to approve, because a wrong met is like a false
// approval.
func statusIndex(status string) int {
	switch status {
	case "met":
		return approve
	case "cannot_assess":
		return escalate
	default:
		return reject
	}
}

func scoreCriteria(rows []Row, confidence float64) []CriterionScore {
	type key struct{ workflow, name string }
	type score struct {
		Table
		falseMet, accuracy tally
	}
	tables := map[key]*score{}
	unanswered := map[key]int{}
	for _, w := range rows {
		for name, label := range w.Case.Expect.Criteria {
			at := key{WorkflowOf(w.Case), name}
			if tables[at] == nil {
				tables[at] = &score{}
			}
			status, ok := AnswerTo(name, w.Result.Criteria)
			if !ok {
				unanswered[at]++
				continue
			}
			t, right, given := tables[at], statusIndex(label), statusIndex(status)
			t.Table[right][given]++
			t.accuracy.add(w.Group, right == given)
			if right != approve {
				t.falseMet.add(w.Group, given == approve)
			}
		}
	}
	var all []CriterionScore
	for at, t := range tables {
		all = append(all, CriterionScore{
			Workflow: at.workflow, Name: at.name, N: t.total(), FalseMet: t.falseMet.rate(confidence),
			Accuracy: t.accuracy.rate(confidence), Kappa: t.outcomeKappa(), Unanswered: unanswered[at],
		})
	}
	slices.SortStableFunc(all, func(a, b CriterionScore) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// AnswerTo returns the status that a judge gave a criterion, by id or text.
func AnswerTo(name string, all []judge.CriterionVerdict) (status string, ok bool) {
	same := func(a string) bool { return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(name)) }
	for _, c := range all {
		whole, _, _ := strings.Cut(c.ID, "_") // a criterion that was asked of each item: the gravest answer counts
		if (same(c.ID) || same(whole) || same(c.Text)) && slices.Index(gravity, c.Status) >= slices.Index(gravity, status) {
			status, ok = c.Status, true
		}
	}
	return status, ok
}

// gravity orders the statuses of a criterion.
var gravity = []string{"", "met", "cannot_assess", "not_met"}

// rateReasons computes Report.Reasons.
func rateReasons(rows []Row, confidence float64) Rate {
	return RateOf(rows, confidence,
		func(w Row) bool { return len(w.Case.Expect.ViolationsAny) > 0 && w.Got != judge.Approve },
		func(w Row) bool {
			return slices.ContainsFunc(w.Case.Expect.ViolationsAny, func(code string) bool {
				return code == w.Result.Code || slices.Contains(w.Result.Codes, code)
			})
		})
}
