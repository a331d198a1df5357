package workflow

// With returns s with every field that later gives replaced by it.
func (s JudgeSettings) With(later JudgeSettings) JudgeSettings {
	overrideField(&s.Enabled, later.Enabled)
	overrideField(&s.UseLLM, later.UseLLM)
	overrideField(&s.StrictMode, later.StrictMode)
	overrideField(&s.MinConfidence, later.MinConfidence)
	overrideField(&s.Mode, later.Mode)
	overrideField(&s.OnJudgeUnavailable, later.OnJudgeUnavailable)
	overrideField(&s.RequireAssurance, later.RequireAssurance)
	overrideField(&s.Risk, later.Risk)
	overrideField(&s.Model, later.Model)
	overrideField(&s.Samples, later.Samples)
	overrideField(&s.OnEvidenceMissing, later.OnEvidenceMissing)
	overrideField(&s.Review, later.Review)
	overrideField(&s.Shared, later.Shared)
	if later.Criteria != nil {
		s.Criteria = later.Criteria
	}
	return s
}

// Without returns s with every field that other gives taken out.
func (s JudgeSettings) Without(other JudgeSettings) JudgeSettings {
	clearField(&s.Enabled, other.Enabled)
	clearField(&s.UseLLM, other.UseLLM)
	clearField(&s.StrictMode, other.StrictMode)
	clearField(&s.MinConfidence, other.MinConfidence)
	clearField(&s.Mode, other.Mode)
	clearField(&s.OnJudgeUnavailable, other.OnJudgeUnavailable)
	clearField(&s.RequireAssurance, other.RequireAssurance)
	clearField(&s.Risk, other.Risk)
	clearField(&s.Model, other.Model)
	clearField(&s.Samples, other.Samples)
	clearField(&s.OnEvidenceMissing, other.OnEvidenceMissing)
	clearField(&s.Review, other.Review)
	clearField(&s.Shared, other.Shared)
	if other.Criteria != nil {
		s.Criteria = nil
	}
	return s
}

func overrideField[T any](dst **T, later *T) {
	if later != nil {
		*dst = later
	}
}

func clearField[T any](dst **T, other *T) {
	if other != nil {
		*dst = nil
	}
}
