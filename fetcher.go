package gavel

import (
	"log/slog"
	"sync"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// Fetcher fetches evidence from the sources that an operator declared. Close it after the System,
// and before its Gateway.
type Fetcher = evidence.Manager

// FetcherConfig is what a Fetcher needs besides its file.
type FetcherConfig struct {
	// Watcher is a program that ends the commands of sources when this one is killed, as gavel does
	// for itself; "" leaves them to the kernel, on Linux.
	Watcher string
	// Gateway has the servers whose tools are sources. nil: one of the same file is opened when it is
	// first needed, and closed with the Fetcher.
	Gateway *Gateway
	// Logger is that Gateway's.
	Logger *slog.Logger
}

// OpenFetcher reads the section evidence of a configuration file. Nothing is fetched. The error is
// document.Errors where the file has mistakes.
func OpenFetcher(file string, cfg FetcherConfig) (*Fetcher, error) {
	f, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	declared, err := evidence.ParseConfig(f.Section(config.SectionEvidence))
	if err != nil {
		return nil, err
	}
	opts := evidence.Options{Watcher: cfg.Watcher}
	if declared.UsesUpstreams() {
		servers, pins, err := readUpstreams(f)
		if err != nil {
			return nil, err
		}
		gates, err := gate.ParseConfig(f.Section(config.SectionGates))
		if err != nil {
			return nil, err
		}
		if err := declared.CheckUpstreams(servers, pins, hasGate(gates)); err != nil {
			return nil, err
		}
		opts.Upstreams = func() (*upstream.Manager, error) { return cfg.Gateway.Door(), nil }
		if cfg.Gateway == nil {
			late := &lateGateway{file: file, cfg: GatewayConfig{Watcher: cfg.Watcher, Logger: cfg.Logger}}
			opts.Upstreams, opts.OnClose = late.open, late.close
		}
	}
	return evidence.New(declared, opts)
}

// lateGateway is a Gateway that is opened when it is needed.
type lateGateway struct {
	file string
	cfg  GatewayConfig

	mu      sync.Mutex
	gateway *Gateway
}

func (l *lateGateway) open() (*upstream.Manager, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gateway == nil {
		g, err := OpenGateway(l.file, l.cfg)
		if err != nil {
			return nil, err
		}
		l.gateway = g
	}
	return l.gateway.Door(), nil
}

func (l *lateGateway) close() { l.gateway.Close() }
