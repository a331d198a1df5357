package eval

import (
	"cmp"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// wrongness says how bad a wrong outcome is, 0 that it is right.
func wrongness(w row) int {
	switch {
	case w.falseApprove():
		return 4
	case !w.isGateRight() && w.got == judge.Reject:
		return 3
	case !w.isGateRight():
		return 2
	case !w.isExact():
		return 1
	}
	return 0
}

// listWorst lists wrong outcomes: false approvals, then refusals of what was right, then
// the rest; in each the surest first.
func listWorst(rows []row, most int) []WorstCase {
	var wrong []row
	for _, w := range rows {
		if wrongness(w) > 0 {
			wrong = append(wrong, w)
		}
	}
	slices.SortStableFunc(wrong, func(a, b row) int {
		return cmp.Or(cmp.Compare(wrongness(b), wrongness(a)), cmp.Compare(b.r.Confidence, a.r.Confidence), cmp.Compare(a.c.ID, b.c.ID))
	})
	all := []WorstCase{}
	for _, w := range wrong[:min(len(wrong), most)] {
		all = append(all, WorstCase{
			Case: w.c.ID, Repeat: w.r.Repeat, Tags: w.c.Tags, Workflow: workflowOf(w.c), State: w.c.State, Action: w.c.Action,
			Expected: w.expect, Got: w.got, Unreadable: w.r.Unreadable, Confidence: w.r.Confidence, DecidedBy: w.r.DecidedBy,
			Code: w.r.Code, Reasoning: w.r.Reasoning, Notes: w.c.Notes,
		})
	}
	return all
}
