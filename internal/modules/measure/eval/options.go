package eval

import "slices"

// Policy determines how an unreadable answer of a model counts.
type Policy string

// The policies.
const (
	// AsDecided uses the outcome that the pipeline decided.
	AsDecided Policy = "as_decided"
	// AsWrong counts the answer as the worst wrong outcome: an approval if the case must not be approved, otherwise a
	// rejection.
	AsWrong Policy = "as_wrong"
	// Excluded leaves the case out; the report counts how many were left out.
	Excluded Policy = "excluded"
)

// Options configures Evaluate and Compare. The zero value has sensible defaults.
type Options struct {
	// Splits selects cases by split; empty means all.
	Splits []Split `json:"splits,omitempty"`
	// Unreadable is the policy for unreadable answers; "" is AsDecided.
	Unreadable Policy `json:"unreadable"`
	// MaxFailures is the maximum share of cases without an outcome, 0..1; above it, the run counts as not evaluated.
	// nil means 0.02.
	MaxFailures *float64 `json:"maxFailures"`
	// Confidence of all intervals and bounds, between 0.5 and 1; 0 is 0.95.
	Confidence float64 `json:"confidence"`
	// Resamples is the number of resamples of the bootstrap; 0 is 2000. Seed is its seed.
	Resamples int    `json:"resamples"`
	Seed      uint64 `json:"seed"`
	// Structural holds the results of the same pipeline without a model on the same cases, for the structural
	// baseline; empty omits that baseline.
	Structural []Result `json:"-"`
}

// Defaults of Options.
const (
	defaultConfidence  = 0.95
	defaultResamples   = 2000
	defaultMaxFailures = 0.02
)

// maxResamples keeps a mistyped number from running for hours.
const maxResamples = 100_000

// Limits of the lists in a report.
const (
	maxBins   = 10 // of the reliability tables
	maxWorst  = 20
	maxSlices = 200
)

// WithDefaults replaces values out of range by their defaults.
func (o Options) WithDefaults() Options {
	if o.Unreadable != AsWrong && o.Unreadable != Excluded {
		o.Unreadable = AsDecided
	}
	if !(o.Confidence > 0.5 && o.Confidence < 1) {
		o.Confidence = defaultConfidence
	}
	if o.Resamples <= 0 || o.Resamples > maxResamples {
		o.Resamples = defaultResamples
	}
	if o.MaxFailures == nil || !(*o.MaxFailures >= 0 && *o.MaxFailures <= 1) {
		o.MaxFailures = new(defaultMaxFailures)
	}
	return o
}

// IncludesSplit reports whether cases of a split are selected.
func (o Options) IncludesSplit(s Split) bool {
	return len(o.Splits) == 0 || slices.Contains(o.Splits, s)
}
