package face

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// catalog holds the operations that are tools of a face.
type catalog struct {
	set      Toolset
	tools    []*operation.Operation
	named    map[string]*operation.Operation // by their names in both styles
	declared map[string]mcp.Tool             // by their canonical names
}

// newCatalog returns the tools of the configured set. It includes those of reviews only if cfg.Reviews is set.
func newCatalog(cfg Config) catalog {
	c := catalog{set: cfg.Toolset, named: map[string]*operation.Operation{}, declared: map[string]mcp.Tool{}}
	for _, op := range operation.All() {
		name := op.Tool.Name
		if name == "" || !cfg.Reviews && op.Group == "reviews" || op.Service != "" && cfg.Services[op.Service] == nil || !cfg.Toolset.has(op) {
			continue
		}
		c.tools = append(c.tools, op)
		c.named[name], c.named[underscoreName(name)] = op, op
		c.declared[name] = declareTool(op, cfg.OutputSchemas)
	}
	return c
}

// unknownTool returns the error for an unknown tool. It lists the caller's tools, in the style of the name that was
// called.
func (f *Face) unknownTool(ctx context.Context, name string, p engine.Principal) *wire.Error {
	c := f.tools
	names := c.listed(p.Role)
	if strings.Contains(name, "_") && !strings.Contains(name, ".") {
		for i := range names {
			names[i] = underscoreName(names[i])
		}
	}
	for _, t := range f.listExtras(ctx, p) {
		names = append(names, t.Name)
	}
	message := fmt.Sprintf("There is no tool %s.", wire.Quote(name))
	if near := document.Suggest(name, names); near != "" {
		message = fmt.Sprintf("There is no tool %s; did you mean %q?", wire.Quote(name), near)
	}
	if dotted := strings.ReplaceAll(name, "_", "."); slices.ContainsFunc(operation.All(), func(op *operation.Operation) bool {
		return op.Tool.Name == dotted && !c.set.has(op)
	}) {
		message = fmt.Sprintf("The tool %s is not in the operator's toolset %q.", wire.Quote(name), c.set)
	}
	return rpcError(mcp.INVALID_PARAMS, "unknown_tool", message, "The tools: "+strings.Join(names, ", ")+".")
}

// listed returns the canonical names of the tools that a role sees. The engine decides what the role may do.
func (c catalog) listed(role engine.Role) []string {
	var names []string
	for _, op := range c.tools {
		if !op.Tool.Restricted || slices.Contains(op.Right.Roles(), role) {
			names = append(names, op.Tool.Name)
		}
	}
	return names
}

// rewriter replaces dots by underscores in all tool names. Names that begin with another name are converted correctly
// too, because only dots change.
func (c catalog) rewriter() *strings.Replacer {
	var pairs []string
	for _, op := range c.tools {
		pairs = append(pairs, op.Tool.Name, underscoreName(op.Tool.Name))
	}
	return strings.NewReplacer(pairs...)
}

// declareTool returns an operation as it is listed. It omits annotations that equal the protocol's defaults.
func declareTool(op *operation.Operation, schemas bool) mcp.Tool {
	yes, no := true, false
	t := mcp.Tool{
		Name: op.Tool.Name, Title: op.Title, Description: strings.TrimSpace(op.Description + " " + op.Tool.Note),
		RawInputSchema: inputSchema(op.ToolFields()), Annotations: mcp.ToolAnnotation{OpenWorldHint: &no},
	}
	switch {
	case op.Tool.ReadOnly:
		t.Annotations.ReadOnlyHint = &yes
	default:
		if !op.Tool.Destructive {
			t.Annotations.DestructiveHint = &no
		}
		if op.Tool.Idempotent {
			t.Annotations.IdempotentHint = &yes
		}
	}
	if schemas {
		t.RawOutputSchema = outputSchema(op.Tool.Without, op.Shown()...)
	}
	return t
}

// List returns the tools that a principal sees, with names in the client's style.
func (f *Face) List(ctx context.Context, p engine.Principal) ([]mcp.Tool, error) {
	var tools []mcp.Tool
	for _, name := range slices.Sorted(slices.Values(f.tools.listed(p.Role))) {
		t := f.tools.declared[name]
		if f.underscores(ctx) {
			t.Name = underscoreName(name)
		}
		tools = append(tools, t)
	}
	return append(tools, f.listExtras(ctx, p)...), nil
}

// Changed implements wire.Tools. Tools that depend on the role alone never change.
func (f *Face) Changed(p engine.Principal) <-chan struct{} {
	if f.cfg.Extras == nil {
		return nil
	}
	return f.cfg.Extras.Changed(p)
}

// Call runs one tool. Every error becomes a result that a model can act on. Only defects of this program are logged,
// once.
func (f *Face) Call(ctx context.Context, p engine.Principal, c wire.Call) (*mcp.CallToolResult, error) {
	op := f.tools.named[c.Name]
	if op == nil {
		if out, ok, err := f.callExtra(ctx, p, c); ok {
			return out, err
		}
		return nil, f.unknownTool(ctx, c.Name, p)
	}
	out, err := f.run(ctx, op, c)
	if err != nil {
		return f.newErrorResult(ctx, op, err)
	}
	return out, nil
}

func (f *Face) run(ctx context.Context, op *operation.Operation, c wire.Call) (out *mcp.CallToolResult, err error) {
	defer recoverError(&err)
	op, req, err := op.BindTool(c.Arguments)
	if err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	if op == operation.Advance.Operation {
		return f.advance(ctx, c.Arguments, c.MultiRoundTripParams, *req.(*engine.AdvanceRequest)) //nolint:forcetypeassert // its request
	}
	res, err := f.callOf(ctx).AskWatched(ctx, op, req, reporter(ctx, document.ReadTrusted(c.Meta).Get("progressToken")))
	if err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	return f.show(op, res)
}

// callOf returns the Call for the operations of a request.
func (f *Face) callOf(ctx context.Context) operation.Call {
	return operation.Call{Engine: f.cfg.Engine, Caller: auth.Identity{Principal: callerOf(ctx)}, Channel: record.ChannelMCP, Services: f.cfg.Services}
}

// show answers with the result of an operation.
func (f *Face) show(op *operation.Operation, res any) (*mcp.CallToolResult, error) {
	return f.newResult(op.Show(res), op.Refused != nil && op.Refused(res))
}
