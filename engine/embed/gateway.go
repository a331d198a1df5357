package embed

import (
	"log/slog"
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/gateway"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// Gateway offers MCP clients what other MCP servers have. Close it after what serves it.
type Gateway struct {
	*gateway.Gateway
	opts upstream.Options

	mu   sync.Mutex
	door *upstream.Manager
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

// OpenGateway reads the section upstreams of a configuration file, and the pins next to the file.
// No server is started. The error is document.Errors where the file has mistakes.
func OpenGateway(file string, cfg GatewayConfig) (*Gateway, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	g := &Gateway{Gateway: gateway.New(cfg.Logger)}
	g.opts = upstream.Options{Changed: g.Announce, LookupEnv: cfg.LookupEnv, Watcher: cfg.Watcher, Version: cfg.Version, Sealer: upstream.NewSealer(), Logger: cfg.Logger}
	return g, g.Load(file)
}

// Load reads the file and the pins again. With an error nothing changes; without one the calls that
// the servers of before have in flight end.
func (g *Gateway) Load(file string) error {
	f, err := config.Load(file)
	if err != nil {
		return err
	}
	declared, pins, err := readUpstreams(f)
	if err != nil {
		return err
	}
	sources, err := evidence.ParseConfig(f.Section(config.SectionEvidence))
	if err != nil {
		return err
	}
	if err := sources.CheckUpstreams(declared, pins); err != nil {
		return err
	}
	opts := g.opts
	opts.Pins = pins
	door, err := upstream.Open(declared, opts)
	if err != nil {
		return err
	}
	for _, warning := range door.Warnings() {
		g.opts.Logger.Warn("upstreams", "config", file, "issue", warning)
	}
	g.mu.Lock()
	before := g.door
	g.door = door
	g.mu.Unlock()
	g.Serve(door)
	before.Close()
	return nil
}

// keepStates has what servers keep with clients between two requests outlive this process, as long
// as there is the key of a store.
func (g *Gateway) keepStates(key []byte) {
	if g != nil {
		g.opts.Sealer.SetKey(record.DeriveKey(key, "gavel/upstream-state/v1"))
	}
}

// readUpstreams reads what a configuration file declares, and the pins next to it.
func readUpstreams(f *config.File) (declared upstream.Config, pins *upstream.Pins, err error) {
	if declared, err = upstream.ParseConfig(f.Section(config.SectionUpstreams)); err != nil {
		return declared, nil, err
	}
	pins, err = upstream.LoadPins(upstream.PinsPath(f.Path()))
	return declared, pins, err
}

// current is the door in force.
func (g *Gateway) current() *upstream.Manager {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.door
}

// Close ends every session with a server. A nil Gateway has none.
func (g *Gateway) Close() {
	if g != nil {
		g.current().Close()
	}
}
