package embed

import (
	"log/slog"
	"sync"

	"github.com/gavel-mcp/gavel/internal/config"
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
	g.opts = upstream.Options{Changed: g.Announce, LookupEnv: cfg.LookupEnv, Watcher: cfg.Watcher, Version: cfg.Version, Logger: cfg.Logger}
	return g, g.Load(file)
}

// Load reads the file and the pins again. With an error nothing changes; without one the calls that
// the servers of before have in flight end.
func (g *Gateway) Load(file string) error {
	f, err := config.Load(file)
	if err != nil {
		return err
	}
	declared, err := upstream.ParseConfig(f.Section(config.SectionUpstreams))
	if err != nil {
		return err
	}
	opts := g.opts
	if opts.Pins, err = upstream.LoadPins(upstream.PinsPath(file)); err != nil {
		return err
	}
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

// Upstreams are the names of the servers.
func (g *Gateway) Upstreams() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.door.Upstreams()
}

// Close ends every session with a server. A nil Gateway has none.
func (g *Gateway) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.door.Close()
}
