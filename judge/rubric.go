package judge

import (
	"errors"
	"fmt"
)

// Validate reports every setting that means nothing: an unknown word, or a
// MinConfidence that is not 0..1. Empty words stand for their defaults. Decide
// refuses a Case whose Rubric is invalid.
func (r Rubric) Validate() error {
	var errs []error
	if !(r.MinConfidence >= 0 && r.MinConfidence <= 1) {
		errs = append(errs, fmt.Errorf("minConfidence is %v, must be 0 to 1", r.MinConfidence))
	}
	switch r.Mode {
	case "", Enforce, Shadow:
	default:
		errs = append(errs, fmt.Errorf("mode %q is unknown; use %q or %q", r.Mode, Enforce, Shadow))
	}
	switch r.OnJudgeUnavailable {
	case "", UnavailableEscalate, UnavailableStructural, UnavailableReject:
	default:
		errs = append(errs, fmt.Errorf("onJudgeUnavailable %q is unknown; use %q, %q or %q",
			r.OnJudgeUnavailable, UnavailableEscalate, UnavailableStructural, UnavailableReject))
	}
	if r.RequireAssurance != "" && r.RequireAssurance.rank() == 0 {
		errs = append(errs, fmt.Errorf("requireAssurance %q is unknown; use none, structural, validators, llm, llm_calibrated or human", r.RequireAssurance))
	}
	if r.Risk != RiskNormal && r.Risk != RiskHigh {
		errs = append(errs, fmt.Errorf("risk %q is unknown; use %q or leave it out", r.Risk, RiskHigh))
	}
	return errors.Join(errs...)
}

// withDefaults gives the empty words their meaning.
func (r Rubric) withDefaults() Rubric {
	if r.Mode == "" {
		r.Mode = Enforce
	}
	if r.OnJudgeUnavailable == "" {
		r.OnJudgeUnavailable = UnavailableStructural
		if r.StrictMode {
			r.OnJudgeUnavailable = UnavailableEscalate
		}
	}
	if r.RequireAssurance == "" {
		r.RequireAssurance = AssuranceNone
	}
	return r
}

// asksModel reports whether a model is to be asked when the other layers approve.
func (r Rubric) asksModel() bool { return r.Enabled && r.UseLLM }

// required is the assurance that an approval needs.
func (r Rubric) required() Assurance {
	if r.Risk == RiskHigh {
		return stronger(r.RequireAssurance, AssuranceLLMCalibrated)
	}
	return stronger(r.RequireAssurance, AssuranceNone)
}
