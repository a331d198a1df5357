package engine

import (
	"github.com/gavel-mcp/gavel/judge"
)

// costOf returns the cost of the model's opinion; nil if it is unknown or hidden.
func costOf(opinions []judge.Opinion) *float64 {
	for _, o := range opinions {
		if o.Model != nil {
			return o.Model.CostUSD
		}
	}
	return nil
}
