package rows

import (
	"encoding/hex"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
)

// SealColumns are the columns of a rule's seal, in the order of Seal.Targets and SealValues.
const SealColumns = `place, prev_seal, seal, mac`

// Seal holds the scanned columns of a seal.
type Seal struct {
	position        int64
	prev, hash, mac []byte
}

// Targets returns the scan targets for SealColumns.
func (s *Seal) Targets() []any { return []any{&s.position, &s.prev, &s.hash, &s.mac} }

// Decode returns the scanned seal; zero if the columns are empty.
func (s *Seal) Decode() record.RuleSeal {
	return record.RuleSeal{Position: s.position, Prev: hex.EncodeToString(s.prev), Hash: hex.EncodeToString(s.hash), MAC: hex.EncodeToString(s.mac)}
}

// SealValues returns the column values of a seal.
func SealValues(s record.RuleSeal) ([]any, error) {
	values := []any{s.Position}
	for _, text := range []string{s.Prev, s.Hash, s.MAC} {
		raw, err := hex.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("the seal: %w", err)
		}
		values = append(values, OrEmpty(raw))
	}
	return values, nil
}
