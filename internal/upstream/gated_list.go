package upstream

import (
	"context"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/gate"
)

// listTimeout limits the engine queries of one list.
const listTimeout = 5 * time.Second

// isAvailableTo reports whether an instance that the principal may see is in a state in which the gate's tool may be
// called.
func (m *Manager) isAvailableTo(p engine.Principal, g gate.Gate) bool {
	e := m.opts.Engine()
	if e == nil || g.Start {
		return e != nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	return slices.ContainsFunc(g.States, func(state string) bool {
		r, err := e.Instances(ctx, p, engine.InstancesRequest{Workflow: g.Workflow, State: state, Status: record.Running, Limit: 1})
		if err != nil {
			m.opts.Logger.Warn("gavel cannot determine whether a tool may be called, so it is not listed", "tool", g.Tool, "cause", err.Error())
		}
		return err == nil && r.Count > 0
	})
}

// ListNextTools returns the gated tools that a principal may call in an instance's state.
func (m *Manager) ListNextTools(p engine.Principal, at engine.Position) []string {
	tools, _ := m.opts.Gates.ListPossible(at, nil, func(tool string) bool { return m.mayUse(p, tool) })
	return tools
}

// mayUse reports whether a principal may use a tool at all.
func (m *Manager) mayUse(p engine.Principal, public string) bool {
	server, name, ok := m.Resolve(KindTool, public)
	return ok && m.servers[server].allows(p, KindTool, name)
}
