package document

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Milliseconds is a duration that JSON represents as a number of milliseconds, rounded to a microsecond. The
// names of such members end in Ms.
type Milliseconds time.Duration

// Duration returns m as a time.Duration.
func (m Milliseconds) Duration() time.Duration { return time.Duration(m) }

func (m Milliseconds) String() string { return m.Duration().String() }

// IsZero reports whether m is written as 0.
func (m Milliseconds) IsZero() bool { return m.Duration().Round(time.Microsecond) == 0 }

// MarshalJSON returns the number of milliseconds.
func (m Milliseconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m.Duration().Round(time.Microsecond).Microseconds())/1000, 'f', -1, 64), nil
}

// UnmarshalJSON accepts a number; null leaves m unchanged.
func (m *Milliseconds) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return fmt.Errorf("milliseconds must be a number: %w", err)
	}
	*m = Milliseconds(math.Round(n*1000) * float64(time.Microsecond))
	return nil
}
