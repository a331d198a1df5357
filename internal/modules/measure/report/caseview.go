package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// judgedRun is a run and its name on a page.
type judgedRun struct {
	name string // "" if there is only one
	*eval.Measurement
}

// runIndex finds the results of a run by case.
type runIndex struct {
	judgedRun
	results map[string][]*eval.Result
	first   map[string]*eval.Result
	views   map[string]*eval.View
}

func indexRun(r judgedRun) runIndex {
	at := runIndex{r, map[string][]*eval.Result{}, eval.FirstResults(r.Results), map[string]*eval.View{}}
	for i := range r.Results {
		at.results[r.Results[i].Case] = append(at.results[r.Results[i].Case], &r.Results[i])
	}
	for i := range r.Views {
		at.views[r.Views[i].Case] = &r.Views[i]
	}
	return at
}

// viewCases prepares the cases of runs over the same set for a page, the worst first. changed describes the changed
// cases, by id.
func viewCases(runs []judgedRun, changed map[string]string) []PageCase {
	all := make([]runIndex, 0, len(runs))
	for _, r := range runs {
		all = append(all, indexRun(r))
	}
	last := all[len(all)-1]
	type graded struct {
		PageCase
		grade      int
		confidence float64
	}
	var out []graded
	for i := range last.Cases {
		c := &last.Cases[i]
		if !last.Report.Options.IncludesSplit(c.Split) {
			continue
		}
		g := graded{PageCase: PageCase{Title: c.ID, Facts: describeCase(c)}}
		addLabel := func(kind, name string) {
			if l := (PageLabel{kind, name}); name != "" && !slices.Contains(g.Labels, l) {
				g.Labels = append(g.Labels, l)
			}
		}
		var quotes []quotation
		var outcomes, criteria []string
		for _, run := range all {
			grade, words := run.gradeCase(c)
			if g.grade = max(g.grade, grade); grade > 0 {
				g.Wrong, g.Badge = true, words
			}
			if r := run.first[c.ID]; r != nil {
				g.confidence = max(g.confidence, r.Confidence)
				outcomes = append(outcomes, cmp.Or(string(r.Outcome), "-"))
			}
			kind := cmp.Or(run.name, "result")
			addLabel(kind, words)
			if grade > 0 && words != "wrong" {
				addLabel(kind, "wrong")
			}
			j, of := run.judgement(c)
			g.Judgements, quotes = append(g.Judgements, j...), append(quotes, quotationsOf(prefixName(run.name), of)...)
			for _, k := range of {
				if label, ok := labelOf(c, k); ok && label != k.Status {
					criteria = append(criteria, fmt.Sprintf("%s of %s is wrong", k.ID, eval.WorkflowOf(c)))
				} else if k.Status != "met" {
					criteria = append(criteria, fmt.Sprintf("%s of %s is not met", k.ID, eval.WorkflowOf(c)))
				}
			}
			if v := run.views[c.ID]; v != nil && g.Documents == nil {
				for _, d := range v.Documents {
					g.Documents = append(g.Documents, PageText{Title: d.Name, Pieces: []PagePiece{{Text: d.Text}}})
				}
			}
		}
		for n, d := range g.Documents {
			g.Documents[n] = newPageText(d.Title, d.Pieces[0].Text, quotes)
			g.Documents[n].Open = true
		}
		g.Badge = cmp.Or(g.Badge, "right")
		g.Line = fmt.Sprintf("%s, right is %s; %s", strings.Join(outcomes, " / "), c.Expect.Outcome, eval.WorkflowOf(c))
		if how := changed[c.ID]; how != "" {
			addLabel("changed", "changed")
			addLabel("changed", how)
		}
		for _, name := range criteria {
			addLabel("criterion", name)
		}
		for _, tag := range c.Tags {
			addLabel("tag", tag)
		}
		addLabel("workflow", eval.WorkflowOf(c))
		out = append(out, g)
	}
	slices.SortStableFunc(out, func(a, b graded) int {
		return cmp.Or(cmp.Compare(len(changed[b.Title]), len(changed[a.Title])), cmp.Compare(b.grade, a.grade), cmp.Compare(b.confidence, a.confidence), cmp.Compare(a.Title, b.Title))
	})
	cases := make([]PageCase, 0, len(out))
	for _, g := range out {
		cases = append(cases, g.PageCase)
	}
	return cases
}

func prefixName(name string) string {
	if name == "" {
		return ""
	}
	return name + ", "
}

// gradeCase grades how wrong a run was about a case (0 for right), and describes it in words.
func (r runIndex) gradeCase(c *eval.Case) (grade int, words string) {
	result := r.first[c.ID]
	if result == nil || eval.IsFailed(result) {
		return 1, "no outcome"
	}
	w := eval.Row{Case: c, Result: result, Expect: c.Expect.Outcome}
	w.Got, _ = result.OutcomeUnder(r.Report.Options.Unreadable, w.MustNot())
	switch grade = eval.GradeOutcome(w); {
	case grade == 0:
		return 0, "right"
	case w.FalseApprove():
		return grade + 1, "wrongly approved"
	case grade > 1:
		return grade + 1, "wrongly refused"
	}
	return grade + 1, "wrong"
}

func describeCase(c *eval.Case) [][]string {
	facts := [][]string{{"move", eval.OneLine(fmt.Sprintf("%s in %s of %s", c.Action, c.State, eval.WorkflowOf(c)))}, {"split", string(c.Split)}}
	for _, f := range [][]string{{"group", c.Group}, {"tags", strings.Join(c.Tags, ", ")}, {"risk", c.Risk}, {"label", c.Label.Source}, {"notes", c.Notes}} {
		if f[1] != "" {
			facts = append(facts, []string{f[0], eval.VisibleText(f[1])})
		}
	}
	return facts
}

// judgement returns the answers of a run to a case: the first in full, and only the outcomes of the others. criteria
// are those of the first answer.
func (r runIndex) judgement(c *eval.Case) (all []PageJudgement, criteria []judge.CriterionVerdict) {
	first := r.first[c.ID]
	if first == nil {
		return []PageJudgement{{Title: r.name, Facts: [][]string{{"outcome", "there is no result"}}}}, nil
	}
	facts := [][]string{{"outcome", cmp.Or(string(first.Outcome), first.Failure) + ", right is " + string(c.Expect.Outcome)}}
	if !eval.IsFailed(first) {
		facts = append(facts, []string{"confidence", judge.FormatConfidence(first.Confidence)}, []string{"decided by", eval.OneLine(strings.Join([]string{string(first.DecidedBy), first.Code}, " "))})
	}
	if first.Unreadable {
		facts = append(facts, []string{"answer", "could not be read"})
	}
	if repeats := r.results[c.ID]; len(repeats) > 1 {
		var words []string
		for _, one := range repeats {
			words = append(words, cmp.Or(string(one.Outcome), one.Failure))
		}
		facts = append(facts, []string{"repeats", strings.Join(words, ", ")})
	}
	if first.CostUSD != nil {
		facts = append(facts, []string{"cost", strconv.FormatFloat(*first.CostUSD, 'f', 6, 64) + " USD"})
	}
	j := PageJudgement{Title: r.name, Facts: facts, Reasoning: eval.VisibleText(first.Reasoning)}
	criteria = first.Criteria
	var asked []eval.Exchange
	if v := r.views[c.ID]; v != nil {
		if at := slices.IndexFunc(v.Answers, func(a eval.ViewAnswer) bool { return a.Repeat == first.Repeat }); at >= 0 {
			criteria, asked = v.Answers[at].Criteria, v.Answers[at].Asked
		}
	}
	for _, k := range criteria {
		label, _ := labelOf(c, k)
		if label == k.Status {
			label = ""
		}
		j.Criteria = append(j.Criteria, PageCriterion{eval.VisibleText(k.ID + ": " + k.Text), eval.OneLine(k.Status), label, showHidden(k.Evidence), eval.VisibleText(k.Why)})
	}
	quotes := quotationsOf("", criteria)
	for _, e := range asked {
		j.Texts = append(j.Texts, newPageText("prompt", e.User, quotes))
		for _, text := range e.Answers {
			j.Texts = append(j.Texts, newPageText("answer of the model", text, quotes))
		}
	}
	return []PageJudgement{j}, criteria
}

// labelOf returns a case's label of a criterion.
func labelOf(c *eval.Case, k judge.CriterionVerdict) (string, bool) {
	for name, label := range c.Expect.Criteria {
		if _, names := eval.AnswerTo(name, []judge.CriterionVerdict{k}); names {
			return label, true
		}
	}
	return "", false
}
