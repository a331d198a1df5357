package mcpface

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/expose"
	"github.com/gavel-mcp/gavel/validators/document"
)

// runEndAnswer answers an express call of an exposed chain.
type runEndAnswer struct {
	chain.RunAnswer
	Note string `json:"note,omitempty"`
}

// declareChain is an exposed chain as it is listed.
func (f *Face) declareChain(ctx context.Context, x expose.Tool) mcp.Tool {
	t := declareTool(chain.AskStart.Operation, false)
	t.Name, t.Title, t.RawInputSchema, t.Annotations = x.Name, "Run "+x.Chain, x.InputSchema, mcp.ToolAnnotation{} // its steps may do anything
	then := "and returns the run's id. Wait for its output with chain.result; chain.status shows its steps."
	if x.Mode == expose.Express {
		then = fmt.Sprintf("waits up to %s for its end, and returns its output. If it takes longer, wait on with chain.result.", x.Wait)
	}
	t.Description = strings.TrimSpace(x.Description + "\n\nA call runs the chain " + x.Chain + " with the arguments as its input, " + f.styleNames(ctx, then))
	if f.cfg.OutputSchemas {
		t.RawOutputSchema = outputSchema(nil, runEndAnswer{})
	}
	return t
}

// runChain starts a run of an exposed chain, the same one for the same key, and waits for the end of an
// express one.
func (f *Face) runChain(ctx context.Context, tool expose.Tool, input json.RawMessage, key string, token document.JSON) (*mcp.CallToolResult, error) {
	req := chain.StartRun{Chain: tool.Chain, Input: input}
	if key != "" { // those of others are other keys
		req.Run = fmt.Sprintf("call-%x", sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", callerOf(ctx).ID, tool.Chain, key)))[:len("call-")+32]
	}
	started, err := f.callOf(ctx).Ask(ctx, chain.AskStart.Operation, &req)
	if key != "" && engine.CodeOf(err) == engine.CodeKeyReused {
		return nil, &engine.Error{
			Code: engine.CodeKeyReused, Message: "This idempotency key was used before with other arguments.",
			Hint: "Use a new key for a new run, or repeat the old call exactly to get its run again.", Err: err,
		}
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // an *engine.Error
	}
	if tool.Mode != expose.Express {
		return f.show(chain.AskStart.Operation, started)
	}
	run, wait := started.(chain.RunView).Run, int64(tool.Wait/time.Second) //nolint:forcetypeassert // its result
	out, err := f.askWatched(ctx, chain.AskResult.Operation, &chain.RunResultRequest{Run: run, Wait: &wait}, token)
	if err != nil { // it has started, which the client must hear
		_ = f.explain(ctx, chain.AskResult.Tool.Name, err)
		return f.show(chain.AskStart.Operation, started)
	}
	content := runEndAnswer{RunAnswer: chain.AskResult.Show(out).(chain.RunAnswer)} //nolint:forcetypeassert // what it shows
	if !content.Status.HasEnded() {
		content.Note = f.styleNames(ctx, fmt.Sprintf("It has not ended within %s and goes on; wait on with chain.result.", tool.Wait))
	}
	return f.answer(content, chain.AskResult.Refused != nil && chain.AskResult.Refused(out))
}
