package mcpface

import (
	"context"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/internal/mcpwire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// watchEvery is how often it is asked what a client hears of while it waits for an answer.
const watchEvery = time.Second

// askWatched performs an operation, and tells a client that gave a token what it hears of meanwhile.
func (f *Face) askWatched(ctx context.Context, op *operation.Operation, req any, token document.JSON) (any, error) {
	if op.Watch == nil || token.Kind() == 0 {
		return f.callOf(ctx).Ask(ctx, op, req) //nolint:wrapcheck // an *engine.Error
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		report(watching, op.Watch(f.callOf(ctx), req), token)
	}()
	res, err := f.callOf(ctx).Ask(ctx, op, req)
	stop()
	<-watched       // a report after the answer would be to nobody
	return res, err //nolint:wrapcheck // an *engine.Error
}

// report sends progress until ctx ends: whenever the message is another one, and where nothing happens
// often enough that the client does not give up.
func report(ctx context.Context, watch func(context.Context) (string, error), token document.JSON) {
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	reports, said, last := 0, "", time.Now()
	for {
		message, err := watch(ctx)
		if err != nil {
			return // the answer says why
		}
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
