package chain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Procedure describes the chain for use as a tool.
func (d *Definition) Procedure() operation.Procedure {
	return operation.Procedure{
		Name: d.Name, Description: d.Description, Tags: d.Tags, Hash: d.Hash, InputSchema: d.DescribeInput(), Start: AskStart.Operation, Answers: endAnswer{},
		Usage: func(wait time.Duration) string {
			if wait == 0 {
				return "and returns the run's id. Wait for its output with chain.result; chain.status shows its steps."
			}
			return fmt.Sprintf("waits up to %s for its end, and returns its output. If it takes longer, continue to wait with chain.result.", wait)
		},
		Run: func(ctx context.Context, call operation.ExtraCall, wait time.Duration) (any, bool, error) {
			return runTool(ctx, d.Name, call, wait)
		},
	}
}

// endAnswer answers a call that waited for a run to end.
type endAnswer struct {
	RunAnswer
	Note string `json:"note,omitempty"`
}

// runTool starts a run of a chain, and waits for its end unless wait is 0. The same idempotency key gets
// the same run.
func runTool(ctx context.Context, name string, call operation.ExtraCall, wait time.Duration) (answer any, refused bool, err error) {
	req := StartRun{Chain: name, Input: call.Arguments}
	if call.Key != "" { // the key is scoped to the caller and the chain
		req.Run = fmt.Sprintf("call-%x", sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", call.Caller.ID, name, call.Key)))[:len("call-")+32]
	}
	run, err := AskStart.Do(ctx, call.Call, req)
	if call.Key != "" && engine.CodeOf(err) == engine.CodeKeyReused {
		return nil, false, &engine.Error{
			Code: engine.CodeKeyReused, Message: "This idempotency key was used before with other arguments.",
			Hint: "Use a new key for a new run, or repeat the old call exactly to get its run again.", Err: err,
		}
	}
	if err != nil || wait == 0 {
		return showRun(run), false, err
	}
	seconds := int64(wait / time.Second)
	res, err := call.AskWatched(ctx, AskResult.Operation, &RunResultRequest{Run: run.Run, Wait: &seconds}, call.Report)
	if err != nil { // the run has started, so the client must get its id
		call.Log(AskResult.Operation, err)
		return showRun(run), false, nil
	}
	end := endAnswer{RunAnswer: showResult(res.(RunView)).(RunAnswer)} //nolint:forcetypeassert // its result, and what it shows
	if !end.Status.HasEnded() {
		end.Note = call.Style(fmt.Sprintf("The run has not ended within %s and continues; wait for it with chain.result.", wait))
	}
	return end, AskResult.Refused(res), nil
}
