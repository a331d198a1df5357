package script

import (
	"context"
	"sync/atomic"
	"time"
)

// Meter adds up what the sandbox does for the calls that are made with its context,
// whether they end well or not. It is safe for concurrent use; a nil Meter
// counts nothing.
type Meter struct{ worked, waited atomic.Int64 }

type meterKey struct{}

// WithMeter returns a context whose calls are metered.
func WithMeter(ctx context.Context) (context.Context, *Meter) {
	m := &Meter{}
	return context.WithValue(ctx, meterKey{}, m), m
}

// MeterOf returns the meter of a context; nil when it has none.
func MeterOf(ctx context.Context) *Meter {
	m, _ := ctx.Value(meterKey{}).(*Meter)
	return m
}

// AddWorked adds time that a worker spent.
func (m *Meter) AddWorked(d time.Duration) {
	if m != nil {
		m.worked.Add(int64(d))
	}
}

func (m *Meter) addWaited(d time.Duration) {
	if m != nil {
		m.waited.Add(int64(d))
	}
}

// Worked is the time that workers have spent.
func (m *Meter) Worked() time.Duration { return time.Duration(m.worked.Load()) }

// Waited is the time that calls have waited for a worker.
func (m *Meter) Waited() time.Duration { return time.Duration(m.waited.Load()) }
