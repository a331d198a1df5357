// Package gateway is the module that lists tools, resources and prompts of other MCP servers next to
// gavel's own, with gates before their tools: the sections "upstreams" and "gates" of the
// configuration file.
package gateway

import (
	"errors"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

func init() {
	module.Register(module.Module{
		Name:  "gateway",
		Check: check,
		Lint: []module.LintRule{{Name: "gate", Read: func(file *config.File) (func(*workflow.Definition) error, error) {
			gates, err := gate.ParseConfig(file.Section(config.SectionGates))
			return gates.CheckDefinition, err
		}}},
		Extend: extend,
	})
}

// extend opens the door of a system. One without a configuration file only sees whose process has ended
// in the middle of a gated call.
func extend(setup module.Setup) *module.Extension {
	abandoned := findHeldCalls(setup.Folder).isAbandoned
	if setup.File == nil {
		return &module.Extension{Configure: func(cfg *engine.Config) { cfg.Abandoned = abandoned }}
	}
	g := newGateway(setup)
	return &module.Extension{
		Parts: []*module.Part{{
			Sections: []string{config.SectionUpstreams, config.SectionGates},
			Files:    func(file *config.File) []string { return []string{upstream.PinsPath(file.Path())} },
			Prepare:  g.prepare,
		}},
		Configure: func(cfg *engine.Config) {
			cfg.Abandoned = abandoned
			g.configure(cfg)
		},
		Connect: g.connect, Check: g.check, Foreign: g, Provides: access{g}, Run: g.settle, Close: g.close,
	}
}

// check opens a door that starts no server, with variables that have any value.
func check(c module.Check) error {
	gates, err := gate.ParseConfig(c.File.Section(config.SectionGates))
	if err != nil {
		return err
	}
	g := newGateway(module.Setup{Log: c.Log, LookupEnv: func(string) (string, bool) { return "x", true }})
	door, err := g.open(c.File, gates)
	g.warn(c.File, door)
	door.Close()
	return errors.Join(err, gates.Check(c.Definitions, false))
}
