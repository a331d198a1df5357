package face

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// metaKey is the member of a call's _meta with an idempotency key. An Extra's arguments cannot hold it, because they
// have no reserved names.
const metaKey = "gavel/idempotencyKey"

// listExtras returns the tools of a module.
func (f *Face) listExtras(ctx context.Context, p engine.Principal) (tools []mcp.Tool) {
	if f.cfg.Extras == nil {
		return nil
	}
	for _, x := range f.cfg.Extras.ListExtras(ctx, p) {
		t := declareTool(x.Like, false)
		if x.Open {
			t.Annotations = mcp.ToolAnnotation{}
		}
		t.Name, t.Title, t.Description, t.RawInputSchema = x.Name, x.Title, x.Description+f.styleNames(ctx, x.Note), x.InputSchema
		if f.cfg.OutputSchemas {
			t.RawOutputSchema = outputSchema(x.Like.Tool.Without, x.Answers)
		}
		tools = append(tools, t)
	}
	return tools
}

// callExtra calls a tool of a module; ok is false if there is no such tool for the caller.
func (f *Face) callExtra(ctx context.Context, p engine.Principal, c wire.Call) (out *mcp.CallToolResult, ok bool, err error) {
	if f.cfg.Extras == nil {
		return nil, false, nil
	}
	x, ok := f.cfg.Extras.FindExtra(ctx, p, c.Name)
	if !ok {
		return nil, false, nil
	}
	if out, err = f.runExtra(ctx, x, c); err != nil {
		out, err = f.newErrorResult(ctx, x.Like, err)
	}
	return out, true, err
}

func (f *Face) runExtra(ctx context.Context, x operation.Extra, c wire.Call) (out *mcp.CallToolResult, err error) {
	defer recoverError(&err)
	if _, err := operation.ReadObject(c.Arguments, "arguments are"); err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	meta := document.ReadTrusted(c.Meta)
	key := meta.Get(metaKey)
	if key.Kind() != 0 && key.Kind() != document.String {
		return nil, &engine.Error{
			Code: engine.CodeInvalidArgument, Path: "/_meta/gavel~1idempotencyKey", Message: "The idempotency key is " + key.Kind().String() + ".", Hint: "Give a string.",
		}
	}
	content, refused, err := x.Run(ctx, operation.ExtraCall{
		Call: f.callOf(ctx), Arguments: c.Arguments, Key: key.Text(), Report: reporter(ctx, meta.Get("progressToken")),
		Style: func(text string) string { return f.styleNames(ctx, text) },
		Log:   func(asked *operation.Operation, err error) { _ = f.explain(ctx, asked.Tool.Name, err) },
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	return f.newResult(content, refused)
}

// reporter returns a function that sends progress to the client; nil if the client gave no token.
func reporter(ctx context.Context, token document.JSON) func(message string) {
	if token.Kind() == 0 {
		return nil
	}
	reports := 0
	return func(message string) {
		reports++
		_ = wire.Notify(ctx, string(mcp.MethodNotificationProgress), map[string]any{ // fails only if the client is gone
			"progressToken": token.Raw(), "progress": reports, "message": message,
		})
	}
}
