// Package gateway is the module for other MCP servers. It lists their tools, resources and prompts next to
// gavel's own, applies gates to their tools, and offers workflows and chains as separate tools. It owns the
// sections "upstreams", "gates" and "expose" of the configuration file.
package gateway

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/expose"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed schema.json
var schemas []byte

const sectionExpose = "expose"

func init() {
	module.Register(module.Module{
		Name: "gateway",
		Commands: []module.Command{{
			Name: "upstream", Group: "agents", Help: "Inspect other MCP servers and pin their tools.",
			New: func() any { return &command{} },
		}},
		Sections: []module.Section{
			{Name: upstream.Section, About: "Other MCP servers by name: [the gateway](../gateway.md). A name is up to 24 letters and digits with single hyphens between them."},
			{Name: sectionExpose, About: "Workflows and chains of the operator's that are MCP tools of their own: [workflows as tools](../gateway.md#workflows-and-chains-as-tools).", Show: showExposure},
		},
		Schemas: schemas,
		Check:   check,
		Lint: []module.LintRule{{Name: "gate", Read: func(file *config.File) (func(*workflow.Definition) error, error) {
			gates, err := gate.ParseConfig(file.Section(config.SectionGates))
			return gates.CheckDefinition, err
		}}},
		Extend: extend,
	})
}

// extend adds a gateway to a system. A system without a configuration file only detects abandoned gated calls: those
// whose process ended before the call did.
func extend(setup module.Setup) *module.Extension {
	abandoned := findHeldCalls(setup.Folder).isAbandoned
	if setup.File == nil {
		return &module.Extension{Configure: func(cfg *engine.Config) { cfg.Abandoned = abandoned }}
	}
	g, x := newGateway(setup), &exposure{log: setup.Log}
	all := &module.Extension{
		Parts: []*module.Part{{
			Sections: []string{upstream.Section, config.SectionGates},
			Files:    func(file *config.File) []string { return []string{upstream.PinsPath(file.Path())} },
			Prepare:  g.prepare,
		}},
		Configure: func(cfg *engine.Config) {
			cfg.Abandoned = abandoned
			g.configure(cfg)
		},
		Connect: g.connect, Check: g.check, Provides: access{g}, Close: g.close,
		Pages: []module.Page{g.serversPage()}, Warnings: g.findWarnings,
	}
	if setup.OnDemand {
		return all
	}
	all.Parts = append(all.Parts, &module.Part{Sections: []string{sectionExpose}, Prepare: x.prepare})
	all.Connect = func(s module.System) error {
		x.connect(s)
		return g.connect(s)
	}
	all.Check = func(ctx context.Context) error { return cmp.Or(g.check(ctx), x.check(ctx)) }
	all.Foreign, all.Extras, all.Run = g, x, g.settle
	all.Close = func() {
		x.close()
		g.close()
	}
	return all
}

// check opens the upstreams without starting servers. Every environment variable gets a placeholder value.
func check(c module.Check) error {
	gates, err := gate.ParseConfig(c.File.Section(config.SectionGates))
	if err != nil {
		return err
	}
	g := newGateway(module.Setup{Log: c.Log, LookupEnv: func(string) (string, bool) { return "x", true }})
	manager, err := g.open(c.File, gates)
	g.warn(c.File, manager)
	manager.Close()
	return errors.Join(err, gates.Check(c.Definitions, false), checkExposure(c))
}

// checkExposure only warns of missing workflows and chains, because a store may hold more definitions than
// the files.
func checkExposure(c module.Check) error {
	cfg, err := expose.ParseConfig(c.File.Section(sectionExpose))
	if err != nil {
		return err
	}
	_, bad, missing := cfg.Select(slices.Collect(maps.Values(c.Definitions)), c.Procedures)
	if len(bad) > 0 {
		return bad
	}
	for _, issue := range missing {
		if len(c.Definitions)+len(c.Procedures) > 0 {
			c.Log.Warn("exposed workflows and chains", "issue", issue.Error())
		}
	}
	return nil
}

// showExposure shows the section, without the modes of individual workflows.
func showExposure(section *document.Node) ([]module.Shown, error) {
	cfg, err := expose.ParseConfig(section)
	nameListed := func(list []expose.Listed) []string {
		names := []string{}
		for _, one := range list {
			names = append(names, one.Name)
		}
		return names
	}
	return []module.Shown{
		{Key: "prefix", Value: cfg.Prefix},
		{Key: "workflows", Value: nameListed(cfg.Workflows)},
		{Key: "chains", Value: nameListed(cfg.Chains)},
		{Key: "tagKey", Value: cfg.TagKey},
		{Key: "tagValue", Value: cfg.TagValue},
		{Key: "mode", Value: string(cfg.Mode)},
		{Key: "wait", Value: cfg.Wait},
	}, err
}
