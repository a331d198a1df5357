package rows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine/store"
)

// EncodeFigures returns a tally as stored; nil becomes NULL.
func EncodeFigures(t store.Tally) ([]byte, error) {
	if t == nil {
		return nil, nil
	}
	all := slices.AppendSeq(make([]*store.Figures, 0, len(t)), maps.Values(t))
	encoded, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode the figures: %w", err)
	}
	return encoded, nil
}

// AddFigures adds encoded figures to a tally. It returns false if there are none or they cannot be decoded.
func AddFigures(t store.Tally, encoded []byte) bool {
	var all []store.Figures
	if len(encoded) == 0 || json.Unmarshal(encoded, &all) != nil {
		return false
	}
	for _, f := range all {
		t.Add(f)
	}
	return true
}
