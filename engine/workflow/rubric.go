package workflow

import (
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// Rubric is the judge's configuration of the definition as a whole: defaults,
// then judgeConfig, then the overlays. A transition may override it; the Case holds the
// rubric that applies.
func (d *Definition) Rubric(overlays []Overlay) judge.Rubric {
	return d.resolveRubric(JudgeSettings{}, overlays)
}

// resolveRubric resolves the settings of one transition. Overlays that are revisions of
// judgeConfig apply before the transition's own settings, tightenings after
// them: what an agent tightened binds everywhere.
func (d *Definition) resolveRubric(own JudgeSettings, overlays []Overlay) judge.Rubric {
	var base JudgeSettings
	if d.Judge != nil {
		base = *d.Judge
	}
	for _, o := range overlays {
		if !o.TightenOnly {
			base = base.With(o.Settings)
		}
	}
	s := base.With(own)
	r := judge.DefaultRubric()
	setIfGiven(&r.Enabled, s.Enabled)
	setIfGiven(&r.UseLLM, s.UseLLM)
	setIfGiven(&r.StrictMode, s.StrictMode)
	setIfGiven(&r.MinConfidence, s.MinConfidence)
	setIfGiven(&r.Mode, s.Mode)
	setIfGiven(&r.RequireAssurance, s.RequireAssurance)
	setIfGiven(&r.Risk, s.Risk)
	setIfGiven(&r.Model, s.Model)
	setIfGiven(&r.Samples, s.Samples)
	setIfGiven(&r.OnEvidenceMissing, s.OnEvidenceMissing)
	r.Criteria = joinCriteria(base.Criteria, own.Criteria)
	for _, o := range overlays {
		if o.TightenOnly {
			tightenRubric(&r, o.Settings)
		}
	}
	// Only now is it known how strict the judge is.
	r.OnJudgeUnavailable = judge.UnavailableStructural
	if r.StrictMode {
		r.OnJudgeUnavailable = judge.UnavailableEscalate
	}
	setIfGiven(&r.OnJudgeUnavailable, s.OnJudgeUnavailable)
	return r
}

// RequiredModels returns the models that transitions use with these overlays, each once
// and in the order of the document; "" is the default one.
func (d *Definition) RequiredModels(overlays []Overlay) []string {
	var names []string
	d.visitTransitions(func(_ *State, t *Transition) {
		r := d.resolveRubric(t.Judge, overlays)
		if r.Enabled && r.UseLLM && !slices.Contains(names, r.Model) {
			names = append(names, r.Model)
		}
	})
	return names
}

// resolveStartRubric returns the rubric of a start: fields, schema and state only, no
// model, and nothing that only a transition could meet.
func (d *Definition) resolveStartRubric(overlays []Overlay) judge.Rubric {
	r := d.Rubric(overlays)
	r.UseLLM, r.Criteria, r.Model, r.Samples = false, nil, "", 0
	r.RequireAssurance, r.Risk, r.OnEvidenceMissing = judge.AssuranceNone, judge.RiskNormal, ""
	return r
}

func setIfGiven[T any](dst *T, value *T) {
	if value != nil {
		*dst = *value
	}
}

// tightenRubric keeps the stricter value of the three settings that can be tightened.
func tightenRubric(r *judge.Rubric, s JudgeSettings) {
	r.Enabled = r.Enabled || s.Enabled != nil && *s.Enabled
	r.StrictMode = r.StrictMode || s.StrictMode != nil && *s.StrictMode
	if s.MinConfidence != nil {
		r.MinConfidence = max(r.MinConfidence, *s.MinConfidence)
	}
}

// joinCriteria returns each criterion once, the definition's before the transition's.
func joinCriteria(base, own []string) []string {
	var out []string
	for _, c := range slices.Concat(base, own) {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}
