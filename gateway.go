package gavel

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/gateway"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// Gateway offers MCP clients what other MCP servers have. Close it after what serves it.
type Gateway struct {
	*gateway.Gateway
	opts   upstream.Options
	engine atomic.Pointer[engine.Engine]
	held   atomic.Value // heldCalls, once there is a store

	mu    sync.Mutex
	door  *upstream.Manager
	gates gate.Config
	// following ends the announcing of moves, and waits for it; nil while nothing is announced.
	following func()
}

// GatewayConfig is what a Gateway needs besides its file.
type GatewayConfig struct {
	// Watcher is a program that ends the commands of servers when this one is killed, as gavel
	// does for itself; "" leaves them to the kernel, on Linux.
	Watcher string
	Version string // of the program, for the servers
	Logger  *slog.Logger
	// LookupEnv finds variables; nil is os.LookupEnv.
	LookupEnv func(string) (string, bool)
}

// OpenGateway reads the sections upstreams and gates of a configuration file, and the pins next to
// the file. Servers that are pinned on first use are started, no others. The error is
// document.Errors where the file has mistakes.
func OpenGateway(file string, cfg GatewayConfig) (*Gateway, error) {
	g := newGateway(cfg)
	return g, g.Load(context.Background(), file)
}

// CheckGateway finds the mistakes that OpenGateway finds, and logs what it warns of. No server is
// started.
func CheckGateway(file string, cfg GatewayConfig) error {
	g := newGateway(cfg)
	door, _, err := g.open(context.Background(), file)
	if err != nil {
		return err
	}
	g.warn(file, door)
	door.Close()
	return nil
}

func newGateway(cfg GatewayConfig) *Gateway {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	g := &Gateway{Gateway: gateway.New(cfg.Logger)}
	g.opts = upstream.Options{Changed: g.Announce, LookupEnv: cfg.LookupEnv, Watcher: cfg.Watcher, Version: cfg.Version, States: clientstate.New(), Logger: cfg.Logger}
	g.opts.Engine = func() upstream.Engine {
		if e := g.engine.Load(); e != nil {
			return e
		}
		return nil
	}
	g.opts.Hold = func(call string) func() {
		held, _ := g.held.Load().(heldCalls)
		return held.hold(call)
	}
	return g
}

// Load reads the file and the pins again. With an error nothing changes; without one the calls that
// the servers of before have in flight end.
func (g *Gateway) Load(ctx context.Context, file string) error {
	take, err := g.Prepare(ctx, file)
	if err == nil {
		take()
	}
	return err
}

// Prepare is Load in two parts: it reads and checks, and take has what was read in force. What is not taken
// may be dropped.
func (g *Gateway) Prepare(ctx context.Context, file string) (take func(), err error) {
	door, gates, err := g.open(ctx, file)
	if err != nil {
		return nil, err
	}
	return func() {
		g.warn(file, door)
		g.mu.Lock()
		before := g.door
		g.door, g.gates = door, gates
		g.mu.Unlock()
		g.Serve(door)
		g.follow()
		before.Close()
		door.Learn()
	}, nil
}

func (g *Gateway) warn(file string, door *upstream.Manager) {
	for _, warning := range door.Warnings() {
		g.opts.Logger.Warn("upstreams", "config", file, "issue", warning)
	}
}

// open reads a file. No server is started.
func (g *Gateway) open(ctx context.Context, file string) (door *upstream.Manager, gates gate.Config, err error) {
	f, err := config.Load(file)
	if err != nil {
		return nil, gates, err
	}
	declared, pins, err := readUpstreams(f)
	if err != nil {
		return nil, gates, err
	}
	sources, err := evidence.ParseConfig(f.Section(config.SectionEvidence))
	if err != nil {
		return nil, gates, err
	}
	opts := g.opts
	opts.Pins = pins
	if gates, err = gate.ParseConfig(f.Section(config.SectionGates)); err != nil {
		return nil, gates, err
	}
	opts.Gates = gates
	if err := sources.CheckUpstreams(declared, pins, hasGate(gates)); err != nil {
		return nil, gates, err
	}
	if e := g.engine.Load(); e != nil {
		if err := gates.CheckIn(ctx, e, Operator); err != nil {
			return nil, gates, err
		}
	}
	door, err = upstream.Open(declared, opts)
	return door, gates, err
}

// connect has gated calls judged by an engine.
func (g *Gateway) connect(e *engine.Engine, held heldCalls) {
	if g != nil {
		held.sweep(time.Now())
		g.held.Store(held)
		g.engine.Store(e)
		g.follow()
	}
}

// shareStates has what servers keep with clients between two requests come back to any process over a
// store, as long as there is its key.
func (g *Gateway) shareStates(key []byte, counters store.Counters) {
	if g != nil {
		g.opts.States.Share(record.DeriveKey(key, "gavel/upstream-state/v1"), counters)
	}
}

func hasGate(gates gate.Config) func(tool string) bool {
	return func(tool string) bool { return gates.Of(tool) != nil }
}

// readUpstreams reads what a configuration file declares, and the pins next to it.
func readUpstreams(f *config.File) (declared upstream.Config, pins *upstream.Pins, err error) {
	if declared, err = upstream.ParseConfig(f.Section(config.SectionUpstreams)); err != nil {
		return declared, nil, err
	}
	pins, err = upstream.LoadPins(upstream.PinsPath(f.Path()))
	return declared, pins, err
}

// Gates are those in force. A nil Gateway has none.
func (g *Gateway) Gates() gate.Config {
	if g == nil {
		return gate.Config{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gates
}

// CheckGates compares the gates with the definitions that operators made, once those are loaded. The
// error is document.Errors where something does not fit.
func (s *System) CheckGates(ctx context.Context) error {
	return s.cfg.Gateway.Gates().CheckIn(ctx, s.Engine, Operator)
}

// Door is the door in force. A nil Gateway has one to nothing.
func (g *Gateway) Door() *upstream.Manager {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.door
}

// Close ends every session with a server. A nil Gateway has none.
func (g *Gateway) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	stop := g.following
	g.following = func() {}
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
	g.Door().Close()
}
