package mcpface

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/expose"
	"github.com/gavel-mcp/gavel/internal/mcpwire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// metaKey is the member of a call's _meta with an idempotency key: the arguments of an exposed
// workflow or chain are its start context or input, in which no name is reserved.
const metaKey = "gavel/idempotencyKey"

// reportEvery is how often an express call reports progress where nothing happens: a client may
// count from the last report until it gives up.
const reportEvery = 10 * time.Second

// endAnswer answers an express call.
type endAnswer struct {
	engine.StartResult
	Context json.RawMessage `json:"context,omitempty"` // where it has ended
	Note    string          `json:"note,omitempty"`
}

// listExposed are the exposed workflows and chains as tools.
func (f *Face) listExposed(ctx context.Context, p engine.Principal) (tools []mcp.Tool) {
	if f.cfg.Exposed == nil {
		return nil
	}
	for _, x := range f.cfg.Exposed.List(ctx, p) {
		if x.Chain != "" {
			tools = append(tools, f.declareChain(ctx, x))
			continue
		}
		t := declareTool(operation.Start.Operation, false)
		t.Name, t.Title, t.RawInputSchema = x.Name, "Start "+x.Workflow, x.InputSchema
		then := "and returns its id, state and nextActions. Go on with workflow.advance; look again with workflow.status."
		if x.Mode == expose.Express {
			then = fmt.Sprintf("and waits up to %s for its end. If it takes longer, look again with workflow.status.", x.Wait)
		}
		t.Description = x.Description + "\n\nA call starts an instance with the arguments as its context, " + f.styleNames(ctx, then)
		if f.cfg.OutputSchemas {
			t.RawOutputSchema = outputSchema(operation.Start.Tool.Without, endAnswer{})
		}
		tools = append(tools, t)
	}
	return tools
}

// callExposed starts an instance of an exposed workflow as workflow.start does, or a run of an exposed
// chain as chain.start does; false for a tool that is none, or not the caller's to use.
func (f *Face) callExposed(ctx context.Context, p engine.Principal, c mcpwire.Call) (out *mcp.CallToolResult, ok bool, err error) {
	if f.cfg.Exposed == nil {
		return nil, false, nil
	}
	tool, ok := f.cfg.Exposed.Find(ctx, p, c.Name)
	if !ok {
		return nil, false, nil
	}
	op := operation.Start.Operation
	if tool.Chain != "" {
		op = chain.AskStart.Operation
	}
	if out, err = f.runExposed(ctx, tool, c); err != nil {
		out, err = f.answerError(ctx, op, err)
	}
	return out, true, err
}

func (f *Face) runExposed(ctx context.Context, tool expose.Tool, c mcpwire.Call) (out *mcp.CallToolResult, err error) {
	defer recoverError(&err)
	if _, err := operation.ReadObject(c.Arguments, "arguments are"); err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	if tool.Wrapped {
		input := document.Known(c.Arguments).Get(expose.WrapKey)
		if input.Kind() == 0 {
			return nil, engine.MissingField(expose.WrapKey, "It has the whole input.")
		}
		c.Arguments = input.Raw()
	}
	meta := document.Known(c.Meta)
	key := meta.Get(metaKey)
	if key.Kind() != 0 && key.Kind() != document.String {
		return nil, &engine.Error{
			Code: engine.CodeInvalidArgument, Path: "/_meta/gavel~1idempotencyKey", Message: "The idempotency key is " + key.Kind().String() + ".", Hint: "Give a string.",
		}
	}
	if tool.Chain != "" {
		return f.runChain(ctx, tool, c.Arguments, key.Text(), meta.Get("progressToken"))
	}
	res, err := f.callOf(ctx).Ask(ctx, operation.Start.Operation, &engine.StartRequest{Type: tool.Workflow, Context: c.Arguments, Key: key.Text()})
	if err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	start := res.(engine.StartResult) //nolint:forcetypeassert // its result
	if !start.Decision.Applied || tool.Mode != expose.Express {
		return f.show(operation.Start.Operation, start)
	}
	now := f.waitForEnd(ctx, start.Position, tool.Wait, meta.Get("progressToken"))
	start.Position = now.Position
	content := endAnswer{StartResult: operation.Start.Show(start).(engine.StartResult)} //nolint:forcetypeassert // what it shows
	if hasEnded(now) {
		content.Context = now.Context
	} else {
		content.Note = f.styleNames(ctx, fmt.Sprintf("It has not ended within %s and goes on; look again with workflow.status.", tool.Wait))
	}
	return f.answer(content, now.Status == record.Cancelled || now.Outcome == "failure")
}

func hasEnded(s engine.StatusResult) bool { return s.Complete || s.Status == record.Cancelled }

// waitForEnd returns where an instance is once it has ended, the time is over, or the client gave
// up, none of which ends the instance. The client hears of each move.
func (f *Face) waitForEnd(ctx context.Context, start engine.Position, limit time.Duration, token document.JSON) engine.StatusResult {
	feed, caller := f.cfg.Engine.Feed(), callerOf(ctx)
	following := feed.Follow(-1)
	defer following.Leave()
	over := time.After(limit)
	quiet := time.NewTicker(reportEvery)
	defer quiet.Stop()
	now, reports := engine.StatusResult{Position: start}, 0
	report := func() {
		reports++
		if token.Kind() != 0 {
			_ = mcpwire.Notify(ctx, string(mcp.MethodNotificationProgress), map[string]any{ // a client that is gone needs none
				"progressToken": token.Raw(), "progress": reports, "message": now.Progress,
			})
		}
	}
	for at := int64(-1); ; {
		changed := following.Changed()
		changes, next, known, _ := feed.Changes(caller, at) // a feed that fails wakes its followers once it works again
		at = next
		following.Sent(at)
		if reports == 0 || !known || slices.ContainsFunc(changes, func(c engine.Change) bool { return c.Instance == start.ID }) {
			then, err := f.cfg.Engine.StatusAt(ctx, caller, start.ID, engine.When{})
			switch {
			case err != nil: // it has started, which the client must hear
				_ = f.explain(ctx, operation.Status.Tool.Name, err)
				return now
			case hasEnded(then):
				return then
			}
			moved := then.Revision != now.Revision
			if now = then; moved || reports == 0 {
				report()
			}
		}
		select {
		case <-ctx.Done():
			return now
		case <-over:
			return now
		case <-quiet.C:
			report()
		case <-changed:
		}
	}
}
