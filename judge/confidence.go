package judge

import "math"

// What a model states as its confidence is not one: verbalised confidences of judges
// are strongly overconfident (arXiv 2508.06225). Without a calibration it is drawn
// towards noEvidence, and nothing that a model says of itself makes it certain.
const (
	mostStated = 0.99
	shrinkage  = 0.8
)

// shrinkConfidence is what a stated confidence counts for without a calibration: at most 0.892.
func shrinkConfidence(stated float64) float64 {
	return roundConfidence(noEvidence + (min(clampUnit(stated), mostStated)-noEvidence)*shrinkage)
}

// roundConfidence drops digits that mean nothing: people read confidences.
func roundConfidence(c float64) float64 { return math.Round(clampUnit(c)*1e6) / 1e6 }

// leastStated and its complement bound the stated confidence before its logit is
// taken, which has no value at 0 and 1.
const leastStated = 0.001

func logit(p float64) float64 {
	p = min(max(clampUnit(p), leastStated), 1-leastStated)
	return math.Log(p / (1 - p))
}
