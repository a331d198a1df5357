package judge

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators"
)

// An inconsistent opinion of a model counts as unreadable.
func TestVettedModel(t *testing.T) {
	t.Parallel()
	with := func(op Opinion, change func(*Opinion)) Opinion { change(&op); return op }
	rejected := objects(LayerModel, 0.7, "criterion_not_met")
	zero := 0
	tests := []struct {
		name string
		op   Opinion
		want Trouble
	}{
		{"approves", model(0.89), TroubleNone},
		{"approves, calibrated, with a suggestion", with(calibrated(0.99), func(op *Opinion) { op.Suggestions = []string{"s"} }), TroubleNone},
		{"rejects", rejected, TroubleNone},
		{"rejects without a finding", with(rejected, func(op *Opinion) { op.Findings = nil }), TroubleNone},
		{"cannot be reached", troubled(TroubleUnavailable), TroubleUnavailable},
		{"cannot assess, and says what", with(troubled(TroubleCannotAssess), func(op *Opinion) { op.Findings = rejected.Findings }), TroubleCannotAssess},
		{"a trouble that claims a confidence and an assurance", with(troubled(TroubleLoopGuard), func(op *Opinion) {
			op.Confidence, op.Assurance = 1, AssuranceLLMCalibrated
		}), TroubleLoopGuard},

		{"says nothing", Opinion{Layer: LayerModel}, TroubleUnreadable},
		{"says nothing at all", Opinion{}, TroubleUnreadable},
		{"speaks as another layer", with(model(0.9), func(op *Opinion) { op.Layer = LayerScript }), TroubleUnreadable},
		{"makes up an outcome", with(model(0.9), func(op *Opinion) { op.Outcome = "Approve" }), TroubleUnreadable},
		{"NaN", model(math.NaN()), TroubleUnreadable},
		{"infinitely sure", model(math.Inf(1)), TroubleUnreadable},
		{"95 percent", model(95), TroubleUnreadable},
		{"below zero", model(-0.1), TroubleUnreadable},
		{"a rejection with NaN", with(rejected, func(op *Opinion) { op.Confidence = math.NaN() }), TroubleUnreadable},
		{"claims to be a person", with(model(0.9), func(op *Opinion) { op.Assurance = AssuranceHuman }), TroubleUnreadable},
		{"gives advice only", with(model(0.9), func(op *Opinion) { op.Assurance = AssuranceNone }), TroubleNone},
		{"claims less than a model", with(model(0.9), func(op *Opinion) { op.Assurance = AssuranceStructural }), TroubleUnreadable},
		{"claims no assurance", with(model(0.9), func(op *Opinion) { op.Assurance = "" }), TroubleUnreadable},
		{"both approves and objects", with(model(0.9), func(op *Opinion) { op.Findings = rejected.Findings }), TroubleUnreadable},
		{"approves in trouble", with(model(0.9), func(op *Opinion) { op.Trouble = TroubleUnavailable }), TroubleUnreadable},
		{"rejects in trouble", with(rejected, func(op *Opinion) { op.Trouble = TroubleUnavailable }), TroubleUnreadable},
		{"makes up a trouble", with(troubled(TroubleUnavailable), func(op *Opinion) { op.Trouble = "holiday" }), TroubleUnreadable},
		{"escalates without a trouble", with(rejected, func(op *Opinion) { op.Outcome = Escalate }), TroubleUnreadable},
		{"fails like a script", with(rejected, func(op *Opinion) { op.Fault = true }), TroubleUnreadable},
		{"approves and fails", with(model(0.9), func(op *Opinion) { op.Fault = true }), TroubleUnreadable},
		{"chooses a route", with(model(0.9), func(op *Opinion) { op.Route = &zero }), TroubleUnreadable},
		{"a finding without a code", with(rejected, func(op *Opinion) { op.Findings = []validators.Finding{{Message: "m"}} }), TroubleUnreadable},
		{"a finding without a message", with(rejected, func(op *Opinion) { op.Findings = []validators.Finding{{Code: "c"}} }), TroubleUnreadable},
		{"too many findings", with(rejected, func(op *Opinion) { op.Findings = slices.Repeat(op.Findings, maxModelFindings+1) }), TroubleUnreadable},
		{"too much text", with(model(0.9), func(op *Opinion) { op.Reasoning = strings.Repeat("a", maxModelText+1) }), TroubleUnreadable},
		{"a record of it", with(model(0.9), func(op *Opinion) { op.Model = &ModelRecord{Model: "m", Stated: 1, Calls: 2} }), TroubleNone},
		{"a record that states NaN", with(model(0.9), func(op *Opinion) { op.Model = &ModelRecord{Stated: math.NaN()} }), TroubleUnreadable},
		{"a record that states 95 percent", with(model(0.9), func(op *Opinion) { op.Model = &ModelRecord{Stated: 95} }), TroubleUnreadable},
		{"a price that is none", with(model(0.9), func(op *Opinion) { cost := math.Inf(1); op.Model = &ModelRecord{CostUSD: &cost} }), TroubleUnreadable},
		{"fewer calls than none", with(model(0.9), func(op *Opinion) { op.Model = &ModelRecord{Calls: -1} }), TroubleUnreadable},
		{"a record that is too long", with(model(0.9), func(op *Opinion) {
			op.Model = &ModelRecord{Criteria: []CriterionVerdict{{Evidence: strings.Repeat("a", maxRecordText+1)}}}
		}), TroubleUnreadable},
		{"too much text in suggestions", with(model(0.9), func(op *Opinion) { op.Suggestions = []string{strings.Repeat("a", maxModelText+1)} }), TroubleUnreadable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := vetOpinion(LayerModel, tt.op)
			if err != nil {
				t.Fatal(err)
			}
			if got.Trouble != tt.want {
				t.Fatalf("trouble %q, want %q: %s", got.Trouble, tt.want, got.Reasoning)
			}
			switch {
			case tt.want == TroubleNone:
				if diff := cmp.Diff(tt.op, got); diff != "" {
					t.Errorf("a good opinion changed:\n%s", diff)
				}
			case got.Layer != LayerModel || got.Outcome != Escalate || got.Confidence != unavailableConfidence || got.Assurance != AssuranceNone:
				t.Errorf("a trouble that still says something: %+v", got)
			}
		})
	}
}

// An inconsistent opinion of a deterministic layer is a bug: nothing is
// decided.
func TestVettedDeterministic(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]Opinion{
		"NaN":                {Layer: LayerState, Outcome: Approve, Confidence: math.NaN(), Assurance: AssuranceNone},
		"no assurance":       {Layer: LayerState, Outcome: Approve, Confidence: 1},
		"another's name":     {Layer: LayerScript, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone},
		"a model's trouble":  {Layer: LayerState, Outcome: Escalate, Confidence: 1, Assurance: AssuranceNone, Trouble: TroubleUnavailable},
		"a model's record":   {Layer: LayerState, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone, Model: &ModelRecord{}},
		"approval and fault": {Layer: LayerState, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone, Fault: true},
	} {
		if got, err := vetOpinion(LayerState, op); err == nil {
			t.Errorf("%s: no error, %+v", name, got)
		}
	}
	if got, err := vetOpinion(LayerState, Opinion{}); err != nil || got.Outcome != "" {
		t.Errorf("silence: %v %+v", err, got)
	}
}

// A hint that settle adds does not change the recorded opinion.
func TestOpinionsStayAsTheyWereSaid(t *testing.T) {
	t.Parallel()
	said := objects(LayerScript, 1, CodeNoRoute)
	v := settle(deliberation{opinions: []Opinion{legal(), said}, rubric: rubric()})
	if v.Findings[0].Hint == "" || said.Findings[0].Hint != "" {
		t.Errorf("verdict %+v, opinion %+v", v.Findings, said.Findings)
	}
	away := troubled(TroubleUnavailable)
	away.Findings = []validators.Finding{{Code: "c", Message: "m"}}
	v = settle(deliberation{opinions: []Opinion{legal(), away}, rubric: rubric(unavailable(UnavailableReject)), target: "next"})
	if len(v.Findings) != 2 || len(away.Findings) != 1 || away.Findings[0].Hint != "" {
		t.Errorf("verdict %+v, opinion %+v", v.Findings, away.Findings)
	}
}

// The cost of an unreadable answer is recorded, except if the record itself is invalid.
func TestVettedKeepsTheRecord(t *testing.T) {
	t.Parallel()
	op := model(math.NaN())
	op.Model = &ModelRecord{Model: "m", Calls: 2}
	got, err := vetOpinion(LayerModel, op)
	if err != nil || got.Trouble != TroubleUnreadable || got.Model != op.Model {
		t.Errorf("%v %+v", err, got)
	}
	op.Model = &ModelRecord{Stated: math.NaN()}
	if got, err = vetOpinion(LayerModel, op); err != nil || got.Trouble != TroubleUnreadable || got.Model != nil {
		t.Errorf("%v %+v", err, got)
	}
}

// A model's quotes are scrubbed like every other text, in a copy.
func TestTheRecordIsScrubbed(t *testing.T) {
	t.Parallel()
	op := model(0.9)
	op.Model = &ModelRecord{Detail: "a secret", Criteria: []CriterionVerdict{{Text: "no secret", Evidence: "the secret", Why: "secret?"}}}
	got := scrubOpinion(op, func(s string) string { return strings.ReplaceAll(s, "secret", "[masked]") })
	want := &ModelRecord{Detail: "a [masked]", Criteria: []CriterionVerdict{{Text: "no [masked]", Evidence: "the [masked]", Why: "[masked]?"}}}
	if diff := cmp.Diff(want, got.Model); diff != "" {
		t.Error(diff)
	}
	if op.Model.Criteria[0].Evidence != "the secret" {
		t.Error("the layer's own record changed")
	}
}

func TestScrubLeavesTheSlicesOfTheLayer(t *testing.T) {
	op := Opinion{Flags: []string{"secret"}, Suggestions: []string{"secret"}}
	clean := scrubOpinion(op, func(string) string { return "***" })
	if op.Flags[0] != "secret" || op.Suggestions[0] != "secret" {
		t.Errorf("the layer's opinion was changed: %+v", op)
	}
	if clean.Flags[0] != "***" || clean.Suggestions[0] != "***" {
		t.Errorf("not scrubbed: %+v", clean)
	}
}
