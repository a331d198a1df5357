package judge

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Terms are what an owner says of a criterion besides its text and its proof.
type Terms struct {
	// When is a condition over data, context, evidence and call, as in routes: the criterion is asked only if it
	// holds. "" always asks.
	When string `json:"when,omitempty"`
	// Advisory criteria are answered and recorded, and never block.
	Advisory bool `json:"advisory,omitempty"`
	// Each is a JSON pointer to a list in data, context or evidence, such as /data/symptoms: the criterion is asked
	// of each item, and all must hold.
	Each string `json:"each,omitempty"`
	// Scale asks for a grade instead of met or not.
	Scale *Scale `json:"scale,omitempty"`
}

// Scale is a criterion's grades, from 1 to Of. Code compares them with AtLeast, which the model does not see.
type Scale struct {
	Of      int `json:"of"`
	AtLeast int `json:"atLeast"`
	// Grades describe the grades from 1 on; empty, or one for each.
	Grades []string `json:"grades,omitempty"`
}

// The most items that a criterion is asked of, and the highest grade.
const (
	MaxItems = 20
	MaxGrade = 10
)

func (s Scale) describe() string {
	var words []string
	for i, word := range s.Grades {
		words = append(words, fmt.Sprintf("%d: %s", i+1, word))
	}
	if len(words) == 0 {
		words = []string{fmt.Sprintf("1 is the lowest, %d the highest", s.Of)}
	}
	return fmt.Sprintf(" [grade 1 to %d; %s]", s.Of, strings.Join(words, ", "))
}

// criterion is a criterion of a rubric, or of one item, as it is asked.
type criterion struct {
	id, text string
	proof    Proof
	terms    Terms
}

// prompt returns the criterion as it is put to the model.
func (c criterion) prompt() prompts.Criterion {
	out := prompts.Criterion{ID: c.id, Text: c.proof.describeCriterion(c.text)}
	if c.terms.Scale != nil {
		out.Text, out.Grades = c.proof.describeCriterion(c.text+c.terms.Scale.describe()), c.terms.Scale.Of
	}
	return out
}

// criteria returns the criteria of a rubric, before code knows which apply.
func (r Rubric) criteria() []criterion {
	out := make([]criterion, len(r.Criteria))
	for i, text := range r.Criteria {
		out[i] = criterion{"c" + strconv.Itoa(i+1), text, r.Proofs[text], r.Terms[text]}
	}
	return out
}

// CriteriaWithProofs returns the criteria with their proofs, as they are put to the model.
func (r Rubric) CriteriaWithProofs() []string {
	var out []string
	for _, c := range r.criteria() {
		out = append(out, c.prompt().Text)
	}
	return out
}

// Conditions returns the conditions of the criteria that have one, in order.
func (r Rubric) Conditions() (conditions []string) {
	for _, c := range r.criteria() {
		if c.terms.When != "" {
			conditions = append(conditions, c.terms.When)
		}
	}
	return conditions
}

// listUnasked returns the ids of the criteria whose conditions do not hold. holds has the results of Conditions.
func (r Rubric) listUnasked(holds []bool) (ids []string) {
	for _, c := range r.criteria() {
		if c.terms.When == "" || len(holds) == 0 {
			continue
		}
		if !holds[0] {
			ids = append(ids, c.id)
		}
		holds = holds[1:]
	}
	return ids
}

// criteria returns the criteria that are asked about a case: those that apply, one for each item of a list.
func (c Case) criteria() (out []criterion) {
	for _, one := range c.Rubric.criteria() {
		if slices.Contains(c.unasked, one.id) {
			continue
		}
		if one.terms.Each == "" {
			out = append(out, one)
			continue
		}
		for i := range min(c.items(one.terms.Each).Len(), MaxItems) {
			item := one
			at := one.terms.Each + "/" + strconv.Itoa(i)
			item.id, item.text = fmt.Sprintf("%s_%d", one.id, i+1), fmt.Sprintf("%s [of %s]", one.text, at)
			if from := strings.TrimPrefix(item.proof.source(), "/"); from == "" || strings.HasPrefix(at, "/"+from+"/") {
				item.proof.From = at
			}
			out = append(out, item)
		}
	}
	return out
}

// items returns the value at the pointer of a criterion that is asked of each item.
func (c Case) items(each string) document.JSON {
	name, rest, _ := strings.Cut(strings.TrimPrefix(each, "/"), "/")
	docs := map[string]document.JSON{shown.Data: c.MaskedData, shown.Context: c.MaskedContext, shown.Evidence: document.ReadTrusted(listEvidence(c.Fetched))}
	return docs[name].At(slices.Collect(document.Pointer("/" + rest).Tokens())...)
}

// findBadLists reports the lists of criteria that cannot be asked of each item.
func (c Case) findBadLists() (found []validators.Finding) {
	for _, one := range c.Rubric.criteria() {
		if one.terms.Each == "" || one.terms.Advisory || slices.Contains(c.unasked, one.id) {
			continue
		}
		why := ""
		if list := c.items(one.terms.Each); list.Kind() != document.Array {
			why = one.terms.Each + " is not a list"
		} else if list.Len() > MaxItems {
			why = fmt.Sprintf("%s has %d items; send at most %d", one.terms.Each, list.Len(), MaxItems)
		}
		if why != "" {
			path, isData := strings.CutPrefix(one.terms.Each, "/"+shown.Data)
			if !isData {
				path = ""
			}
			found = append(found, validators.Finding{Code: CodeCriterionNotMet, Path: path, Message: joinSentences("Not met: "+cleanText(one.text, maxPhrase), why)})
		}
	}
	return found
}

// findGap describes a keyed answer that does not answer exactly the criteria that were asked, in their form.
func (q question) findGap(a llm.Answer) error {
	if !a.Keyed {
		return nil
	}
	answers := map[string]llm.Criterion{}
	for _, c := range a.Criteria {
		answers[idOf(c.ID)] = c
	}
	var wrong []string
	for _, c := range q.criteria {
		answer, ok := answers[c.id]
		scale := c.terms.Scale
		switch {
		case !ok && !c.terms.Advisory:
			wrong = append(wrong, "left out "+c.id)
		case ok && (answer.Status == llm.StatusGraded) != (scale != nil):
			wrong = append(wrong, "answers "+c.id+" in another form")
		case ok && scale != nil && answer.Grade > scale.Of:
			wrong = append(wrong, fmt.Sprintf("gives %s the grade %d of %d", c.id, answer.Grade, scale.Of))
		}
		delete(answers, c.id)
	}
	for id := range answers {
		wrong = append(wrong, "answers "+cleanText(id, maxLabel)+", which was not asked")
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%w: the model %s", llm.ErrIncomplete, truncateText(strings.Join(wrong, ", "), maxDetail))
}

// grade compares the grades of a keyed answer with their scales, and derives whether the model approves: advisory
// criteria do not count.
func (q question) grade(a llm.Answer) llm.Answer {
	if !a.Keyed {
		return a
	}
	a.Criteria = slices.Clone(a.Criteria)
	a.Approved = !a.InjectionSuspected && len(a.Violations) == 0
	for _, c := range q.criteria {
		at := slices.IndexFunc(a.Criteria, func(answer llm.Criterion) bool { return idOf(answer.ID) == c.id })
		if at < 0 {
			a.Approved = a.Approved && c.terms.Advisory
			continue
		}
		if answer := &a.Criteria[at]; answer.Status == llm.StatusGraded && c.terms.Scale != nil {
			switch {
			case answer.Grade == 0:
				answer.Status = llm.StatusCannotAssess
			case answer.Grade < c.terms.Scale.AtLeast:
				answer.Status = llm.StatusNotMet
			default:
				answer.Status = llm.StatusMet
			}
		}
		a.Approved = a.Approved && (c.terms.Advisory || a.Criteria[at].Status == llm.StatusMet)
	}
	return a
}

// Validate reports terms that no definition can mean.
func (t Terms) Validate() error {
	var errs []error
	if t.Each != "" && !slices.ContainsFunc([]string{shown.Data, shown.Context, shown.Evidence}, func(name string) bool { return strings.HasPrefix(t.Each, "/"+name+"/") }) {
		errs = append(errs, fmt.Errorf("each %.60q must be a JSON pointer into data, context or evidence, such as /data/items", t.Each))
	}
	if s := t.Scale; s != nil {
		if s.Of < 2 || s.Of > MaxGrade {
			errs = append(errs, fmt.Errorf("scale.of is %d, must be 2 to %d", s.Of, MaxGrade))
		} else if s.AtLeast < 1 || s.AtLeast > s.Of {
			errs = append(errs, fmt.Errorf("scale.atLeast is %d, must be 1 to %d", s.AtLeast, s.Of))
		}
		if n := len(s.Grades); n > 0 && n != s.Of {
			errs = append(errs, fmt.Errorf("scale.grades has %d entries; describe all %d grades, or none", n, s.Of))
		}
	}
	return errors.Join(errs...)
}
