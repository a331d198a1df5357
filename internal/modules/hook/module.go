// Package hook is the module that answers the hooks of coding agents. It provides:
//
//   - the section "hooks" of the configuration file;
//   - gavel hook, which answers events, installs hooks and approves their rules;
//   - a server's endpoint that answers events as gavel hook does.
//
// Gates on an agent's own tools are in the section "gates". Package agent applies both.
package hook

import (
	_ "embed"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

//go:embed schema.json
var schemas []byte

const sectionHooks = "hooks"

// inMemory names the store that keeps nothing on disk.
const inMemory = "memory"

func init() {
	module.Register(module.Module{
		Name: "hook",
		Commands: []module.Command{{
			Name: "hook", Group: "agents", Help: "Answer the hooks of coding agents, and install them.",
			New: func() any { return &command{} },
		}},
		Sections: []module.Section{{
			Name:  sectionHooks,
			About: "How the [hooks](../hooks.md#configuration) of coding agents are answered, in addition to the gates on builtin tools.",
		}},
		Schemas: schemas,
		Check:   check,
		Lint:    []module.LintRule{{Name: "gate", Read: readGatesRule}, {Name: "hooks", Read: readRule}},
		Extend:  extend,
		Guard:   guard, Approved: loadApproval, NextStep: nextStep,
	})
}

func check(c module.Check) error {
	rules, err := parseRules(c.File)
	return joinMistakes(err, rules.Gates.Check(c.Definitions, false), rules.Hooks.Check(c.Definitions, false))
}

// readGatesRule returns the lint rule that checks definitions against the gates.
func readGatesRule(file *config.File) (check func(*workflow.Definition) error, err error) {
	gates, err := gate.ParseConfig(file.Section(config.SectionGates))
	return gates.CheckDefinition, err
}

// readRule returns the lint rule that checks definitions against the section.
func readRule(file *config.File) (check func(*workflow.Definition) error, err error) {
	hooks, err := gate.ParseHooks(file.Section(sectionHooks))
	return hooks.CheckDefinition, err
}

// nextStep returns the command that installs a client's hooks, to be run in the folder of the configuration; "" if gavel
// cannot install hooks for the client.
func nextStep(client, config string) string {
	if !slices.Contains(agent.InstallClients(), client) {
		return ""
	}
	if project, err := projectFolder(filepath.Dir(config)); err == nil && project == filepath.Dir(config) {
		return "gavel hook install " + client
	}
	return "gavel hook install " + client + " --config " + filepath.Base(config)
}
