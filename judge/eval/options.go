package eval

import (
	"fmt"
	"slices"
)

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
	// Bins of the reliability table; 0 is 10.
	Bins int `json:"bins"`
	// Worst cases and Slices listed at most; 0 is 20 and 200.
	Worst  int `json:"worst"`
	Slices int `json:"slices"`
	// Structural are the results of the same pipeline without a model on the same cases,
	// for the baseline; none leaves that baseline out.
	Structural []Result `json:"-"`
}

// Defaults of Options.
const (
	defaultConfidence  = 0.95
	defaultResamples   = 2000
	defaultBins        = 10
	defaultWorst       = 20
	defaultSlices      = 200
	defaultMaxFailures = 0.02
)

// maxResamples keeps a typo from taking hours.
const maxResamples = 100_000

// Validate says what is out of range. Evaluate and Compare use the default in its place.
func (o Options) Validate() error {
	switch {
	case !slices.Contains([]Policy{"", AsDecided, AsWrong, Excluded}, o.Unreadable):
		return fmt.Errorf("eval: unreadable is %.40q; use %q, %q or %q", o.Unreadable, AsDecided, AsWrong, Excluded)
	case o.Confidence != 0 && !(o.Confidence > 0.5 && o.Confidence < 1):
		return fmt.Errorf("eval: confidence is %v; give a number between 0.5 and 1, such as 0.95", o.Confidence)
	case o.Resamples < 0 || o.Resamples > maxResamples:
		return fmt.Errorf("eval: resamples is %d; give 1 to %d, or 0 for %d", o.Resamples, maxResamples, defaultResamples)
	case o.Bins < 0 || o.Bins > 1000:
		return fmt.Errorf("eval: bins is %d; give 1 to 1000, or 0 for %d", o.Bins, defaultBins)
	case o.MaxFailures != nil && !(*o.MaxFailures >= 0 && *o.MaxFailures <= 1):
		return fmt.Errorf("eval: maxFailures is %v; give a share from 0 to 1", *o.MaxFailures)
	case o.Worst < 0 || o.Slices < 0:
		return fmt.Errorf("eval: worst is %d and slices is %d; neither may be below 0", o.Worst, o.Slices)
	}
	for _, s := range o.Splits {
		if s != Dev && s != Cal && s != Test {
			return fmt.Errorf("eval: split %.40q is unknown; use %q, %q or %q", s, Dev, Cal, Test)
		}
	}
	return nil
}

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
	if o.Bins <= 0 || o.Bins > 1000 {
		o.Bins = defaultBins
	}
	if o.Worst <= 0 {
		o.Worst = defaultWorst
	}
	if o.Slices <= 0 {
		o.Slices = defaultSlices
	}
	if o.MaxFailures == nil || !(*o.MaxFailures >= 0 && *o.MaxFailures <= 1) {
		o.MaxFailures = new(defaultMaxFailures)
	}
	return o
}

func (o Options) includesSplit(s Split) bool {
	return len(o.Splits) == 0 || slices.Contains(o.Splits, s)
}
