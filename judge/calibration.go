package judge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Calibration maps the confidence that a model states for an approval to the share of such approvals
// that are right, as measured on labelled cases. It is valid for one model, one prompt and one set of
// criteria only. It is applied if its fit is good enough: see Shortcoming.
type Calibration struct {
	// Model is the configured name of the model, as in ModelRecord.Model.
	Model string `json:"model"`
	// PromptDigest and CriteriaDigest are as in ModelRecord.
	PromptDigest   string `json:"promptDigest"`
	CriteriaDigest string `json:"criteriaDigest"`
	Platt          Platt  `json:"platt"`
	// N is the number of approvals of labelled cases that it was fitted on, at least 1.
	N int `json:"n"`
	// Approvals is the measured fit on approvals that it was not fitted on; nil if it was not
	// measured.
	Approvals *ApprovalFit `json:"approvals,omitempty"`
	// Dataset names the labelled cases, Fitted the date of the fit; both are for people.
	Dataset string `json:"dataset,omitempty"`
	Fitted  string `json:"fitted,omitempty"`
}

// ApprovalFit compares calibrated confidences with the share of approvals that are right, over
// approvals of labelled cases that nothing was fitted on.
type ApprovalFit struct {
	N int `json:"n"`
	// Groups is the number of groups of similar cases among them.
	Groups int `json:"groups"`
	// Mean is the mean calibrated confidence. Right is the share that is right, RightLow the lower end of
	// its two-sided 95 % interval, which counts each group as one draw.
	Mean     float64 `json:"mean"`
	Right    float64 `json:"right"`
	RightLow float64 `json:"rightLow"`
	// ECE is the expected calibration error.
	ECE float64 `json:"ece"`
}

// Requirements on a fit before a confidence counts as calibrated.
const (
	minFitGroups  = 30
	maxFitError   = 0.1
	maxOverstated = 0.1
)

// Shortcoming returns why the calibration is not good enough to be applied, "" if it is. Its fit must be
// measured on approvals in at least 30 groups, with an ECE of at most 0.1. The mean confidence must exceed
// the lower bound of the right share (RightLow) by at most 0.1.
func (c Calibration) Shortcoming() string {
	f := c.Approvals
	if f == nil {
		return "its fit on approvals was not measured; run gavel eval calibrate again"
	}
	switch over := f.Mean - f.RightLow; {
	case f.Groups < minFitGroups:
		return fmt.Sprintf("it was measured on approvals in %d groups, fewer than %d", f.Groups, minFitGroups)
	case f.ECE > maxFitError:
		return fmt.Sprintf("its ECE on approvals is %.3f, more than %v", f.ECE, maxFitError)
	case over > maxOverstated:
		return fmt.Sprintf("it may overstate approvals by %.3f, more than %v: %.3f on average, while %.3f are right, at least %.3f", over, maxOverstated, f.Mean, f.Right, f.RightLow)
	}
	return ""
}

func (f ApprovalFit) validate(path string) error {
	var errs []error
	if f.N < 1 || f.Groups < 1 || f.Groups > f.N {
		errs = append(errs, fmt.Errorf("%s: n is %d and groups is %d; there must be approvals, and no more groups than these", path, f.N, f.Groups))
	}
	for _, v := range []struct {
		name  string
		share float64
	}{{"mean", f.Mean}, {"right", f.Right}, {"rightLow", f.RightLow}, {"ece", f.ECE}} {
		if !(v.share >= 0 && v.share <= 1) {
			errs = append(errs, fmt.Errorf("%s.%s: is %v, must be 0 to 1", path, v.name, v.share))
		}
	}
	if f.RightLow > f.Right {
		errs = append(errs, fmt.Errorf("%s.rightLow: is %v, must not be above right (%v)", path, f.RightLow, f.Right))
	}
	return errors.Join(errs...)
}

// Platt is a sigmoid over the log-odds of the stated confidence r (Platt 1999, "Probabilistic Outputs for
// Support Vector Machines"). In the paper's notation, a negative A means that a higher r is better:
//
//	c = 1 / (1 + exp(A*logit(r) + B)), r held between 0.001 and 0.999
//
// A = -1, B = 0 leaves r unchanged. A above 0 is rejected: a model that is wrong more often when it is
// more certain cannot be calibrated.
type Platt struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// Apply returns the calibrated confidence, 0..1, for a stated one. The Calibration must be valid. A
// stated value outside 0..1 counts as the nearer end.
func (c Calibration) Apply(stated float64) float64 {
	return 1 / (1 + math.Exp(c.Platt.A*LogOdds(stated)+c.Platt.B))
}

func (c Calibration) validate(path string) error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", path, field, fmt.Sprintf(format, args...)))
	}
	if c.Model == "" {
		wrong("model", "is empty; name the configured model")
	}
	if c.PromptDigest == "" {
		wrong("promptDigest", "is empty; a calibration holds for one prompt only")
	}
	if c.CriteriaDigest == "" {
		wrong("criteriaDigest", "is empty; a calibration holds for one set of criteria only")
	}
	if c.N < 1 {
		wrong("n", "is %d; set it to the number of labelled cases in the fit, at least 1", c.N)
	}
	if c.Approvals != nil {
		errs = append(errs, c.Approvals.validate(path+".approvals"))
	}
	errs = append(errs, c.Platt.validate(path+".platt"))
	return errors.Join(errs...)
}

func (p Platt) validate(path string) error {
	switch {
	case !isFinite(p.A) || !isFinite(p.B):
		return fmt.Errorf("%s: a is %v and b is %v; both must be finite numbers", path, p.A, p.B)
	case p.A > 0:
		return fmt.Errorf("%s.a: is %v; above 0 the model would be trusted less the surer it is (in 1/(1+exp(a*logit(r)+b)) a must not be above 0)", path, p.A)
	}
	return nil
}

func isFinite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

type binding struct{ model, prompt, criteria string }

type boundCalibration struct {
	Calibration
	digest string
}

// Calibrations holds all calibrations that an operator configured. A nil value is empty.
type Calibrations struct {
	bound map[binding]boundCalibration
	hash  string
}

// NewCalibrations returns the calibrations. Each must be valid, and no two may have the same model, prompt
// and criteria. The error reports every problem and where it is.
func NewCalibrations(all []Calibration) (*Calibrations, error) {
	c := &Calibrations{bound: make(map[binding]boundCalibration, len(all))}
	var errs []error
	first := make(map[binding]int, len(all))
	digests := make([]string, 0, len(all))
	for i, one := range all {
		path := fmt.Sprintf("calibrations[%d]", i)
		if err := one.validate(path); err != nil {
			errs = append(errs, err)
			continue
		}
		at := binding{one.Model, one.PromptDigest, one.CriteriaDigest}
		if before, taken := first[at]; taken {
			errs = append(errs, fmt.Errorf("%s: same model, promptDigest and criteriaDigest as calibrations[%d]; remove one", path, before))
			continue
		}
		first[at] = i
		digest, err := digestOf(one)
		if err != nil {
			return nil, err
		}
		c.bound[at] = boundCalibration{one, digest}
		digests = append(digests, digest)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("judge: calibrations: %w", err)
	}
	slices.SortFunc(digests, cmp.Compare[string])
	var err error
	c.hash, err = digestOf(digests)
	return c, err
}

// Hash returns a digest of all calibrations, "" if there are none. A verdict made under another
// hash must be judged again.
func (c *Calibrations) Hash() string {
	if c == nil || len(c.bound) == 0 {
		return ""
	}
	return c.hash
}

// All returns the calibrations, sorted by model, prompt and criteria.
func (c *Calibrations) All() (all []Calibration) {
	if c == nil {
		return nil
	}
	for _, one := range c.bound {
		all = append(all, one.Calibration)
	}
	slices.SortFunc(all, func(a, b Calibration) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.PromptDigest, b.PromptDigest), cmp.Compare(a.CriteriaDigest, b.CriteriaDigest))
	})
	return all
}

// Shortcomings lists the calibrations that are not good enough to be applied, with the reasons.
func (c *Calibrations) Shortcomings() (all []string) {
	if c == nil {
		return nil
	}
	for _, one := range c.bound {
		if why := one.Shortcoming(); why != "" {
			all = append(all, fmt.Sprintf("the calibration of %s for the prompt %s and the criteria %s is not applied: %s", one.Model, one.PromptDigest, one.CriteriaDigest, why))
		}
	}
	slices.Sort(all)
	return all
}

// confidence returns the calibrated confidence of an approval, with the digest of the calibration. If
// none applies, it returns the shrunk confidence and "". why is the shortcoming of a matching
// calibration that was not applied.
func (c *Calibrations) confidence(asked ModelRecord) (confidence float64, digest, why string) {
	if c != nil {
		if one, ok := c.bound[binding{asked.Model, asked.PromptDigest, asked.CriteriaDigest}]; ok {
			if why = one.Shortcoming(); why == "" {
				return roundConfidence(one.Apply(asked.Stated)), one.digest, ""
			}
		}
	}
	return shrinkConfidence(asked.Stated), "", why
}

func digestOf(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("judge: digest a calibration: %w", err)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

const calibrationsVersion = 1

// ParseCalibrations reads a file of calibrations:
//
//	{"v": 1, "calibrations": [{"model": "gpt-5-mini", "promptDigest": "sha256:…",
//	  "criteriaDigest": "sha256:…", "platt": {"a": -0.7, "b": 0.2}, "n": 240,
//	  "dataset": "reviews", "fitted": "2026-11-20",
//	  "approvals": {"n": 160, "groups": 120, "mean": 0.86, "right": 0.88, "rightLow": 0.81, "ece": 0.04}}]}
//
// It is strict: unknown, missing and duplicate keys, null, and meaningless values are errors that name
// their place. A file that is not understood must not pass for one without calibrations.
func ParseCalibrations(data []byte) (*Calibrations, error) {
	file, err := document.Parse("calibrations.json", data, document.Limits{Bytes: len(data) + 1})
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	r := document.NewObject(file)
	version := r.IntPtr("v")
	var all []Calibration
	for _, item := range r.Items("calibrations") {
		all = append(all, readCalibration(r.Sub(item)))
	}
	r.Require("v", "calibrations")
	r.Unknown()
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	if *version != calibrationsVersion {
		return nil, fmt.Errorf("judge: calibrations: v: is %d; this program reads %d", *version, calibrationsVersion)
	}
	return NewCalibrations(all)
}

func readCalibration(r *document.ObjectReader) Calibration {
	c := Calibration{
		Model: r.String("model"), PromptDigest: r.String("promptDigest"), CriteriaDigest: r.String("criteriaDigest"),
		N: orZero(r.IntPtr("n")), Dataset: r.String("dataset"), Fitted: r.String("fitted"),
	}
	if f := r.Object("approvals"); f != nil {
		c.Approvals = &ApprovalFit{
			N: orZero(f.IntPtr("n")), Groups: orZero(f.IntPtr("groups")),
			Mean: orZero(f.FloatPtr("mean")), Right: orZero(f.FloatPtr("right")), RightLow: orZero(f.FloatPtr("rightLow")), ECE: orZero(f.FloatPtr("ece")),
		}
		f.Require("n", "groups", "mean", "right", "rightLow", "ece")
		f.Unknown()
	}
	if p := r.Object("platt"); p != nil {
		c.Platt = Platt{A: orZero(p.FloatPtr("a")), B: orZero(p.FloatPtr("b"))}
		p.Require("a", "b")
		p.Unknown()
	}
	r.Require("model", "promptDigest", "criteriaDigest", "platt", "n")
	r.Unknown()
	return c
}

// orZero returns the number, or 0 if it is absent, which Require reports.
func orZero[N int | float64](n *N) (number N) {
	if n != nil {
		number = *n
	}
	return number
}

// A model's stated confidence is not a measured one: verbalised confidences of judges are strongly
// overconfident (arXiv 2508.06225). Without a calibration it is limited to maxStated and shrunk towards
// noEvidence: what a model says about itself makes nothing certain.
const (
	maxStated = 0.99
	shrinkage = 0.8
)

// shrinkConfidence returns the uncalibrated confidence for a stated one, at most 0.892.
func shrinkConfidence(stated float64) float64 {
	return roundConfidence(unavailableConfidence + (min(clampUnit(stated), maxStated)-unavailableConfidence)*shrinkage)
}

// StatedFor formats the lowest confidence that an uncalibrated model has to state to count as c after
// shrinking, rounded up to three decimals.
func StatedFor(c float64) string {
	return strconv.FormatFloat(math.Ceil((unavailableConfidence+(c-unavailableConfidence)/shrinkage)*1000-1e-6)/1000, 'f', -1, 64)
}

func roundConfidence(c float64) float64 { return math.Round(clampUnit(c)*1e6) / 1e6 }

// MinStated and its complement limit a stated confidence: its log-odds are undefined at 0 and 1.
const MinStated = 0.001

// LogOdds returns the log-odds of a stated confidence, limited to MinStated and its complement.
func LogOdds(p float64) float64 {
	p = min(max(clampUnit(p), MinStated), 1-MinStated)
	return math.Log(p / (1 - p))
}
