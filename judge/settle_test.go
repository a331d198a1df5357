package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// legal, passes, valid and the rest build opinions as the layers return them.
func legal() Opinion {
	return Opinion{Layer: LayerTransition, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone}
}

func passes(layer LayerName) Opinion {
	return Opinion{Layer: layer, Outcome: Approve, Confidence: 1, Assurance: AssuranceStructural}
}

func valid(c float64) Opinion {
	return Opinion{Layer: LayerScript, Outcome: Approve, Confidence: c, Assurance: AssuranceValidators}
}

func routed(i int) Opinion {
	return Opinion{Layer: LayerScript, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone, Route: &i}
}

func objects(layer LayerName, c float64, code string) Opinion {
	a := AssuranceStructural
	switch layer {
	case LayerTransition:
		a = AssuranceNone
	case LayerScript:
		a = AssuranceValidators
	case LayerModel:
		a = AssuranceLLM
	}
	return Opinion{
		Layer: layer, Outcome: Reject, Confidence: c, Assurance: a,
		Findings: []validators.Finding{{Code: code, Message: "This is why."}},
	}
}

func model(c float64) Opinion {
	return Opinion{Layer: LayerModel, Outcome: Approve, Confidence: c, Assurance: AssuranceLLM}
}

func calibrated(c float64) Opinion {
	return Opinion{Layer: LayerModel, Outcome: Approve, Confidence: c, Assurance: AssuranceLLMCalibrated}
}

func troubled(t Trouble) Opinion {
	return Opinion{
		Layer: LayerModel, Outcome: Escalate, Confidence: unavailableConfidence, Assurance: AssuranceNone,
		Trouble: t, RetryAfter: document.Milliseconds(7 * time.Second),
	}
}

// before is a model's opinion after this many answers that were not approvals.
func before(refusals, limit int, op Opinion) Opinion {
	op.Model = &ModelRecord{Refusals: refusals, RefusalLimit: limit}
	return op
}

// rubric is DefaultRubric with changes.
func rubric(change ...func(*Rubric)) Rubric {
	r := DefaultRubric()
	for _, c := range change {
		c(&r)
	}
	return r
}

func strict(r *Rubric) {
	r.StrictMode, r.OnJudgeUnavailable = true, UnavailableEscalate
}
func useLLM(r *Rubric)   { r.UseLLM = true }
func disabled(r *Rubric) { r.Enabled = false }
func shadow(r *Rubric)   { r.Mode = Shadow }
func high(r *Rubric)     { r.Risk = RiskHigh }
func atLeast(c float64) func(*Rubric) {
	return func(r *Rubric) { r.MinConfidence = c }
}

func require(a Assurance) func(*Rubric) {
	return func(r *Rubric) { r.RequireAssurance = a }
}

func unavailable(p UnavailablePolicy) func(*Rubric) {
	return func(r *Rubric) { r.OnJudgeUnavailable = p }
}

func evidenceOnly(r *Rubric) {
	r.Criteria, r.Proofs = []string{"c"}, map[string]Proof{"c": {Basis: BasisEvidence}}
}

// ruling is the part of a Verdict that the table checks.
type ruling struct {
	Outcome, Proposed Outcome
	Code              string
	C                 float64
	Assurance         Assurance
	By                LayerName
	Applied           bool
	Degraded          bool
	Fault             bool
	Warnings          int
	Retry             time.Duration
}

func rulingOf(v Verdict) ruling {
	return ruling{
		v.Outcome, v.Proposed, v.Code, v.Confidence, v.Assurance, v.DecidedBy,
		v.Applied, v.Degraded, v.Fault, len(v.Warnings), v.RetryAfter.Duration(),
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	fault := objects(LayerScript, 1, CodeValidatorError)
	fault.Fault, fault.Assurance = true, AssuranceNone
	suspicious := objects(LayerContent, 0.9, "boilerplate")
	suspicious.Outcome = Escalate
	faulty := func(r ruling) ruling { r.Fault = true; return r }

	yes := func(c float64, a Assurance, by LayerName) ruling {
		return ruling{Outcome: Approve, Proposed: Approve, C: c, Assurance: a, By: by, Applied: true}
	}
	no := func(code string, c float64, a Assurance, by LayerName) ruling {
		return ruling{Outcome: Reject, Proposed: Reject, Code: code, C: c, Assurance: a, By: by}
	}
	// denied is a proposed approval that policy turned down.
	denied := func(o Outcome, code string, c float64, a Assurance) ruling {
		return ruling{Outcome: o, Proposed: Approve, Code: code, C: c, Assurance: a, By: ByPolicy}
	}
	warned := func(n int, r ruling) ruling { r.Warnings = n; return r }
	degraded := func(r ruling) ruling { r.Degraded = true; return r }
	retry := func(r ruling) ruling { r.Retry = 7 * time.Second; return r }
	applied := func(r ruling) ruling { r.Applied = true; return r }
	proposed := func(o Outcome, r ruling) ruling { r.Proposed = o; return r }
	guarded := func(o, proposed Outcome, c float64, a Assurance) ruling {
		return ruling{Outcome: o, Proposed: proposed, Code: CodeLoopGuard, C: c, Assurance: a, By: ByPolicy}
	}

	tests := []struct {
		name     string
		opinions []Opinion
		rubric   Rubric
		review   bool
		nowhere  bool // no target was determined
		want     ruling
	}{
		// Combination, assurance, decidedBy.
		{"nothing to check", []Opinion{legal()}, rubric(), false, false, yes(1, AssuranceNone, LayerTransition)},
		{"nobody spoke at all", nil, rubric(), false, false, yes(1, AssuranceNone, LayerTransition)},
		{"fields pass", []Opinion{legal(), passes(LayerFields)}, rubric(), false, false, yes(1, AssuranceStructural, LayerFields)},
		{"fields and schema: tie to fields", []Opinion{legal(), passes(LayerFields), passes(LayerSchema)}, rubric(), false, false, yes(1, AssuranceStructural, LayerFields)},
		{"fields and state: tie to state", []Opinion{legal(), passes(LayerFields), passes(LayerState)}, rubric(), false, false, yes(1, AssuranceStructural, LayerState)},
		{"seed: submit with all fields, strict", []Opinion{legal(), passes(LayerState)}, rubric(strict), false, false, yes(1, AssuranceStructural, LayerState)},
		{"seed: approve with good comments", []Opinion{legal(), valid(1)}, rubric(strict), false, false, yes(1, AssuranceValidators, LayerScript)},
		{"script and state: tie to script", []Opinion{legal(), valid(1), passes(LayerState)}, rubric(), false, false, yes(1, AssuranceValidators, LayerScript)},
		{"a route alone examines nothing", []Opinion{legal(), routed(1)}, rubric(), false, false, yes(1, AssuranceNone, LayerScript)},
		{"a route beside fields", []Opinion{legal(), passes(LayerFields), routed(0)}, rubric(), false, false, yes(1, AssuranceStructural, LayerScript)},
		{"an unsure validator caps", []Opinion{legal(), passes(LayerFields), valid(0.9), passes(LayerState)}, rubric(strict), false, false, yes(0.9, AssuranceValidators, LayerScript)},
		{"model agrees less surely", []Opinion{legal(), passes(LayerFields), valid(1), model(0.85)}, rubric(strict, useLLM), false, false, yes(0.85, AssuranceLLM, LayerModel)},
		{"model agrees more surely than the validator", []Opinion{legal(), valid(0.8), model(0.9)}, rubric(strict, useLLM), false, false, yes(0.8, AssuranceLLM, LayerScript)},
		{"tie of validator and model", []Opinion{legal(), valid(0.85), model(0.85)}, rubric(useLLM), false, false, yes(0.85, AssuranceLLM, LayerModel)},
		{"calibrated model", []Opinion{legal(), calibrated(0.95)}, rubric(strict, useLLM, high), false, false, yes(0.95, AssuranceLLMCalibrated, LayerModel)},

		// Rejections.
		{"illegal", []Opinion{objects(LayerTransition, 1, "illegal_action")}, rubric(), true, true, no("illegal_action", 1, AssuranceNone, LayerTransition)},
		{"fields missing", []Opinion{legal(), objects(LayerFields, 1, "required_field")}, rubric(), true, false, no("required_field", 1, AssuranceStructural, LayerFields)},
		{"fields pass, schema objects", []Opinion{legal(), passes(LayerFields), objects(LayerSchema, 1, "schema")}, rubric(), false, false, no("schema", 1, AssuranceStructural, LayerSchema)},
		{"both object", []Opinion{legal(), objects(LayerFields, 1, "required_field"), objects(LayerSchema, 1, "schema")}, rubric(), false, false, no("required_field", 1, AssuranceStructural, LayerFields)},
		{"validator rejects with its confidence", []Opinion{legal(), passes(LayerFields), objects(LayerScript, 0.7, CodeValidatorRejected)}, rubric(strict), true, false, no(CodeValidatorRejected, 0.7, AssuranceValidators, LayerScript)},
		{"the surest of several rejections leads", []Opinion{legal(), objects(LayerFields, 0.4, "a"), objects(LayerSchema, 0.6, "b")}, rubric(), false, false, no("b", 0.6, AssuranceStructural, LayerSchema)},
		{"validator throws", []Opinion{legal(), passes(LayerFields), fault}, rubric(), true, false, faulty(no(CodeValidatorError, 1, AssuranceStructural, LayerScript))},
		{"no route", []Opinion{legal(), objects(LayerScript, 1, CodeNoRoute)}, rubric(), true, true, no(CodeNoRoute, 1, AssuranceValidators, LayerScript)},
		{"state refuses after a sure validator", []Opinion{legal(), valid(1), objects(LayerState, 1, "frozen")}, rubric(), false, false, no("frozen", 1, AssuranceValidators, LayerState)},
		{"model rejects what scripts approve", []Opinion{legal(), valid(1), objects(LayerModel, 0.55, "criterion_not_met")}, rubric(useLLM), true, false, no("criterion_not_met", 0.55, AssuranceLLM, LayerModel)},
		{"content escalates", []Opinion{legal(), valid(1), suspicious}, rubric(useLLM), true, false, ruling{Escalate, Escalate, "boilerplate", 0.9, AssuranceValidators, LayerContent, false, false, false, 0, 0}},
		{"content escalates, nobody there", []Opinion{legal(), valid(1), suspicious}, rubric(useLLM), false, false, proposed(Escalate, no("boilerplate", 0.9, AssuranceValidators, LayerContent))},

		{"content finds no trap: that is no structure", []Opinion{legal(), passes(LayerContent), troubled(TroubleUnavailable)}, rubric(useLLM), false, false, warned(2, degraded(yes(0.5, AssuranceNone, ByFallback)))},
		{"content finds no trap, the model agrees", []Opinion{legal(), passes(LayerContent), model(0.85)}, rubric(useLLM), false, false, yes(0.85, AssuranceLLM, LayerModel)},

		// strictMode and minConfidence.
		{"strict, too unsure", []Opinion{legal(), valid(0.6)}, rubric(strict), false, false, denied(Reject, CodeLowConfidence, 0.6, AssuranceValidators)},
		{"strict, too unsure, review path", []Opinion{legal(), valid(0.6)}, rubric(strict), true, false, denied(Escalate, CodeLowConfidence, 0.6, AssuranceValidators)},
		{"strict, exactly sure enough", []Opinion{legal(), valid(0.8)}, rubric(strict), false, false, yes(0.8, AssuranceValidators, LayerScript)},
		{"not strict, too unsure: a warning", []Opinion{legal(), valid(0.6)}, rubric(), false, false, warned(1, yes(0.6, AssuranceValidators, LayerScript))},
		{"strict with a bar of 0", []Opinion{legal(), valid(0)}, rubric(strict, atLeast(0)), false, false, yes(0, AssuranceValidators, LayerScript)},
		{"strict with a bar of 1, calibrated 0.99", []Opinion{legal(), calibrated(0.99)}, rubric(strict, useLLM, atLeast(1)), false, false, denied(Reject, CodeLowConfidence, 0.99, AssuranceLLMCalibrated)},
		{"disabled drops the bar", []Opinion{legal(), valid(0.1)}, rubric(strict, disabled), false, false, yes(0.1, AssuranceValidators, LayerScript)},
		{"disabled keeps the deterministic no", []Opinion{legal(), objects(LayerFields, 1, "required_field")}, rubric(disabled), false, false, no("required_field", 1, AssuranceStructural, LayerFields)},
		{"a low confidence does not turn a rejection", []Opinion{legal(), objects(LayerScript, 0.1, CodeValidatorRejected)}, rubric(strict), true, false, no(CodeValidatorRejected, 0.1, AssuranceValidators, LayerScript)},

		// requireAssurance and risk.
		{"assurance too low", []Opinion{legal()}, rubric(require(AssuranceStructural)), false, false, denied(Reject, CodeAssuranceTooLow, 1, AssuranceNone)},
		{"assurance too low, review path", []Opinion{legal(), valid(1)}, rubric(require(AssuranceLLM)), true, false, denied(Escalate, CodeAssuranceTooLow, 1, AssuranceValidators)},
		{"assurance just enough", []Opinion{legal(), passes(LayerFields)}, rubric(require(AssuranceStructural)), false, false, yes(1, AssuranceStructural, LayerFields)},
		{"a route is no structure", []Opinion{legal(), routed(0)}, rubric(require(AssuranceStructural)), false, false, denied(Reject, CodeAssuranceTooLow, 1, AssuranceNone)},
		{"disabled keeps requireAssurance", []Opinion{legal(), passes(LayerFields)}, rubric(disabled, require(AssuranceValidators)), false, false, denied(Reject, CodeAssuranceTooLow, 1, AssuranceStructural)},
		{"disabled keeps risk", []Opinion{legal(), valid(1)}, rubric(disabled, high), true, false, denied(Escalate, CodeAssuranceTooLow, 1, AssuranceValidators)},
		{"a plain model is not enough for high risk", []Opinion{legal(), model(0.89)}, rubric(useLLM, high), true, false, denied(Escalate, CodeAssuranceTooLow, 0.89, AssuranceLLM)},
		{"risk does not lower requireAssurance", []Opinion{legal(), calibrated(0.9)}, rubric(useLLM, high, require(AssuranceHuman)), true, false, denied(Escalate, CodeAssuranceTooLow, 0.9, AssuranceLLMCalibrated)},
		{"assurance before confidence", []Opinion{legal(), valid(0.5)}, rubric(strict, require(AssuranceLLM)), false, false, denied(Reject, CodeAssuranceTooLow, 0.5, AssuranceValidators)},

		// External trouble.
		{"not configured, strict", []Opinion{legal(), passes(LayerState), troubled(TroubleNotConfigured)}, rubric(strict, useLLM), false, false, denied(Reject, CodeJudgeNotConfigured, 1, AssuranceStructural)},
		{"not configured, strict, review path", []Opinion{legal(), troubled(TroubleNotConfigured)}, rubric(strict, useLLM), true, false, denied(Escalate, CodeJudgeNotConfigured, 1, AssuranceNone)},
		{"not configured, not strict: fallback", []Opinion{legal(), valid(1), troubled(TroubleNotConfigured)}, rubric(useLLM), false, false, warned(2, degraded(yes(0.5, AssuranceValidators, ByFallback)))},
		{"fallback is never surer than the rest", []Opinion{legal(), valid(0.3), troubled(TroubleUnavailable)}, rubric(useLLM), false, false, warned(2, degraded(yes(0.3, AssuranceValidators, ByFallback)))},
		{"unavailable, escalate, nobody there", []Opinion{legal(), troubled(TroubleUnavailable)}, rubric(useLLM, strict), false, false, retry(denied(Reject, CodeJudgeUnavailable, 1, AssuranceNone))},
		{"unavailable, escalate, review path", []Opinion{legal(), troubled(TroubleUnavailable)}, rubric(useLLM, strict), true, false, retry(denied(Escalate, CodeJudgeUnavailable, 1, AssuranceNone))},
		{"unavailable, reject despite a review path", []Opinion{legal(), valid(0.9), troubled(TroubleUnavailable)}, rubric(useLLM, unavailable(UnavailableReject)), true, false, retry(denied(Reject, CodeJudgeUnavailable, 0.9, AssuranceValidators))},
		{"fallback cannot find a quote in the evidence", []Opinion{legal(), valid(1), troubled(TroubleUnavailable)}, rubric(useLLM, evidenceOnly), true, false, retry(denied(Reject, CodeJudgeUnavailable, 1, AssuranceValidators))},
		{"no model to find one", []Opinion{legal(), valid(1), troubled(TroubleNotConfigured)}, rubric(useLLM, evidenceOnly), true, false, denied(Reject, CodeJudgeNotConfigured, 1, AssuranceValidators)},
		{"it was found", []Opinion{legal(), valid(1), model(0.9)}, rubric(useLLM, evidenceOnly), false, false, yes(0.9, AssuranceLLM, LayerModel)},
		{"fallback under strict needs the judge back", []Opinion{legal(), valid(1), troubled(TroubleUnavailable)}, rubric(useLLM, strict, unavailable(UnavailableStructural)), false, false, retry(denied(Reject, CodeJudgeUnavailable, 0.5, AssuranceValidators))},
		{"fallback cannot give the assurance of a model", []Opinion{legal(), valid(1), troubled(TroubleUnavailable)}, rubric(useLLM, require(AssuranceLLM)), true, false, retry(denied(Escalate, CodeJudgeUnavailable, 0.5, AssuranceValidators))},
		{"high risk never falls back", []Opinion{legal(), valid(1), troubled(TroubleNotConfigured)}, rubric(useLLM, high), false, false, denied(Reject, CodeJudgeNotConfigured, 0.5, AssuranceValidators)},

		// Trouble that the case can cause.
		{"unreadable, not strict", []Opinion{legal(), valid(1), troubled(TroubleUnreadable)}, rubric(useLLM), true, false, retry(ruling{Escalate, Escalate, CodeJudgeUnreadable, 0.5, AssuranceValidators, LayerModel, false, false, false, 0, 0})},
		{"unreadable, not strict, nobody there", []Opinion{legal(), valid(1), troubled(TroubleUnreadable)}, rubric(useLLM), false, false, retry(proposed(Escalate, no(CodeJudgeUnreadable, 0.5, AssuranceValidators, LayerModel)))},
		{"unreadable, strict, structural asked for", []Opinion{legal(), troubled(TroubleUnreadable)}, rubric(useLLM, strict, unavailable(UnavailableStructural)), false, false, retry(proposed(Escalate, no(CodeJudgeUnreadable, 0.5, AssuranceNone, LayerModel)))},
		{"cannot assess", []Opinion{legal(), valid(1), troubled(TroubleCannotAssess)}, rubric(useLLM), false, false, proposed(Escalate, no(CodeCannotAssess, 0.5, AssuranceValidators, LayerModel))},
		{"loop guard", []Opinion{legal(), valid(1), troubled(TroubleLoopGuard)}, rubric(useLLM), true, false, ruling{Escalate, Escalate, CodeLoopGuard, 0.5, AssuranceValidators, LayerModel, false, false, false, 0, 0}},

		// The loop guard, which counts answers that are not approvals.
		{"the second of three", []Opinion{legal(), before(1, 3, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), true, false, no("criterion_not_met", 0.7, AssuranceLLM, LayerModel)},
		{"the third of three", []Opinion{legal(), before(2, 3, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), true, false, guarded(Escalate, Reject, 0.7, AssuranceLLM)},
		{"the third of three, nobody there", []Opinion{legal(), before(2, 3, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), false, false, guarded(Reject, Reject, 0.7, AssuranceLLM)},
		{"the fifth of three", []Opinion{legal(), before(4, 3, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), true, false, guarded(Escalate, Reject, 0.7, AssuranceLLM)},
		{"the first of one", []Opinion{legal(), before(0, 1, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), true, false, guarded(Escalate, Reject, 0.7, AssuranceLLM)},
		{"the third cannot be assessed", []Opinion{legal(), valid(1), before(2, 3, troubled(TroubleCannotAssess))}, rubric(useLLM), false, false, guarded(Reject, Escalate, 0.5, AssuranceValidators)},
		{"the third is too unsure, which is no refusal", []Opinion{legal(), before(2, 3, model(0.6))}, rubric(useLLM, strict), true, false, ruling{Escalate, Approve, CodeLowConfidence, 0.6, AssuranceLLM, ByPolicy, false, false, false, 0, 0}},
		{"the third is a little unsure, not strict", []Opinion{legal(), before(2, 3, model(0.6))}, rubric(useLLM), true, false, warned(1, yes(0.6, AssuranceLLM, LayerModel))},
		{"the third is approved", []Opinion{legal(), before(2, 3, model(0.85))}, rubric(useLLM, strict), true, false, yes(0.85, AssuranceLLM, LayerModel)},
		{"the third is unreadable", []Opinion{legal(), before(2, 3, troubled(TroubleUnreadable))}, rubric(useLLM), true, false, retry(ruling{Escalate, Escalate, CodeJudgeUnreadable, 0.5, AssuranceNone, LayerModel, false, false, false, 0, 0})},
		{"the third is unavailable", []Opinion{legal(), before(2, 3, troubled(TroubleUnavailable))}, rubric(useLLM, strict), true, false, retry(denied(Escalate, CodeJudgeUnavailable, 1, AssuranceNone))},
		{"there is no limit", []Opinion{legal(), before(99, 0, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), true, false, no("criterion_not_met", 0.7, AssuranceLLM, LayerModel)},
		{"a limit that is none", []Opinion{legal(), before(0, -1, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM), true, false, no("criterion_not_met", 0.7, AssuranceLLM, LayerModel)},
		{"shadow moves what the loop guard stops", []Opinion{legal(), before(2, 3, objects(LayerModel, 0.7, "criterion_not_met"))}, rubric(useLLM, shadow), true, false, warned(1, applied(guarded(Escalate, Reject, 0.7, AssuranceLLM)))},

		// Shadow.
		{"shadow moves what fields reject", []Opinion{legal(), objects(LayerFields, 1, "required_field")}, rubric(shadow), false, false, warned(1, applied(no("required_field", 1, AssuranceStructural, LayerFields)))},
		{"shadow moves what policy denies", []Opinion{legal(), valid(0.6)}, rubric(shadow, strict), true, false, warned(1, applied(denied(Escalate, CodeLowConfidence, 0.6, AssuranceValidators)))},
		{"shadow approves", []Opinion{legal(), valid(1)}, rubric(shadow), false, false, yes(1, AssuranceValidators, LayerScript)},
		{"shadow does not move what is illegal", []Opinion{objects(LayerTransition, 1, "illegal_action")}, rubric(shadow), false, true, no("illegal_action", 1, AssuranceNone, LayerTransition)},
		{"shadow does not move without a route", []Opinion{legal(), objects(LayerScript, 1, CodeNoRoute)}, rubric(shadow), false, true, no(CodeNoRoute, 1, AssuranceValidators, LayerScript)},
		{"shadow: what binds leads", []Opinion{legal(), objects(LayerFields, 1, "required_field"), objects(LayerScript, 1, CodeNoRoute)}, rubric(shadow), false, true, no(CodeNoRoute, 1, AssuranceValidators, LayerScript)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := deliberation{opinions: tt.opinions, rubric: tt.rubric, reviewPath: tt.review, target: "next"}
			if tt.nowhere {
				h.target = ""
			}
			v := settle(h)
			if diff := cmp.Diff(tt.want, rulingOf(v)); diff != "" {
				t.Errorf("ruling (-want +got):\n%s", diff)
			}
			checkCoherent(t, v)
			h.reviewPath = true // a refusal that would have been a review explains how to turn reviews on
			could := !tt.review && settle(h).Outcome == Escalate
			if said := slices.Contains(v.Suggestions, ReviewsAreOff); said != could {
				t.Errorf("says that reviews are off: %v, want %v", said, could)
			}
		})
	}
}

// checkCoherent checks the properties that hold for every verdict.
func checkCoherent(t interface {
	Helper()
	Errorf(string, ...any)
}, v Verdict,
) {
	t.Helper()
	if !(v.Confidence >= 0 && v.Confidence <= 1) {
		t.Errorf("confidence %v is not 0..1", v.Confidence)
	}
	if v.Assurance.rank() == 0 || v.DecidedBy == "" || v.Mode == "" || v.Reasoning == "" {
		t.Errorf("incomplete verdict: %+v", v)
	}
	if v.Outcome == Approve {
		if v.Code != "" || len(v.Findings) > 0 || v.Fault || v.Proposed != Approve {
			t.Errorf("an approval that objects: %+v", v)
		}
	} else {
		if v.Code == "" || len(v.Findings) == 0 || v.Findings[0].Code != v.Code {
			t.Errorf("code %q does not stand first in %+v", v.Code, v.Findings)
		}
		if slices.Contains(v.Violations(), "") {
			t.Errorf("a finding without a message: %+v", v.Findings)
		}
	}
	if v.Applied && v.Outcome != Approve && v.Mode != Shadow {
		t.Errorf("moved against the verdict: %+v", v)
	}
	if v.RetryAfter != 0 && v.Code != CodeJudgeUnavailable && v.Code != CodeJudgeUnreadable {
		t.Errorf("retryAfter with code %q", v.Code)
	}
}

func TestBothObjectionsAreReported(t *testing.T) {
	t.Parallel()
	v := settle(deliberation{
		opinions: []Opinion{legal(), objects(LayerSchema, 1, "schema"), objects(LayerFields, 1, "required_field")},
		rubric:   rubric(), target: "next",
	})
	var codes []string
	for _, f := range v.Findings {
		codes = append(codes, f.Code)
	}
	if diff := cmp.Diff([]string{"required_field", "schema"}, codes); diff != "" {
		t.Error(diff)
	}
	// All unmet requirements of policy are reported together, too.
	v = settle(deliberation{opinions: []Opinion{legal(), valid(0.5)}, rubric: rubric(strict, require(AssuranceLLM)), target: "next"})
	if len(v.Findings) != 2 || v.Findings[1].Code != CodeLowConfidence {
		t.Errorf("findings: %+v", v.Findings)
	}
}

// The loop guard gives its reason first and keeps the other findings.
func TestLoopGuardKeepsTheFindings(t *testing.T) {
	t.Parallel()
	for _, review := range []bool{true, false} {
		v := settle(deliberation{
			opinions: []Opinion{legal(), before(2, 3, objects(LayerModel, 0.7, CodeCriterionNotMet))},
			rubric:   rubric(useLLM), reviewPath: review, target: "next",
		})
		if len(v.Findings) != 2 || v.Findings[0].Code != CodeLoopGuard || v.Findings[1].Code != CodeCriterionNotMet {
			t.Errorf("review path %v: findings %+v", review, v.Findings)
		}
		if !strings.HasPrefix(v.Reasoning, troubleMessage(TroubleLoopGuard)) || !strings.Contains(v.Findings[0].Hint, "workflow.judge.clear") {
			t.Errorf("review path %v: %s, hint %q", review, v.Reasoning, v.Findings[0].Hint)
		}
	}
}

// A question that was not asked gets a time to try again, and no advice to reword it.
func TestUnaskedQuestionGetsARetryTime(t *testing.T) {
	t.Parallel()
	spent := troubled(TroubleUnreadable)
	for wait, want := range map[time.Duration]string{
		90*time.Second - time.Millisecond: "again in 1m30s.",
		time.Millisecond:                  "again in 1s.",
		0:                                 "again with shorter, simpler data",
	} {
		spent.RetryAfter = document.Milliseconds(wait)
		v := settle(deliberation{opinions: []Opinion{legal(), spent}, rubric: rubric(useLLM), target: "next"})
		if v.RetryAfter.Duration() != wait || !strings.Contains(v.Reasoning, want) {
			t.Errorf("%v: %v %s", wait, v.RetryAfter, v.Reasoning)
		}
	}
}
