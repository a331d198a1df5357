package main

import (
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// openGateway reads what other MCP servers a configuration file declares: those that it declares
// later are taken over. It is nil without a file.
func (f configFlag) openGateway(log *slog.Logger) (*gavel.Gateway, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	g, err := gavel.OpenGateway(f.Config, gavel.GatewayConfig{Watcher: thisProgram(), Version: readBuild().Version, Logger: log})
	if err != nil {
		return nil, badConfig(err)
	}
	return g, nil
}

// checkUpstreams finds what can be told of a file's sections upstreams and gates without the environment, and
// logs what it warns of.
func checkUpstreams(path string, log *slog.Logger) error {
	return badConfig(gavel.CheckGateway(path, gavel.GatewayConfig{
		Logger: log, LookupEnv: func(string) (string, bool) { return "x", true },
	}))
}

// checkGates compares a file's gates and hooks with the definitions that it names. Others may be in the
// store.
func checkGates(path string, patterns []string) error {
	gates, gatesErr := readToolGates(path)
	hooks, hooksErr := readHooks(path)
	if gatesErr != nil || hooksErr != nil || len(gates.Gates) == 0 && hooks.Finish == nil {
		return joinMistakes([]error{gatesErr, hooksErr})
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
	return joinMistakes([]error{badConfig(gates.Check(definitions, false)), badConfig(hooks.Check(definitions, false))})
}

func readToolGates(path string) (gate.Config, error) {
	return readRules(path, config.SectionGates, gate.ParseConfig)
}

func readHooks(path string) (gate.Hooks, error) {
	return readRules(path, config.SectionHooks, gate.ParseHooks)
}

func readRules[Rules any](path, section string, parse func(*document.Node) (Rules, error)) (rules Rules, err error) {
	file, err := config.Load(path)
	if err == nil {
		rules, err = parse(file.Section(section))
	}
	return rules, badConfig(err)
}

// watchGateway takes over changed upstreams, gates and pins.
func watchGateway(g *gavel.Gateway, path string) *configPart {
	p := &configPart{
		section: config.SectionUpstreams, with: []string{config.SectionGates},
		files: func(*config.File) []string { return []string{upstream.PinsPath(path)} },
	}
	if g != nil {
		p.prepare = func(ctx context.Context, _ *configChange) (take func(), err error) { return g.Prepare(ctx, path) }
	}
	return p
}
