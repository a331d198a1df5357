package judge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/prompts"
)

// Validate reports every invalid setting: an unknown keyword, a MinConfidence outside 0..1, Samples without
// a possible majority, an exemplar without a decision. An empty keyword means its default. Decide rejects a
// Case with an invalid Rubric.
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
	if o := r.OnEvidenceMissing; o != "" && o != Reject && o != Escalate {
		errs = append(errs, fmt.Errorf("onEvidenceMissing %q is unknown; use %q or %q", o, Reject, Escalate))
	}
	if n := r.Samples; n < 0 || n > MaxSamples || n > 1 && n%2 == 0 {
		errs = append(errs, fmt.Errorf("samples is %d; use an odd number from 1 to %d, so that there is a majority", n, MaxSamples))
	}
	if _, err := prompts.Find(r.Prompt, prompts.RecordedIDs()); r.Prompt != "" && err != nil {
		errs = append(errs, err)
	}
	for _, t := range r.Terms {
		errs = append(errs, t.Validate())
	}
	return errors.Join(append(errs, errors.Join(r.exemplarErrors()...), r.Panel.Validate())...)
}

func (r Rubric) exemplarErrors() []error {
	var errs []error
	if n := len(r.Exemplars); n > MaxExemplars {
		errs = append(errs, fmt.Errorf("there are %d exemplars; use at most %d", n, MaxExemplars))
	}
	if r.ExemplarsFrom != "" && r.ExemplarsFrom != FromHistory {
		errs = append(errs, fmt.Errorf("exemplarsFrom %.40q is unknown; use %q", r.ExemplarsFrom, FromHistory))
	}
	for i, e := range r.Exemplars {
		if !json.Valid(e.Data) {
			errs = append(errs, fmt.Errorf("exemplars[%d].data is not JSON", i))
		}
		if e.Outcome != Approve && e.Outcome != Reject {
			errs = append(errs, fmt.Errorf("exemplars[%d].outcome %.40q is unknown; use %q or %q", i, e.Outcome, Approve, Reject))
		}
	}
	return errs
}

func (r Rubric) withDefaults() Rubric {
	r.Mode = cmp.Or(r.Mode, Enforce)
	if r.OnJudgeUnavailable == "" {
		r.OnJudgeUnavailable = UnavailableStructural
		if r.StrictMode {
			r.OnJudgeUnavailable = UnavailableEscalate
		}
	}
	r.RequireAssurance = cmp.Or(r.RequireAssurance, AssuranceNone)
	return r
}

func (r Rubric) asksModel() bool { return r.Enabled && r.UseLLM }

// RequiredAssurance returns the lowest assurance that an approval needs.
func (r Rubric) RequiredAssurance() Assurance {
	if r.Risk == RiskHigh {
		return strongerAssurance(r.RequireAssurance, AssuranceLLMCalibrated)
	}
	return strongerAssurance(r.RequireAssurance, AssuranceNone)
}
