package judge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestRubricValidate(t *testing.T) {
	t.Parallel()
	exemplar := Exemplar{Data: json.RawMessage(`{"a":1}`), Outcome: Reject, Why: "because"}
	samples := func(n int) func(*Rubric) { return func(r *Rubric) { r.Samples = n } }
	exemplars := func(all ...Exemplar) func(*Rubric) { return func(r *Rubric) { r.Exemplars = all } }
	with := func(change func(*Exemplar)) func(*Rubric) {
		e := exemplar
		change(&e)
		return exemplars(exemplar, e)
	}
	for _, tt := range []struct {
		name   string
		change func(*Rubric)
		want   string // "" for valid
	}{
		{"the default", samples(0), ""},
		{"once", samples(1), ""},
		{"three times", samples(3), ""},
		{"the most", samples(MaxSamples), ""},
		{"twice", samples(2), "samples is 2; use an odd number from 1 to 9"},
		{"too often", samples(MaxSamples + 2), "samples is 11"},
		{"less than never", samples(-1), "samples is -1"},
		{"exemplars", exemplars(slices.Repeat([]Exemplar{exemplar}, MaxExemplars)...), ""},
		{"too many exemplars", exemplars(slices.Repeat([]Exemplar{exemplar}, MaxExemplars+1)...), "there are 4 exemplars; use at most 3"},
		{"an exemplar without data", with(func(e *Exemplar) { e.Data = nil }), "exemplars[1].data is not JSON"},
		{"an exemplar that is no JSON", with(func(e *Exemplar) { e.Data = json.RawMessage("{") }), "exemplars[1].data is not JSON"},
		{"an undecided exemplar", with(func(e *Exemplar) { e.Outcome = Escalate }), `exemplars[1].outcome "escalate" is unknown; use "approve" or "reject"`},
	} {
		err := rubric(tt.change).Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
