package workflow

// With returns s with every field that later gives replaced by it.
func (s JudgeSettings) With(later JudgeSettings) JudgeSettings {
	over(&s.Enabled, later.Enabled)
	over(&s.UseLLM, later.UseLLM)
	over(&s.StrictMode, later.StrictMode)
	over(&s.MinConfidence, later.MinConfidence)
	over(&s.Mode, later.Mode)
	over(&s.OnJudgeUnavailable, later.OnJudgeUnavailable)
	over(&s.RequireAssurance, later.RequireAssurance)
	over(&s.Risk, later.Risk)
	over(&s.Model, later.Model)
	over(&s.Samples, later.Samples)
	over(&s.OnEvidenceMissing, later.OnEvidenceMissing)
	over(&s.Review, later.Review)
	over(&s.Shared, later.Shared)
	if later.Criteria != nil {
		s.Criteria = later.Criteria
	}
	return s
}

// Without returns s with every field that other gives taken out.
func (s JudgeSettings) Without(other JudgeSettings) JudgeSettings {
	drop(&s.Enabled, other.Enabled)
	drop(&s.UseLLM, other.UseLLM)
	drop(&s.StrictMode, other.StrictMode)
	drop(&s.MinConfidence, other.MinConfidence)
	drop(&s.Mode, other.Mode)
	drop(&s.OnJudgeUnavailable, other.OnJudgeUnavailable)
	drop(&s.RequireAssurance, other.RequireAssurance)
	drop(&s.Risk, other.Risk)
	drop(&s.Model, other.Model)
	drop(&s.Samples, other.Samples)
	drop(&s.OnEvidenceMissing, other.OnEvidenceMissing)
	drop(&s.Review, other.Review)
	drop(&s.Shared, other.Shared)
	if other.Criteria != nil {
		s.Criteria = nil
	}
	return s
}

func over[T any](dst **T, later *T) {
	if later != nil {
		*dst = later
	}
}

func drop[T any](dst **T, other *T) {
	if other != nil {
		*dst = nil
	}
}
