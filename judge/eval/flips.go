package eval

import "github.com/gavel-mcp/gavel/judge"

// countFlips compares the repeats of each case. An unreadable answer counts with the outcome
// that the pipeline made of it.
func (s *scored) countFlips(confidence float64) Flips {
	var f Flips
	repeated, flipped, opened := 0, 0, 0
	for _, c := range s.cases {
		n := 0
		seen := map[judge.Outcome]bool{}
		for _, r := range s.by[c.ID] {
			if !isFailed(r) {
				n++
				seen[r.Outcome] = true
			}
		}
		f.MostRepeats = max(f.MostRepeats, n)
		if n < 2 {
			continue
		}
		repeated++
		if len(seen) > 1 {
			flipped++
			if seen[judge.Approve] {
				opened++
			}
		}
	}
	f.Rate, f.Approve = newRate(flipped, repeated, confidence), newRate(opened, repeated, confidence)
	return f
}
