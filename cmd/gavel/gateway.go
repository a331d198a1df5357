package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/gavel-mcp/gavel/engine/embed"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// openGateway reads what other MCP servers a configuration file declares: those that it declares
// later are taken over. It is nil without a file. No server is started.
func (f configFlag) openGateway(log *slog.Logger) (*embed.Gateway, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	return loadGateway(f.Config, embed.GatewayConfig{Watcher: thisProgram(), Version: readBuild().Version, Logger: log})
}

func loadGateway(path string, cfg embed.GatewayConfig) (*embed.Gateway, error) {
	g, err := embed.OpenGateway(path, cfg)
	if err != nil {
		return nil, badConfig(err)
	}
	return g, nil
}

// checkUpstreams finds what can be told of a file's section upstreams without the environment, and
// logs what it warns of.
func checkUpstreams(path string, log *slog.Logger) error {
	g, err := loadGateway(path, embed.GatewayConfig{
		Logger: log, LookupEnv: func(string) (string, bool) { return "x", true },
	})
	g.Close()
	return err
}

// gatewayWatch takes over changed upstreams and pins while a server runs.
type gatewayWatch struct {
	log      *slog.Logger
	gateway  *embed.Gateway // nil: there is nothing to take over
	path     string
	inForce  string // the section and the pins that were read last
	lastSeen [2]stamp
	lastRead [2]stamp
}

func newGatewayWatch(log *slog.Logger, g *embed.Gateway, path string) *gatewayWatch {
	w := &gatewayWatch{log: log, gateway: g, path: path}
	if g != nil {
		w.lastRead, w.inForce = w.stamps(), w.read()
		w.lastSeen = w.lastRead
	}
	return w
}

func (w *gatewayWatch) stamps() [2]stamp {
	return [2]stamp{stampOf(w.path), stampOf(upstream.PinsPath(w.path))}
}

// read is all that an upstream depends on in files, "" for a file that cannot be read.
func (w *gatewayWatch) read() string {
	file, err := config.Load(w.path)
	if err != nil {
		return ""
	}
	pins, _ := os.ReadFile(upstream.PinsPath(w.path)) // without pins, there are none
	return string(file.Section(config.SectionUpstreams).JSON()) + "\n" + string(pins)
}

// look reads the files again when they changed and are not being written any more.
func (w *gatewayWatch) look(ctx context.Context, atOnce bool) {
	if w.gateway == nil {
		return
	}
	same := func(a, b [2]stamp) bool { return a[0].equal(b[0]) && a[1].equal(b[1]) }
	now := w.stamps()
	whole := same(now, w.lastSeen)
	w.lastSeen = now
	if !atOnce && (!whole || same(now, w.lastRead)) {
		return
	}
	w.lastRead = now
	text := w.read()
	if text == w.inForce {
		return
	}
	if err := w.gateway.Load(w.path); err != nil {
		w.log.ErrorContext(ctx, "the changed upstreams are refused; those before stay in force", "config", w.path, "issue", oneLine(badConfig(err)))
		return
	}
	w.inForce = text
	w.log.InfoContext(ctx, "upstreams are taken over", "config", w.path, "upstreams", w.gateway.Upstreams())
}
