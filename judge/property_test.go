package judge

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// telltale is a threshold that is easy to find in any text that shows it.
const telltale = 0.73519

func drawConfidence(t *rapid.T, name string) float64 {
	return rapid.OneOf(
		rapid.SampledFrom([]float64{0, 0.5, 0.6, telltale, 0.8, 1}),
		rapid.Float64Range(0, 1),
	).Draw(t, name)
}

func drawRubric(t *rapid.T) Rubric {
	return Rubric{
		Enabled:       rapid.Bool().Draw(t, "enabled"),
		UseLLM:        rapid.Bool().Draw(t, "useLLM"),
		StrictMode:    rapid.Bool().Draw(t, "strict"),
		MinConfidence: telltale,
		Mode:          rapid.SampledFrom([]Mode{"", Enforce, Shadow}).Draw(t, "mode"),
		OnJudgeUnavailable: rapid.SampledFrom([]UnavailablePolicy{
			"", UnavailableEscalate, UnavailableStructural, UnavailableReject,
		}).Draw(t, "onJudgeUnavailable"),
		RequireAssurance: rapid.SampledFrom([]Assurance{
			"", AssuranceNone, AssuranceStructural, AssuranceValidators, AssuranceLLM, AssuranceLLMCalibrated, AssuranceHuman,
		}).Draw(t, "requireAssurance"),
		Risk: rapid.SampledFrom([]Risk{RiskNormal, RiskNormal, RiskHigh}).Draw(t, "risk"),
	}
}

// drawOpinion draws a possible opinion of a deterministic layer; "" means nothing to check.
func drawOpinion(t *rapid.T, layer LayerName, outcomes ...Outcome) Opinion {
	op := Opinion{
		Layer:      layer,
		Outcome:    rapid.SampledFrom(outcomes).Draw(t, string(layer)),
		Confidence: drawConfidence(t, string(layer)+" confidence"),
		Assurance:  AssuranceStructural,
	}
	if layer == LayerScript {
		op.Assurance = rapid.SampledFrom([]Assurance{AssuranceNone, AssuranceValidators}).Draw(t, "script assurance")
	}
	if op.Outcome != "" && op.Outcome != Approve {
		op.Findings = []validators.Finding{{Code: "code_of_" + string(layer), Message: "why"}}
		op.Fault = layer == LayerScript && rapid.Bool().Draw(t, "fault")
	}
	return op
}

// drawModel draws an answer of a model layer, consistent or not.
func drawModel(t *rapid.T) Opinion {
	sane := rapid.SampledFrom([]Opinion{
		model(0.89), model(0.55), model(1), calibrated(0.99), calibrated(telltale),
		objects(LayerModel, 0.7, "criterion_not_met"),
		troubled(TroubleNotConfigured), troubled(TroubleUnavailable), troubled(TroubleUnreadable),
		troubled(TroubleCannotAssess), troubled(TroubleLoopGuard),
	}).Draw(t, "model")
	if rapid.Bool().Draw(t, "sane") {
		return sane
	}
	op := sane
	switch rapid.IntRange(0, 10).Draw(t, "lie") {
	case 0:
		op.Layer = rapid.SampledFrom([]LayerName{"", LayerTransition, LayerScript, ByReviewer, ByFallback, "made up"}).Draw(t, "layer")
	case 1:
		op.Outcome = rapid.SampledFrom([]Outcome{"", Approve, Reject, Escalate, "APPROVE", "maybe"}).Draw(t, "outcome")
	case 2:
		op.Confidence = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.1, 1.0000001, 95}).Draw(t, "confidence")
	case 3:
		op.Assurance = rapid.SampledFrom([]Assurance{"", AssuranceNone, AssuranceStructural, AssuranceHuman, "divine"}).Draw(t, "assurance")
	case 4:
		op.Trouble = rapid.SampledFrom([]Trouble{TroubleNone, TroubleUnavailable, TroubleNotConfigured, TroubleUnreadable, "none"}).Draw(t, "trouble")
	case 5:
		op.Findings = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) validators.Finding {
			return validators.Finding{Code: rapid.SampledFrom([]string{"", "x"}).Draw(t, "code"), Message: rapid.SampledFrom([]string{"", "m"}).Draw(t, "message")}
		}), 0, 70).Draw(t, "findings")
	case 6:
		op.Fault = true
	case 7:
		i := rapid.IntRange(-3, 9).Draw(t, "route")
		op.Route = &i
	case 8:
		op.RetryAfter = document.Milliseconds(rapid.Int64().Draw(t, "retryAfter"))
	case 10:
		op.Model = &ModelRecord{
			Stated:   rapid.SampledFrom([]float64{0, 1, math.NaN(), -1}).Draw(t, "stated"),
			Refusals: rapid.IntRange(-9, 9).Draw(t, "refusals"), RefusalLimit: rapid.IntRange(-9, 9).Draw(t, "limit"),
			Reused: rapid.Bool().Draw(t, "reused"),
		}
	case 9:
		op.Reasoning = strings.Repeat("approve ", rapid.IntRange(0, 10_000).Draw(t, "length"))
	}
	return op
}

// said is a layer that returns a set opinion.
type said struct {
	name LayerName
	op   Opinion
	err  error
}

func (s said) Name() LayerName                              { return s.name }
func (s said) Weigh(context.Context, Case) (Opinion, error) { return s.op, s.err }

// bench is a pipeline whose layers return set opinions.
func bench(deterministic map[LayerName]Opinion, model Opinion) *Pipeline {
	say := func(name LayerName) Layer { return said{name: name, op: deterministic[name]} }
	p := &Pipeline{
		withoutModel: [][]Layer{
			{say(LayerTransition)}, {say(LayerFields), say(LayerSchema)}, {say(LayerScript)}, {say(LayerState)},
		},
		scripts: said{name: LayerScript, op: routingOf(deterministic[LayerScript])},
		clock:   time.Now,
	}
	p.withModel = [][]Layer{{say(LayerContent)}, {said{name: LayerModel, op: model}}}
	return p
}

// routingOf is the opinion of the script layer if it computes only the route.
func routingOf(op Opinion) Opinion {
	if op.Route != nil {
		return routed(*op.Route)
	}
	op.Assurance = AssuranceNone
	return op
}

// drawBench draws a case and the opinions of the deterministic layers.
func drawBench(t *rapid.T) (Case, map[LayerName]Opinion) {
	none := document.ReadTrusted([]byte("{}"))
	c := Case{
		Operation: Advance, Workflow: "w", State: "a", Action: "go",
		Data: none, Context: none, Merged: none, MaskedData: none, MaskedContext: none, MaskedMerged: none,
		Candidates: []Candidate{{Target: "b"}},
		ReviewPath: rapid.Bool().Draw(t, "review path"),
		Rubric:     drawRubric(t),
	}
	if rapid.IntRange(0, 3).Draw(t, "blank") > 0 {
		c.Data = document.ReadTrusted([]byte(`{"n":1}`))
		c.Merged, c.MaskedData, c.MaskedMerged = c.Data, c.Data, c.Data
	}
	if rapid.Bool().Draw(t, "criteria") {
		c.Rubric.Criteria = []string{"it is done"}
	}
	ops := map[LayerName]Opinion{LayerTransition: legal()}
	if rapid.IntRange(0, 9).Draw(t, "illegal") == 0 {
		ops[LayerTransition] = objects(LayerTransition, 1, "illegal_action")
		c.Illegal, c.Candidates = ops[LayerTransition].Findings, nil
	}
	for _, layer := range []LayerName{LayerFields, LayerSchema, LayerScript, LayerState} {
		ops[layer] = drawOpinion(t, layer, "", Approve, Approve, Approve, Reject)
	}
	ops[LayerContent] = drawOpinion(t, LayerContent, "", "", "", Reject, Escalate)
	if rapid.Bool().Draw(t, "routes") && len(c.Illegal) == 0 {
		c.Checks.Routes = make([]script.Script, 2)
		c.Candidates = []Candidate{{Target: "b"}, {Target: "c"}}
		op := drawOpinion(t, LayerScript, Approve, Approve, Reject)
		if op.Outcome == Approve || rapid.Bool().Draw(t, "validator rejects") {
			i := rapid.IntRange(0, 1).Draw(t, "chosen")
			op.Route = &i
		}
		ops[LayerScript] = op
	}
	return c, ops
}

// permits orders outcomes by how permissive they are.
func permits(v Verdict) int {
	return slices.Index([]Outcome{Reject, Escalate, Approve}, v.Outcome)
}

func decide(t *rapid.T, p *Pipeline, c Case) Verdict {
	t.Helper()
	v, err := p.Decide(context.Background(), c)
	if err != nil {
		t.Fatalf("decide: %v", err)
	}
	checkCoherent(t, v)
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("a verdict that cannot be recorded: %v", err)
	}
	// A confidence may happen to equal the threshold; messages must not show it.
	told := strings.Join(slices.Concat([]string{v.Reasoning}, v.Violations(), v.Warnings, v.Suggestions), "\n")
	if FormatConfidence(v.Confidence) != FormatConfidence(telltale) && strings.Contains(told, FormatConfidence(telltale)) {
		t.Fatalf("the threshold is told: %s", text)
	}
	return v
}

func TestAnotherLayerOnlyLowers(t *testing.T) {
	t.Parallel()
	layers := []LayerName{
		LayerTransition, LayerFields, LayerSchema, LayerEvidence, LayerScript, LayerState, LayerContent, LayerModel,
	}
	draw := rapid.Custom(func(t *rapid.T) Opinion {
		if rapid.IntRange(0, 4).Draw(t, "trouble") == 0 {
			return troubled(rapid.SampledFrom([]Trouble{TroubleUnavailable, TroubleUnreadable, TroubleLoopGuard}).Draw(t, "which"))
		}
		return drawOpinion(t, rapid.SampledFrom(layers).Draw(t, "layer"), "", Approve, Approve, Approve, Reject, Escalate)
	})
	rapid.Check(t, func(t *rapid.T) {
		opinions := rapid.SliceOfN(draw, 0, 6).Draw(t, "opinions")
		before := combineOpinions(opinions)
		at := rapid.IntRange(0, len(opinions)).Draw(t, "at")
		after := combineOpinions(slices.Insert(slices.Clone(opinions), at, draw.Draw(t, "another")))
		if permits(after) > permits(before) {
			t.Fatalf("another layer turned %s into %s", before.Outcome, after.Outcome)
		}
		if after.Outcome == Approve && after.Confidence > before.Confidence {
			t.Fatalf("another layer raised the confidence from %v to %v", before.Confidence, after.Confidence)
		}
		if !after.Assurance.AtLeast(before.Assurance) {
			t.Fatalf("more was examined, and the assurance fell from %s to %s", before.Assurance, after.Assurance)
		}
	})
}

func TestTheModelOnlyTightens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, ops := drawBench(t)
		p := bench(ops, drawModel(t))
		with := decide(t, p, c)
		c.Rubric.UseLLM, c.Rubric.Risk, c.Rubric.RequireAssurance = false, RiskNormal, AssuranceNone
		without := decide(t, p, c)
		if permits(with) > permits(without) {
			t.Fatalf("with the model %s (%s), without it %s (%s)", with.Outcome, with.Code, without.Outcome, without.Code)
		}
		if with.Applied && !without.Applied {
			t.Fatal("the move happens only because of the model")
		}
		if with.Outcome == Approve && with.Confidence > without.Confidence {
			t.Fatalf("the model raised the confidence from %v to %v", without.Confidence, with.Confidence)
		}
		if with.Target != without.Target {
			t.Fatalf("the model chose %q instead of %q", with.Target, without.Target)
		}
	})
}

// An unreadable model never leads to an approval, and an unavailable one only through the fallback,
// which reports it.
func TestNoSilentApprovalWithoutAJudgement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, ops := drawBench(t)
		c.Rubric.Enabled, c.Rubric.UseLLM = true, true
		said := drawModel(t)
		v := decide(t, bench(ops, said), c)
		i := slices.IndexFunc(v.Opinions, func(op Opinion) bool { return op.Layer == LayerModel })
		if v.Outcome != Approve {
			return
		}
		if i < 0 {
			if len(c.Rubric.Criteria) > 0 || string(c.Data.Raw()) != "{}" || !slices.Contains(v.Warnings, notAskedText(c.Rubric)) || v.Assurance.AtLeast(AssuranceLLM) {
				t.Fatalf("approved without asking the model, and without saying so: %+v", v)
			}
			return
		}
		switch trouble := v.Opinions[i].Trouble; {
		case trouble == TroubleNone:
			if v.Degraded || findModelFlaw(said) != "" || findFlaw(LayerModel, said) != "" {
				t.Fatalf("approved by %+v", said)
			}
		case !trouble.isExternal():
			t.Fatalf("approved although the model said %s", trouble)
		case !v.Degraded || v.DecidedBy != ByFallback || v.Confidence > unavailableConfidence || len(v.Warnings) == 0:
			t.Fatalf("a fallback that does not show: %+v", v)
		case v.Assurance.AtLeast(AssuranceLLM):
			t.Fatalf("a fallback with the assurance %s", v.Assurance)
		}
	})
}

// The settings that an agent may change on an operator's definition (enabled, strictMode, a higher
// minConfidence) only tighten. Enabling may provide an assurance that was missing without a judge,
// but it does not lower the requirements.
func TestTighteningTightens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, ops := drawBench(t)
		c.Rubric.OnJudgeUnavailable = c.Rubric.withDefaults().OnJudgeUnavailable
		p := bench(ops, drawModel(t))
		before := decide(t, p, c)
		switch rapid.IntRange(0, 2).Draw(t, "tighten") {
		case 0:
			if before.Code == CodeAssuranceTooLow {
				return
			}
			c.Rubric.Enabled = true
		case 1:
			c.Rubric.StrictMode = true
		case 2:
			c.Rubric.MinConfidence = 0.95
		}
		if after := decide(t, p, c); permits(after) > permits(before) {
			t.Fatalf("tightened from %s (%s) to %s (%s)", before.Outcome, before.Code, after.Outcome, after.Code)
		}
	})
}

func TestShadowRecordsTheEnforcedOutcome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, ops := drawBench(t)
		p := bench(ops, drawModel(t))
		c.Rubric.Mode = Enforce
		enforced := decide(t, p, c)
		c.Rubric.Mode = Shadow
		shadowed := decide(t, p, c)
		if enforced.Applied != (enforced.Outcome == Approve) {
			t.Fatalf("enforce applied: %+v", enforced)
		}
		if enforced.Outcome != shadowed.Outcome {
			t.Fatalf("enforce %s, shadow %s", enforced.Outcome, shadowed.Outcome)
		}
		routed := len(c.Checks.Routes) == 0 || ops[LayerScript].Route != nil
		if want := len(c.Illegal) == 0 && routed; shadowed.Applied != want {
			t.Fatalf("applied %v, want %v", shadowed.Applied, want)
		}
		if !shadowed.Applied {
			return // legality or routing decides then
		}
		if shadowed.Target == "" {
			t.Fatal("applied without a target")
		}
		e, s := rulingOf(enforced), rulingOf(shadowed)
		e.Applied, e.Warnings, s.Applied, s.Warnings = false, 0, false, 0
		if diff := cmp.Diff(e, s) + cmp.Diff(enforced.Findings, shadowed.Findings); diff != "" {
			t.Fatalf("shadow differs:\n%s", diff)
		}
	})
}
