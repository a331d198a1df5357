package mcpface

import (
	"context"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// catalog are the operations that are tools of one face.
type catalog struct {
	tools  []operation.Any
	dotted map[string]string // canonical names by those with underscores
}

// newCatalog are all tools, those of reviews if somebody can resolve them.
func newCatalog(reviews bool) catalog {
	c := catalog{dotted: map[string]string{}}
	for _, op := range operation.All() {
		name := op.Info().Tool.Name
		if name == "" || !reviews && op.Info().Group == "reviews" {
			continue
		}
		c.tools = append(c.tools, op)
		c.dotted[underscored(name)] = name
	}
	return c
}

// canonical is the dotted name of a tool called in either style; an unknown name
// stays as it is.
func (c catalog) canonical(name string) string {
	if dotted, ok := c.dotted[name]; ok {
		return dotted
	}
	return name
}

// has reports whether a tool has the name, in either style.
func (c catalog) has(name string) bool {
	_, ok := c.dotted[underscored(name)]
	return ok && (name == c.canonical(name) || name == underscored(name))
}

// listed are the canonical names of the tools that a role is shown. What it may do is
// the engine's to say.
func (c catalog) listed(role engine.Role) []string {
	var names []string
	for _, op := range c.tools {
		if about := op.Info(); !about.Tool.Restricted || slices.Contains(about.Right.Roles(), role) {
			names = append(names, about.Tool.Name)
		}
	}
	return names
}

// rewriter puts dots into underscores in every tool's name. A name that begins with
// another one comes out right all the same: only dots change.
func (c catalog) rewriter() *strings.Replacer {
	var pairs []string
	for _, op := range c.tools {
		pairs = append(pairs, op.Info().Tool.Name, underscored(op.Info().Tool.Name))
	}
	return strings.NewReplacer(pairs...)
}

// declare is an operation as it is listed.
func declare(op operation.Any) mcp.Tool {
	about, no := op.Info(), false
	return mcp.Tool{
		Name: about.Tool.Name, Title: about.Title, Description: strings.TrimSpace(about.Description + " " + about.Tool.Note),
		RawInputSchema: inputSchema(operation.ToolFields(op)), RawOutputSchema: outputSchema(op),
		Annotations: mcp.ToolAnnotation{
			Title: about.Title, ReadOnlyHint: &about.Tool.ReadOnly, DestructiveHint: &about.Tool.Destructive,
			IdempotentHint: &about.Tool.Idempotent, OpenWorldHint: &no,
		},
	}
}

// handler runs one tool: arguments in, answer out, and every error as a result
// that a model can act on. Only a defect of this program is logged, once.
func (f *Face) handler(op operation.Any) func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		out, err := f.run(ctx, op, req)
		if err != nil {
			out = f.failed(ctx, op, err)
		}
		return out.result()
	}
}

func (f *Face) run(ctx context.Context, op operation.Any, call mcp.CallToolRequest) (out answer, err error) {
	defer caught(&err)
	raw := rawArguments(call)
	op, req, err := operation.BindTool(op, raw)
	if err != nil {
		return answer{}, err //nolint:wrapcheck // an *engine.Error
	}
	if op == operation.Any(operation.Advance) {
		return f.advance(ctx, raw, call.Params.MultiRoundTripParams, *req.(*engine.AdvanceRequest)) //nolint:forcetypeassert // its request
	}
	res, err := operation.Call{
		Engine: f.cfg.Engine, Caller: auth.Identity{Principal: callerOf(ctx)}, Channel: record.ChannelMCP,
	}.Ask(ctx, op, req)
	if err != nil {
		return answer{}, err //nolint:wrapcheck // an *engine.Error
	}
	out.line, out.content, out.refused = op.Answer(res)
	return out, nil
}
