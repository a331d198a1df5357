package judge

import (
	"testing"
)

func TestLesson(t *testing.T) {
	t.Parallel()
	rejected, unsure := objects(LayerModel, 0.7, CodeCriterionNotMet), troubled(TroubleCannotAssess)
	again := func(op Opinion) Opinion { op.Model = &ModelRecord{Reused: true}; return op }
	type kept struct{ refused, opinion, cleared bool }
	for _, tt := range []struct {
		name   string
		op     Opinion
		rubric Rubric
		want   kept
	}{
		{"approved", model(0.85), rubric(useLLM, strict), kept{cleared: true}},
		{"approved, low, not strict", model(0.6), rubric(useLLM), kept{cleared: true}},
		{"approved, low, strict: a low confidence is no refusal", model(0.6), rubric(useLLM, strict), kept{}},
		{"approved, not enough for the risk", model(0.85), rubric(useLLM, high), kept{}},
		{"rejected", rejected, rubric(useLLM), kept{refused: true, opinion: true}},
		{"cannot assess", unsure, rubric(useLLM), kept{refused: true, opinion: true}},
		{"rejected again", again(rejected), rubric(useLLM), kept{refused: true}},
		{"cannot assess again", again(unsure), rubric(useLLM), kept{refused: true}},
		{"rejected in shadow", rejected, rubric(useLLM, shadow), kept{refused: true, opinion: true}},
		{"the third rejection", before(2, 3, rejected), rubric(useLLM), kept{refused: true, opinion: true}},
		{"the loop guard before asking", before(3, 3, troubled(TroubleLoopGuard)), rubric(useLLM), kept{}},
		{"unreadable", troubled(TroubleUnreadable), rubric(useLLM), kept{}},
		{"unavailable, refused", troubled(TroubleUnavailable), rubric(useLLM, strict), kept{}},
		{"unavailable, let pass", troubled(TroubleUnavailable), rubric(useLLM), kept{}},
		{"not configured", troubled(TroubleNotConfigured), rubric(useLLM), kept{}},
		{"no model", valid(1), rubric(), kept{}},
		{"refused by a script", objects(LayerScript, 1, CodeValidatorRejected), rubric(), kept{}},
	} {
		v := settle(deliberation{opinions: []Opinion{legal(), tt.op}, rubric: tt.rubric, reviewPath: true, target: "next"})
		got := v.Lesson()
		if (kept{got.Refused, got.Opinion != nil, got.Cleared}) != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
		if got.Opinion != nil && !isRefusal(got.Opinion) {
			t.Errorf("%s: kept what cannot be used: %+v", tt.name, got.Opinion)
		}
		// A move that is not carried out, such as a pre-check, clears nothing.
		v.Applied = false
		if v.Lesson().Cleared {
			t.Errorf("%s: a pre-check clears", tt.name)
		}
	}
}
