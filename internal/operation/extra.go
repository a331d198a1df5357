package operation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Extra is an MCP tool that a module offers and that is not in the table.
type Extra struct {
	Name, Title, Description string
	// Note ends the description. Tool names in it are adapted to the client.
	Note        string
	InputSchema json.RawMessage
	// Like is the operation from which the tool takes its annotations and errors. Open reports that the tool may do
	// anything, so it is listed without annotations.
	Like *Operation
	Open bool
	// Answers is a value of the type that the tool answers with.
	Answers any
	// Run performs a call; refused has the meaning of Operation.Refused.
	Run func(context.Context, ExtraCall) (answer any, refused bool, err error)
}

// ExtraCall is a call of an Extra.
type ExtraCall struct {
	Call
	// Arguments are a JSON object.
	Arguments json.RawMessage
	// Key is the caller's idempotency key, "" for none.
	Key string
	// Report sends a progress message to the waiting caller; nil if the caller wants none.
	Report func(message string)
	// Style adapts the tool names in a text to the client.
	Style func(text string) string
	// Log logs an internal error that the answer does not contain.
	Log func(asked *Operation, err error)
}

// Extras are the tools that a module offers.
type Extras interface {
	// ListExtras returns the tools that a principal may call, by name; FindExtra returns one of them.
	ListExtras(context.Context, engine.Principal) []Extra
	FindExtra(ctx context.Context, p engine.Principal, name string) (Extra, bool)
	// Changed returns a channel that is closed when the result of ListExtras may have changed for the principal; nil
	// if it never changes.
	Changed(engine.Principal) <-chan struct{}
}

// ReportInterval is the interval of progress reports while nothing changes. Clients may measure their timeout from the
// last report.
const ReportInterval = 10 * time.Second

// watchInterval is the interval between calls of the function that Watch returned.
const watchInterval = time.Second

// AskWatched performs an operation like Ask. While it runs, AskWatched calls report with each new message of
// Operation.Watch, and repeats the last one after ReportEvery. A nil report disables this.
func (c Call) AskWatched(ctx context.Context, op *Operation, req any, report func(message string)) (any, error) {
	if op.Watch == nil || report == nil {
		return c.Ask(ctx, op, req)
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(watching, op.Watch(c, req), report)
	}()
	res, err := c.Ask(ctx, op, req)
	stop()
	<-watched // no report may follow the answer
	return res, err
}

func watch(ctx context.Context, look func(context.Context) (string, error), report func(message string)) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	said, last := "", time.Now()
	for {
		message, err := look(ctx)
		if err != nil {
			return // the answer gives the reason
		}
		if message != said || time.Since(last) >= ReportInterval {
			said, last = message, time.Now()
			report(message)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
