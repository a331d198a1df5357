package eval

import "slices"

// Policy says what becomes of an answer of a model that could not be read.
type Policy string

// The policies.
const (
	// AsDecided takes the outcome that the pipeline made of it.
	AsDecided Policy = "as_decided"
	// AsWrong counts the worst wrong answer: an approval where the case must not be
	// approved, a rejection where it should be.
	AsWrong Policy = "as_wrong"
	// Excluded leaves the case out, and says how many were left out.
	Excluded Policy = "excluded"
)

// Options of Evaluate and Compare. The zero Options is a good one.
type Options struct {
	// Splits to take; none means all.
	Splits []Split `json:"splits,omitempty"`
	// Unreadable is AsDecided when "".
	Unreadable Policy `json:"unreadable"`
	// Pool counts every repeat as a row of its own, in its case's group. Without it the
	// first repeat that did not fail stands for the case, and the others serve the flip
	// rate alone.
	Pool bool `json:"pool,omitempty"`
	// MaxFailures is the share of cases without an outcome, 0..1, above which nothing
	// was evaluated; nil is 0.02.
	MaxFailures *float64 `json:"maxFailures"`
	// Confidence of all intervals and bounds, between 0.5 and 1; 0 is 0.95.
	Confidence float64 `json:"confidence"`
	// Resamples of the bootstrap; 0 is 2000. Seed is its seed.
	Resamples int    `json:"resamples"`
	Seed      uint64 `json:"seed"`
	// Structural are the results of the same pipeline without a model on the same cases,
	// for the baseline; none leaves that baseline out.
	Structural []Result `json:"-"`
}

// Defaults of Options.
const (
	defaultConfidence  = 0.95
	defaultResamples   = 2000
	defaultMaxFailures = 0.02
)

// maxResamples keeps a typo from taking hours.
const maxResamples = 100_000

// What a report lists at most.
const (
	maxBins   = 10 // of the reliability tables
	maxWorst  = 20
	maxSlices = 200
)

// withDefaults takes the default in place of what is out of range.
func (o Options) withDefaults() Options {
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

func (o Options) includesSplit(s Split) bool {
	return len(o.Splits) == 0 || slices.Contains(o.Splits, s)
}
