package workflow

import (
	"slices"
	"strconv"

	"github.com/gavel-mcp/gavel/judge"
)

// Bounds on confidence that follow from how the judge settles.
const (
	// bestUncalibrated is the most that a model's answer counts for when it is not
	// calibrated: its own figure, at most 0.99, shrunk toward one half.
	bestUncalibrated = 0.5 + (0.99-0.5)*0.8
	// bestFallback is the most that an approval of the structural fallback has.
	bestFallback = 0.5
)

// visitRubrics visits every transition with its resolved settings.
func (d *Definition) visitRubrics(visit func(*State, *Transition, judge.Rubric)) {
	d.visitTransitions(func(s *State, t *Transition) { visit(s, t, d.resolveRubric(t.Judge, nil)) })
}

func checkModels(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		switch {
		case !r.Enabled || !r.UseLLM:
		case len(s.models) == 0:
			s.addIssue(s.settingPath(from, t, "useLLM"), "useLLM needs a model and none is configured: onJudgeUnavailable would settle every decision")
		case r.Model != "" && !slices.Contains(s.models, r.Model):
			s.addIssue(s.settingPath(from, t, "model"), "the model %s is not configured%s", quoteName(r.Model), s.suggestKnown(r.Model, s.models))
		}
	})
}

func checkCriteria(s *linter) {
	asked := false
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		asks := r.Enabled && r.UseLLM
		asked = asked || asks
		if asks {
			return
		}
		for _, given := range []struct {
			key string
			is  bool
		}{
			{"criteria", len(t.Judge.Criteria) > 0 && r.RequireAssurance != judge.AssuranceHuman}, // a reviewer goes by them
			{"reference", t.Reference != ""},
			{"exemplars", len(t.Exemplars) > 0},
			{"samples", t.Judge.Samples != nil},
		} {
			if given.is {
				s.addIssue(joinPointer(transitionPath(from.Name, t.Action), given.key), "%s has no effect where no model judges; add \"useLLM\": true", given.key)
			}
		}
	})
	if s.Judge != nil && len(s.Judge.Criteria) > 0 && !asked {
		s.addIssue("/judgeConfig/criteria", "criteria are judged by a model, and no transition uses one; add \"useLLM\": true")
	}
}

func checkApprovable(s *linter) {
	s.visitRubrics(func(from *State, t *Transition, r judge.Rubric) {
		asks := r.Enabled && r.UseLLM
		if asks && r.StrictMode && r.MinConfidence > bestUncalibrated {
			s.addIssue(s.settingPath(from, t, "minConfidence"),
				"with strictMode nothing is approved below %v, and an uncalibrated model gives at most %.3f; lower it", r.MinConfidence, bestUncalibrated)
		}
		if asks && r.StrictMode && r.OnJudgeUnavailable == judge.UnavailableStructural && r.MinConfidence > bestFallback {
			s.addIssue(s.settingPath(from, t, "onJudgeUnavailable"),
				"with strictMode nothing is approved below %v, and without the model an approval has at most %v: \"structural\" always rejects; use \"escalate\" or \"reject\"", r.MinConfidence, bestFallback)
		}
		s.checkAssurance(from, t, r)
	})
}

// checkAssurance finds a required assurance that nothing in the definition can reach.
// A person reaches any, so a requirement for a person is taken as intended.
func (s *linter) checkAssurance(from *State, t *Transition, r judge.Rubric) {
	need, key := r.RequireAssurance, "requireAssurance"
	if r.Risk == judge.RiskHigh && !need.AtLeast(judge.AssuranceLLMCalibrated) {
		need, key = judge.AssuranceLLMCalibrated, "risk"
	}
	have := s.findBestAssurance(from, t, r)
	if need == judge.AssuranceHuman || have.AtLeast(need) {
		return
	}
	why := "no layer here gives more"
	if !r.Enabled && r.UseLLM {
		why = "\"enabled\": false keeps the model from being asked"
	}
	s.addIssue(s.settingPath(from, t, key), "an approval of %s needs assurance %q and can reach at most %q: %s; only a reviewer could approve it",
		quoteName(t.Action), need, have, why)
}

// findBestAssurance is the highest assurance of an approval without a person.
func (d *Definition) findBestAssurance(from *State, t *Transition, r judge.Rubric) judge.Assurance {
	checks := d.collectChecks(from, t)
	switch {
	case r.Enabled && r.UseLLM:
		return judge.AssuranceLLMCalibrated
	case len(checks.Validators) > 0 || len(checks.Routes) > 0:
		return judge.AssuranceValidators
	case len(checks.RequiredFields) > 0 || len(checks.Schema) > 0 || t.Writes != nil:
		return judge.AssuranceStructural
	}
	for _, target := range t.Targets() {
		if v := d.StateValidators[target]; len(v.RequiredFields) > 0 || len(v.Schema) > 0 || len(d.MustPassThrough[target]) > 0 {
			return judge.AssuranceStructural
		}
	}
	return judge.AssuranceNone
}

func checkRequiredWritable(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		if t.Writes == nil {
			return
		}
		writes := newSet(t.Writes)
		for i, name := range t.RequiredFields {
			if !writes[firstField(name)] && !writes[name] {
				s.addIssue(joinPointer(transitionPath(from.Name, t.Action), "requiredFields", strconv.Itoa(i)),
					"%s is required and %s may not be written: no data can satisfy both; add it to writes", quoteName(name), quoteName(firstField(name)))
			}
		}
	})
}
