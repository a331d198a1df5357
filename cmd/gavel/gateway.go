package main

import (
	"context"
	"log/slog"

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

// newGatewayWatch takes over changed upstreams and pins.
func newGatewayWatch(log *slog.Logger, g *embed.Gateway, path string) *sectionWatch {
	w := &sectionWatch{log: log, section: config.SectionUpstreams, files: []string{path, upstream.PinsPath(path)}}
	if g != nil {
		w.load = func(context.Context) error { return g.Load(path) }
	}
	return w.start()
}
