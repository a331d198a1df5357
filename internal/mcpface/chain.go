package mcpface

import (
	"context"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

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
	for {
		now, err := f.cfg.Chains.ReadRun(ctx, callerOf(ctx), run)
		if err != nil {
			return // the answer says why
		}
		message := fmt.Sprintf("%s of %s is %s: steps that have ended: %d.", now.Run, now.Chain, now.Status, len(now.Steps))
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
