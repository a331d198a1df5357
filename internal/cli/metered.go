package cli

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Meter provides the metrics of a system; sys is nil until it is open.
type Meter struct {
	Metrics  *telemetry.Metrics
	sys      *System
	sessions atomic.Pointer[func() int]
	Listener atomic.Pointer[listen.Server]     // nil until it listens
	Health   atomic.Pointer[telemetry.Health]  // nil until it serves
	Services atomic.Pointer[[]*module.Service] // nil until they are open
}

// count creates the metrics that observe the engine's commits.
func (m *Meter) count(with SystemOptions) {
	if m == nil {
		return
	}
	m.SetHeld(func() int { return 0 })
	from := telemetry.Sources{
		Sandbox:       func() script.Stats { return m.sys.Pool.Stats() },
		Store:         func() store.Stats { return StoreStats(m.sys.Store) },
		Streams:       func() int { return (*m.sessions.Load())() },
		Listener:      m.listenerStats,
		Health:        m.partReports,
		Modules:       m.writeServiceMetrics,
		ValuesRefused: func() int64 { return m.sys.Engine.Values().Refused() },
		StreamLag: func() (int64, time.Duration) {
			lag := m.sys.Engine.Feed().Lag()
			return lag.Events, lag.Time
		},
	}
	if with.Model != nil {
		from.Model = with.Model.client.Stats
	}
	if with.Reviews {
		from.Reviews = m.reviewStats
	}
	m.Metrics = telemetry.NewMetrics(ReadBuild().Version, from)
}

// SetHeld sets the function that counts open streams.
func (m *Meter) SetHeld(held func() int) { m.sessions.Store(&held) }

func (m *Meter) partReports() []telemetry.PartReport {
	health := m.Health.Load()
	if health == nil {
		return nil
	}
	return health.Parts(context.Background()) // it has a time limit of its own
}

func (m *Meter) listenerStats() telemetry.ListenerStats {
	server := m.Listener.Load()
	if server == nil {
		return telemetry.ListenerStats{}
	}
	s := server.Stats()
	return telemetry.ListenerStats{
		Connections: s.Connections, Waiting: s.Arriving, Closed: s.EvictedConnections, Refused: s.EvictedRequests + s.Requests.Busy,
	}
}

// reviewStats returns figures about the waiting reviews; false if the store does not answer in time.
func (m *Meter) reviewStats() (telemetry.ReviewStats, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewStatsTime)
	defer cancel()
	waiting, err := m.sys.Engine.WaitingReviews(ctx)
	if err != nil {
		return telemetry.ReviewStats{}, false
	}
	s := telemetry.ReviewStats{Open: waiting.Count}
	if waiting.Count > 0 {
		s.OldestAge = m.sys.Engine.Now().Sub(waiting.Since)
	}
	return s, true
}

// reviewStatsTime limits how long a scrape of the metrics waits for the figures about reviews.
const reviewStatsTime = 2 * time.Second

// StoreStats returns a store's figures; a store in memory has none.
func StoreStats(db store.Store) store.Stats {
	s, ok := db.(interface{ Stats() store.Stats })
	if !ok {
		return store.Stats{}
	}
	return s.Stats()
}

// writeServiceMetrics writes the metrics of services and extensions.
func (m *Meter) writeServiceMetrics(tell telemetry.MetricFunc) {
	m.sys.Extensions().WriteMetrics(tell)
	if all := m.Services.Load(); all != nil {
		for _, s := range *all {
			s.Metrics(tell)
		}
	}
}
