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
	"github.com/gavel-mcp/gavel/internal/expose"
	"github.com/gavel-mcp/gavel/internal/mcpwire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// lookAtRunEvery is how often a run is looked at whose progress a client wants to hear of.
const lookAtRunEvery = time.Second

// askRunResult waits for the end of a run as the operation does, and tells a client that gave a token
// of each step that ends meanwhile.
func (f *Face) askRunResult(ctx context.Context, req *operation.RunResultRequest, token document.JSON) (answer, error) {
	if token.Kind() == 0 {
		out, _, err := f.ask(ctx, operation.RunResult.Operation, req)
		return out, err
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.reportRun(watching, req.Run, token)
	}()
	out, _, err := f.ask(ctx, operation.RunResult.Operation, req)
	stop()
	<-watched // a report after the answer would be to nobody
	return out, err
}

// reportRun sends progress until ctx ends: whenever more steps of the run have ended, and where
// nothing happens often enough that the client does not give up.
func (f *Face) reportRun(ctx context.Context, run string, token document.JSON) {
	look := time.NewTicker(lookAtRunEvery)
	defer look.Stop()
	reports, said, last := 0, "", time.Now()
	ended, cursor := map[string]bool{}, ""
	for {
		now, err := f.cfg.Chains.ReadRun(ctx, callerOf(ctx), operation.RunRequest{Run: run, Cursor: cursor})
		if err != nil {
			return // the answer says why
		}
		cursor = now.NextCursor
		for _, s := range now.Steps {
			ended[s.Op+" "+s.Key] = true
		}
		message := fmt.Sprintf("%s of %s is %s: steps that have ended: %d.", now.Run, now.Chain, now.Status, len(ended))
		if message != said || time.Since(last) >= reportEvery {
			reports, said, last = reports+1, message, time.Now()
			_ = mcpwire.Notify(ctx, string(mcp.MethodNotificationProgress), map[string]any{ // a client that is gone needs none
				"progressToken": token.Raw(), "progress": reports, "message": message,
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// runEndAnswer answers an express call of an exposed chain.
type runEndAnswer struct {
	operation.RunAnswer
	Note string `json:"note,omitempty"`
}

// declareChain is an exposed chain as it is listed.
func (f *Face) declareChain(ctx context.Context, x expose.Tool) mcp.Tool {
	t := declareTool(operation.StartRun.Operation, false)
	t.Name, t.Title, t.RawInputSchema, t.Annotations = x.Name, "Run "+x.Chain, x.InputSchema, mcp.ToolAnnotation{} // its steps may do anything
	then := "and returns the run's id. Wait for its output with chain.result; chain.status shows its steps."
	if x.Mode == expose.Express {
		then = fmt.Sprintf("waits up to %s for its end, and returns its output. If it takes longer, wait on with chain.result.", x.Wait)
	}
	t.Description = strings.TrimSpace(x.Description + "\n\nA call runs the chain " + x.Chain + " with the arguments as its input, " + f.styleNames(ctx, then))
	if f.cfg.OutputSchemas {
		t.RawOutputSchema = outputSchema(runEndAnswer{})
	}
	return t
}

// runChain starts a run of an exposed chain, the same one for the same key, and waits for the end of an
// express one.
func (f *Face) runChain(ctx context.Context, tool expose.Tool, input json.RawMessage, key string, token document.JSON) (answer, error) {
	req := operation.StartRunRequest{Chain: tool.Chain, Input: input}
	if key != "" { // those of others are other keys
		req.Run = fmt.Sprintf("call-%x", sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", callerOf(ctx).ID, tool.Chain, key)))[:len("call-")+32]
	}
	started, res, err := f.ask(ctx, operation.StartRun.Operation, &req)
	if key != "" && engine.CodeOf(err) == engine.CodeKeyReused {
		return answer{}, &engine.Error{
			Code: engine.CodeKeyReused, Message: "This idempotency key was used before with other arguments.",
			Hint: "Use a new key for a new run, or repeat the old call exactly to get its run again.", Err: err,
		}
	}
	if err != nil || tool.Mode != expose.Express {
		return started, err
	}
	run, wait := res.(operation.RunView).Run, int64(tool.Wait/time.Second) //nolint:forcetypeassert // its result
	out, err := f.askRunResult(ctx, &operation.RunResultRequest{Run: run, Wait: &wait}, token)
	if err != nil { // it has started, which the client must hear
		_ = f.explain(ctx, operation.RunResult.Tool.Name, err)
		return started, nil
	}
	content := runEndAnswer{RunAnswer: out.content.(operation.RunAnswer)} //nolint:forcetypeassert // what it shows
	if !content.Status.HasEnded() {
		content.Note = f.styleNames(ctx, fmt.Sprintf("It has not ended within %s and goes on; wait on with chain.result.", tool.Wait))
	}
	out.content = content
	return out, nil
}
