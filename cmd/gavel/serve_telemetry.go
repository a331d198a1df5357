package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/script"
)

const metricsPath = "/metrics"

type telemetryFlags struct {
	MetricsOpen bool `name:"metrics-open" help:"Let anybody read /metrics who reaches the address. Without it, operators and auditors may, with their tokens."`
}

// metered counts what a system does; sys is nil until it is open.
type metered struct {
	metrics  *telemetry.Metrics
	sys      *system
	held     atomic.Pointer[func() int]
	listener atomic.Pointer[listen.Server] // nil until it listens
}

// count makes the counters that the engine tells of what it commits.
func (m *metered) count(with equipment) {
	if m == nil {
		return
	}
	m.holding(func() int { return 0 })
	from := telemetry.Sources{
		Sandbox:  func() script.Stats { return m.sys.pool.Stats() },
		Store:    func() telemetry.StoreStats { return storeStats(m.sys.store) },
		Streams:  func() int { return (*m.held.Load())() },
		Listener: m.listenerStats,
		StreamLag: func() (int64, time.Duration) {
			lag := m.sys.engine.Feed().Lag()
			return lag.Events, lag.Time
		},
	}
	if with.model != nil {
		from.Model = with.model.client.Stats
	}
	m.metrics = telemetry.NewMetrics(readBuild().Version, from)
}

func (m *metered) holding(held func() int) { m.held.Store(&held) }

func (m *metered) listenerStats() telemetry.ListenerStats {
	server := m.listener.Load()
	if server == nil {
		return telemetry.ListenerStats{}
	}
	s := server.Stats()
	return telemetry.ListenerStats{
		Connections: s.Connections, Waiting: s.Arriving, Closed: s.EvictedConnections, Refused: s.EvictedRequests + s.Requests.Busy,
	}
}

// storeStats are a store's figures; a store in memory has none.
func storeStats(db store.Store) telemetry.StoreStats {
	s, ok := db.(*sqlitestore.Store)
	if !ok {
		return telemetry.StoreStats{}
	}
	return telemetry.StoreStats(s.Stats())
}

var watchers = []engine.Role{engine.RoleOperator, engine.RoleAuditor}

// watchersOnly lets operators and auditors of all workflows through: figures are those of
// all. It stands behind authentication.
func watchersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := auth.FromContext(r.Context()); !ok || !slices.Contains(watchers, id.Role) || id.Workflows != "" {
			sayProblem(w, http.StatusForbidden, string(engine.CodeForbidden), "Operators and auditors of all workflows may read the figures.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newHealth looks at all that is needed to decide and to record. definitions says why the
// folders of definitions are not in force as they are.
func newHealth(log *slog.Logger, sys *system, definitions func() error) *telemetry.Health {
	parts := []telemetry.Part{
		{Name: "store", Check: func(ctx context.Context) error {
			if _, err := sys.store.Load(ctx, "wf-readiness"); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if s, ok := sys.store.(*sqlitestore.Store); ok {
				return s.CheckWritable(ctx)
			}
			return nil
		}},
		{Name: "sandbox", Check: (&sandboxProbe{pool: sys.pool}).check},
		{Name: "definitions", Optional: true, Check: func(context.Context) error { return definitions() }},
	}
	if sys.model != nil {
		parts = append(parts, telemetry.Part{Name: "model", Optional: true, Check: func(context.Context) error { return modelTrouble(sys.model.client.Stats()) }})
	}
	return telemetry.NewHealth(log, parts...)
}

// sandboxProbe finds out whether workers can be started and answer. It asks one when that
// is not known, or when one ended since it was: an idle server is left alone.
type sandboxProbe struct {
	pool   *script.Pool
	trying singleflight.Group

	works atomic.Bool
	ended atomic.Uint64 // workers that had ended unasked at the last try
}

// probeTime is how long a worker may take: longer than whoever asks waits, so that a slow
// machine does not begin anew with each question.
const probeTime = 30 * time.Second

func (s *sandboxProbe) check(ctx context.Context) error {
	if s.works.Load() && s.pool.Stats().Deaths == s.ended.Load() {
		return nil
	}
	select {
	case tried := <-s.trying.DoChan("", func() (any, error) { return nil, s.try(context.WithoutCancel(ctx)) }):
		return tried.Err
	case <-ctx.Done():
	}
	if s.works.Load() { // a busy machine is late; only the end of the probe says that it fails
		return nil
	}
	return errors.New("no worker of the sandbox has answered yet")
}

func (s *sandboxProbe) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	ended := s.pool.Stats().Deaths
	err := s.pool.Probe(ctx)
	s.works.Store(err == nil)
	s.ended.Store(ended)
	return err
}

// modelTrouble says why no model would be asked now; nil when one would.
func modelTrouble(s llm.Stats) error {
	for _, m := range s.Models {
		if m.Breaker != "open" && m.Latched == "" && m.NotBefore.IsZero() {
			return nil
		}
	}
	return errors.New("every model is kept from being asked: its breaker is open, its quota is spent or its configuration is refused")
}
