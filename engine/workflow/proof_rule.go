package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

// checkProofs finds proofs that no quote from the transition's required fields can satisfy.
func checkProofs(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		required := listPromisedFields(t.RequiredFields, t.Schema)
		if !r.Enabled || !r.UseLLM || len(required) == 0 {
			return
		}
		for _, text := range r.Criteria {
			field, isData := r.Proofs[text].DataField()
			if each, ok := strings.CutPrefix(r.Terms[text].Each, "/data/"); ok {
				field, _, _ = strings.Cut(each, "/")
				if !slices.Contains(required, field) {
					s.addIssue(s.settingPath(from, t, "criteria"), "%s is asked of each item of %s, which the transition does not require: without it the move is refused; add it to \"requiredFields\"", quoteName(text), quoteName("/data/"+field))
				}
				continue
			}
			if !isData {
				continue
			}
			quoted := required
			if field != "" {
				quoted = []string{field}
				if !slices.Contains(required, field) {
					s.addIssue(s.settingPath(from, t, "criteria"), "%s takes a quote from %s, which the transition does not require: add it to \"requiredFields\"", quoteName(text), quoteName("/data/"+field))
					continue
				}
			}
			if !r.Proofs[text].CanMeet(boundFields(t.Schema, quoted), field == "") {
				s.addIssue(s.settingPath(from, t, "criteria"), "no value of %s that the schema allows contains the quote that %s demands, so the criterion is never met; demand less, or allow longer values", quoteNames(quoted), quoteName(text))
			}
		}
	})
}

// boundFields returns the limits that a schema sets on the values of fields.
func boundFields(schema json.RawMessage, names []string) map[string]judge.ValueBound {
	var known struct {
		Properties map[string]struct {
			Type      any   `json:"type"`
			Enum      []any `json:"enum"`
			Const     any   `json:"const"`
			MaxLength int   `json:"maxLength"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &known) // a schema of another form sets no limits
	bounds := map[string]judge.ValueBound{}
	for _, name := range names {
		p := known.Properties[name]
		b := judge.ValueBound{MaxRunes: p.MaxLength}
		if p.Const != nil {
			p.Enum = []any{p.Const}
		}
		switch {
		case len(p.Enum) > 0:
			for _, value := range p.Enum {
				b.Values = append(b.Values, fmt.Sprint(value))
			}
		case p.Type == "boolean":
			b.Values = []string{"true", "false"}
		case p.Type == "number" || p.Type == "integer":
			b.MaxRunes = 1
		case p.Type != "string":
			b.MaxRunes = 0 // maxLength applies to strings only
		}
		bounds[name] = b
	}
	return bounds
}
