package replay

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// About is the head of a rendered report: what was judged, and what was changed.
type About struct {
	Store string `json:"store,omitempty"`
	// Changed says what is otherwise than it was, a phrase each; none: nothing is.
	Changed []string `json:"changed"`
	// Answers says where the model's answers come from.
	Answers string `json:"answers,omitempty"`
	// Selected says which decisions, a phrase each; none: all.
	Selected []string `json:"selected"`
}

// none stands where there is nothing to show.
const none = "-"

func (r Report) figures(a About) [][]string {
	lines := a.figures()
	add := func(name, format string, args ...any) {
		lines = append(lines, []string{name, eval.OneLine(fmt.Sprintf(format, args...))})
	}
	add("changed", "%s", cmp.Or(strings.Join(a.Changed, ", "), "nothing"))
	add("model answers", "%s", cmp.Or(a.Answers, none))
	add("new approvals", "%d (rejected or escalated then)", r.NewApprovals)
	add("other target", "%d (approved then and now, to another state)", r.Rerouted)
	add("new refusals", "%d (approved then)", r.NewRefusals)
	add("other refusals", "%d (rejected then and escalated now, or the other way)", r.OtherRefusals)
	add("same outcome", "%d, of which %d for another reason", r.Same, r.OtherReason)
	add("decisions", "%d, of which %d were only asked", r.Decisions, r.AskedOnly)
	add("judged again", "%d, not judged again %d", r.Replayed, r.Decisions-r.Replayed)
	if n := r.Answers; n.Recorded+n.Asked > 0 {
		add("answers", "%d recorded, %d asked now", n.Recorded, n.Asked)
	}
	return lines
}

func (a About) figures() [][]string {
	return [][]string{{"store", cmp.Or(eval.OneLine(a.Store), none)}, {"selected", cmp.Or(eval.OneLine(strings.Join(a.Selected, ", ")), "all decisions")}}
}

func (s Shadow) figures(a About) [][]string {
	return append(a.figures(), [][]string{
		{"in shadow mode", strconv.FormatInt(s.Decisions, 10)},
		{"would approve", strconv.FormatInt(s.WouldApprove, 10)},
		{"would reject", strconv.FormatInt(s.WouldReject, 10)},
		{"would escalate", strconv.FormatInt(s.WouldEscalate, 10)},
		{"applied anyway", fmt.Sprintf("%d (moves that would not have been approved)", s.AppliedAnyway)},
	}...)
}

func (r Report) tables() []eval.Grid {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	changes := eval.Grid{Title: "Other outcomes by reason", Head: []string{"workflow", "action", "then", "for", "now", "for", "count"}}
	for _, c := range r.Changes {
		changes.Rows = append(changes.Rows, []string{c.Workflow, cmp.Or(c.Action, "start"), string(c.Before), c.BeforeReason, string(c.After), c.AfterReason, number(c.Count)})
	}
	flows := eval.Grid{Title: "By workflow", Head: []string{"workflow", "decisions", "judged again", "same", "new approvals", "other target", "new refusals", "other refusals"}}
	for _, w := range r.Workflows {
		flows.Rows = append(flows.Rows, []string{
			w.Workflow, number(w.Decisions), number(w.Replayed), number(w.Same), number(w.NewApprovals), number(w.Rerouted), number(w.NewRefusals), number(w.OtherRefusals),
		})
	}
	left := eval.Grid{Title: "Not judged again", Head: []string{"workflow", "reason", "count", "because", "first"}}
	for _, u := range r.NotReplayed {
		says := u.Says
		if u.Detail != "" {
			says += ": " + u.Detail
		}
		left.Rows = append(left.Rows, []string{u.Workflow, u.Reason, number(u.Count), says, u.First})
	}
	return []eval.Grid{changes, flows, left, r.Shadow.table()}
}

func (r Report) limitTable() eval.Grid {
	t := eval.Grid{Title: "Limits", Head: []string{"limit", "", "at most", "is"}}
	for _, g := range r.Gates {
		verdict := "kept"
		if !g.Passed {
			verdict = "BROKEN"
		}
		t.Rows = append(t.Rows, []string{g.Name, verdict, strconv.FormatFloat(g.Limit, 'g', 4, 64), strconv.FormatFloat(g.Value, 'g', 4, 64)})
	}
	return t
}

func (s Shadow) table() eval.Grid {
	t := eval.Grid{Title: "Shadow mode: what would have been decided", Head: []string{"workflow", "action", "would be", "for", "count", "applied"}}
	for _, c := range s.Rows {
		t.Rows = append(t.Rows, []string{c.Workflow, cmp.Or(c.Action, "start"), string(c.Outcome), c.Reason, strconv.FormatInt(c.Count, 10), strconv.FormatInt(c.Applied, 10)})
	}
	return t
}

func (r Report) verdict() string {
	switch {
	case r.Regression:
		return fmt.Sprintf("Regression: %d new approvals, %d other outcomes in all.", r.NewApprovals, r.Flips)
	case !r.Evaluated:
		return "Not evaluated: " + r.NotEvaluated + "."
	case r.Replayed == 0:
		return "Nothing was judged again."
	case r.Flips == 0:
		return "Every decision that was judged again came out the same."
	}
	return fmt.Sprintf("%d of %d came out otherwise, %d of them are new approvals.", r.Flips, r.Replayed, r.NewApprovals)
}

// conclude sums up whether the limits hold; without any it neither passed nor failed.
func (r Report) conclude() eval.Conclusion {
	switch {
	case len(r.Gates) == 0 && r.Evaluated:
		return eval.Conclusion{Says: r.verdict()}
	case r.Regression:
		return eval.Conclusion{Status: eval.StatusRegression, Says: "FAILED: " + r.verdict()}
	case !r.Evaluated:
		return eval.Conclusion{Status: eval.StatusNotEvaluated, Says: "FAILED: " + r.verdict()}
	}
	return eval.Conclusion{Status: eval.StatusPassed, Says: "PASSED: " + r.verdict()}
}

func (f Flip) line() string {
	text := fmt.Sprintf("%s event %d, %s of %s v%d", f.Instance, f.Seq, cmp.Or(f.Action, "start"), f.Workflow, f.Version)
	if f.State != "" {
		text += " in " + f.State
	}
	text += fmt.Sprintf(": %s -> %s", f.Before.Outcome, f.After.Outcome)
	if f.Before.Outcome == f.After.Outcome {
		text += fmt.Sprintf(" (to %s, was %s)", f.After.Target, f.Before.Target)
	}
	switch {
	case f.Precheck:
		text += " (asked only)"
	case f.Applied && f.Before.Outcome != "approve":
		text += " (applied all the same, in shadow mode)"
	}
	return text
}

func (s Side) line() string {
	return fmt.Sprintf("%s (%s): %s", s.reason(), judge.FormatConfidence(s.Confidence), cmp.Or(s.Reasoning, none))
}

// Page lays the report out.
func (r Report) Page(a About) eval.Page {
	p := eval.Page{
		Title: "Decisions judged again", Conclusion: r.conclude(), Figures: r.figures(a), Gates: r.limitTable(), Tables: r.tables(), Notes: r.Notes,
		CasesTitle: "Other outcomes", CasesLeftOut: int(r.ListedLeftOut),
	}
	for how, title := range [directions]string{"New approvals", "To another state", "New refusals", "Other refusals"} {
		l := eval.Listing{Title: title}
		for _, f := range r.Listed {
			if at, _ := compareSides(f.Before, f.After); at == direction(how) {
				l.Items = append(l.Items, []string{f.line(), "then: " + f.Before.line(), "now: " + f.After.line()})
				p.Cases = append(p.Cases, f.view(title))
			}
		}
		if len(l.Items) > 0 {
			p.Listings = append(p.Listings, l)
		}
	}
	return p
}

// Page lays out what was decided in shadow mode.
func (s Shadow) Page(a About) eval.Page {
	return eval.Page{Title: "Decisions in shadow mode", Figures: s.figures(a), Tables: []eval.Grid{s.table()}}
}

func (f Flip) view(direction string) eval.PageCase {
	c := eval.PageCase{
		Title: fmt.Sprintf("%s event %d", f.Instance, f.Seq),
		Line:  f.line(), Badge: fmt.Sprintf("%s -> %s", f.Before.Outcome, f.After.Outcome), Wrong: f.After.Outcome == judge.Approve,
		Facts: [][]string{{"time", f.Time.UTC().Format(time.RFC3339)}},
		Labels: []eval.PageLabel{
			{Kind: "change", Name: direction},
			{Kind: "workflow", Name: f.Workflow},
			{Kind: "action", Name: cmp.Or(f.Action, "start")},
			{Kind: "reason now", Name: f.After.reason()},
			{Kind: "reason then", Name: f.Before.reason()},
		},
	}
	for _, s := range []struct {
		title string
		side  Side
	}{{"then", f.Before}, {"now", f.After}} {
		c.Judgements = append(c.Judgements, eval.PageJudgement{
			Title: s.title, Reasoning: eval.OneLine(s.side.Reasoning),
			Facts: [][]string{
				{"outcome", string(s.side.Outcome)},
				{"reason", eval.OneLine(s.side.reason())},
				{"confidence", judge.FormatConfidence(s.side.Confidence)},
				{"target", cmp.Or(eval.OneLine(s.side.Target), none)},
			},
		})
	}
	return c
}
