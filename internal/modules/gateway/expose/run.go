package expose

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// endAnswer answers an express call.
type endAnswer struct {
	engine.StartResult
	Context json.RawMessage `json:"context,omitempty"` // set if the instance has ended
	Note    string          `json:"note,omitempty"`
}

// ListExtras implements operation.Extras.
func (t *Tools) ListExtras(ctx context.Context, p engine.Principal) (extras []operation.Extra) {
	chains, _ := t.listChains(ctx, p) // List omits those that cannot be read
	for _, tool := range t.List(ctx, p) {
		if x, ok := describeTool(tool, chains); ok {
			extras = append(extras, x)
		}
	}
	return extras
}

// FindExtra implements operation.Extras.
func (t *Tools) FindExtra(ctx context.Context, p engine.Principal, name string) (operation.Extra, bool) {
	tool, ok := t.Find(ctx, p, name)
	if !ok {
		return operation.Extra{}, false
	}
	chains, _ := t.listChains(ctx, p)
	return describeTool(tool, chains)
}

// describeTool describes a tool for MCP clients; false if its chain no longer exists.
func describeTool(tool Tool, chains []operation.Procedure) (operation.Extra, bool) {
	x := operation.Extra{Name: tool.Name, InputSchema: tool.InputSchema}
	var wait time.Duration
	if tool.Mode == Express {
		wait = tool.Wait
	}
	run := func(ctx context.Context, call operation.ExtraCall) (any, bool, error) {
		return start(ctx, tool.Workflow, call, wait)
	}
	if tool.Chain != "" {
		i := slices.IndexFunc(chains, func(p operation.Procedure) bool { return p.Name == tool.Chain })
		if i < 0 {
			return x, false
		}
		chain := chains[i]
		x.Title, x.Like, x.Open, x.Answers = "Run "+chain.Name, chain.Start, true, chain.Answers // its steps may do anything
		x.Description = strings.TrimSpace(tool.Description+"\n\nA call runs the chain "+chain.Name+" with the arguments as its input, ") + " "
		x.Note = chain.Usage(wait)
		run = func(ctx context.Context, call operation.ExtraCall) (any, bool, error) {
			return chain.Run(ctx, call, wait)
		}
	} else {
		x.Title, x.Like, x.Answers = "Start "+tool.Workflow, operation.Start.Operation, endAnswer{}
		x.Description = tool.Description + "\n\nA call starts an instance with the arguments as its context, "
		x.Note = "and returns its id, state and nextActions. Go on with workflow.advance; look again with workflow.status."
		if wait > 0 {
			x.Note = fmt.Sprintf("and waits up to %s for its end. If it takes longer, look again with workflow.status.", wait)
		}
	}
	x.Run = func(ctx context.Context, call operation.ExtraCall) (any, bool, error) {
		if tool.Wrapped {
			input := document.ReadTrusted(call.Arguments).Get(WrapKey)
			if input.Kind() == 0 {
				return nil, false, engine.MissingField(WrapKey, "It has the whole input.")
			}
			call.Arguments = input.Raw()
		}
		return run(ctx, call)
	}
	return x, true
}

// start starts an instance of a workflow as workflow.start does. Unless wait is 0, it waits for the end.
func start(ctx context.Context, workflow string, call operation.ExtraCall, wait time.Duration) (answer any, refused bool, err error) {
	start, err := operation.Start.Do(ctx, call.Call, engine.StartRequest{Type: workflow, Context: call.Arguments, Key: call.Key})
	if refused = err == nil && operation.Start.Refused(start); err != nil || refused || wait == 0 {
		return operation.Start.Show(start), refused, err
	}
	now := waitForEnd(ctx, start.Position, wait, call)
	start.Position = now.Position
	content := endAnswer{StartResult: operation.Start.Show(start).(engine.StartResult)} //nolint:forcetypeassert // what it shows
	if hasEnded(now) {
		content.Context = now.Context
	} else {
		content.Note = call.Style(fmt.Sprintf("It has not ended within %s and continues; check again with workflow.status.", wait))
	}
	return content, now.Status == record.Cancelled || now.Outcome == "failure", nil
}

func hasEnded(s engine.StatusResult) bool { return s.Complete || s.Status == record.Cancelled }

// waitForEnd waits until an instance has ended, limit has passed, or the client has cancelled, and returns the
// instance's state. It never ends the instance. It reports each move to the client, and repeats the report every
// operation.ReportEvery.
func waitForEnd(ctx context.Context, start engine.Position, limit time.Duration, call operation.ExtraCall) engine.StatusResult {
	feed, caller := call.Engine.Feed(), call.Caller.Principal
	following := feed.Follow(-1)
	defer following.Unfollow()
	over := time.After(limit)
	quiet := time.NewTicker(operation.ReportInterval)
	defer quiet.Stop()
	now, reports := engine.StatusResult{Position: start}, 0
	report := func() {
		reports++
		if call.Report != nil {
			call.Report(now.Progress)
		}
	}
	for at := int64(-1); ; {
		changed := following.Changed()
		changes, next, known, _ := feed.Changes(caller, at) // a feed that fails wakes its followers once it works again
		at = next
		following.MarkSent(at)
		if reports == 0 || !known || slices.ContainsFunc(changes, func(c engine.Change) bool { return c.Instance == start.ID }) {
			then, err := call.Engine.StatusAt(ctx, caller, start.ID, engine.When{})
			switch {
			case err != nil: // the instance has started, so the client must get its id
				call.Log(operation.Status.Operation, err)
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
