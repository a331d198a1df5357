package main

import (
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel/engine/embed"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// openGateway reads what other MCP servers a configuration file declares: those that it declares
// later are taken over. It is nil without a file.
func (f configFlag) openGateway(log *slog.Logger) (*embed.Gateway, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	g, err := embed.OpenGateway(f.Config, embed.GatewayConfig{Watcher: thisProgram(), Version: readBuild().Version, Logger: log})
	if err != nil {
		return nil, badConfig(err)
	}
	return g, nil
}

// checkUpstreams finds what can be told of a file's sections upstreams and gates without the environment, and
// logs what it warns of.
func checkUpstreams(path string, log *slog.Logger) error {
	return badConfig(embed.CheckGateway(path, embed.GatewayConfig{
		Logger: log, LookupEnv: func(string) (string, bool) { return "x", true },
	}))
}

// checkGates compares a file's gates with the definitions that it names. Others may be in the store.
func checkGates(path string, patterns []string) error {
	gates, err := readToolGates(path)
	if err != nil || len(gates.Gates) == 0 {
		return err
	}
	files, err := definitionFiles(patterns)
	if err != nil || len(patterns) == 0 {
		return nil //nolint:nilerr // patterns that match nothing are reported for themselves
	}
	definitions := map[string]*workflow.Definition{}
	for _, file := range files {
		if d, err := parseDefinition(file); err == nil { // gavel lint says what is wrong with one
			definitions[d.Name] = d
		}
	}
	return badConfig(gates.Check(definitions, false))
}

func readToolGates(path string) (gate.Config, error) {
	file, err := config.Load(path)
	if err != nil {
		return gate.Config{}, badConfig(err)
	}
	gates, err := gate.ParseConfig(file.Section(config.SectionGates))
	return gates, badConfig(err)
}

// newGatewayWatch takes over changed upstreams, gates and pins.
func newGatewayWatch(log *slog.Logger, g *embed.Gateway, path string) *sectionWatch {
	w := &sectionWatch{log: log, section: config.SectionUpstreams, with: []string{config.SectionGates}, files: []string{path, upstream.PinsPath(path)}}
	if g != nil {
		w.load = func(ctx context.Context) error { return g.Load(ctx, path) }
	}
	return w.start()
}
