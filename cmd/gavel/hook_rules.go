package main

import (
	"context"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/module"
)

// hookRules are the rules in force in a server for the hooks of coding agents.
type hookRules struct {
	definitions gate.Definitions
	inForce     atomic.Pointer[hook.Rules]
}

// openHookRules puts the rules of a configuration file in force.
func openHookRules(ctx context.Context, sys *system, path string) (*hookRules, error) {
	r := &hookRules{definitions: sys.Engine}
	file, err := module.ConfigFlag{Config: path}.Load()
	if err != nil {
		return nil, err
	}
	take, err := r.Prepare(ctx, file)
	if err != nil {
		return nil, badConfig(err)
	}
	take()
	return r, nil
}

// Rules are those in force.
func (r *hookRules) Rules() hook.Rules { return *r.inForce.Load() }

// Prepare reads the rules and compares them with the definitions of operators; take has them in force.
func (r *hookRules) Prepare(ctx context.Context, file *config.File) (take func(), err error) {
	rules, err := parseHookRules(file)
	if err == nil {
		err = rules.Hooks.CheckIn(ctx, r.definitions, localCLI)
	}
	return func() { r.inForce.Store(&rules) }, err
}

func (r *hookRules) watch(path string) *configPart {
	return &configPart{
		section: config.SectionHooks, with: []string{config.SectionGates},
		prepare: func(ctx context.Context, _ *configChange) (take func(), err error) {
			file, err := module.ConfigFlag{Config: path}.Load()
			if err != nil {
				return nil, err
			}
			return r.Prepare(ctx, file)
		},
	}
}
