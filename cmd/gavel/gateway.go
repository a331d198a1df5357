package main

import (
	"cmp"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// checkHooks compares a file's hooks with the definitions that it names. Others may be in the store.
func checkHooks(path string, definitions map[string]*workflow.Definition) error {
	hooks, err := readHooks(path)
	return cmp.Or(err, badConfig(hooks.Check(definitions, false)))
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
