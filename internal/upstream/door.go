package upstream

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
)

// Call is the one door: it asks an upstream for something on behalf of a principal. What the
// upstream answers, an error included, is the Reply; the error is an *Error, or ctx's where that
// ended first: then the upstream was asked to stop.
func (m *Manager) Call(ctx context.Context, p engine.Principal, req Request) (Reply, error) {
	if m == nil || m.servers[req.Upstream] == nil || !m.servers[req.Upstream].allows(p, req.Kind, req.Name) {
		return Reply{}, newError(CodeUnknown, req.Upstream, "List what there is.", "There is no such %s.", req.Kind)
	}
	return Reply{}, newError(CodeUnavailable, req.Upstream, "Try again later.", "The upstream cannot be reached.")
}
