package operation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Extra is a tool for MCP clients that is not in the table: a module offers it.
type Extra struct {
	Name, Title, Description string
	// Note ends the description. Names of tools in it are written as the client knows them.
	Note        string
	InputSchema json.RawMessage
	// Like is the operation whose hints and errors it has. Open says that it may do anything, which no hint denies.
	Like *Operation
	Open bool
	// Answers is a value of the type that it answers with.
	Answers any
	// Run performs a call; refused is as Operation.Refused.
	Run func(context.Context, ExtraCall) (answer any, refused bool, err error)
}

// ExtraCall is a call of an Extra.
type ExtraCall struct {
	Call
	// Arguments are a JSON object.
	Arguments json.RawMessage
	// Key is the caller's idempotency key, "" for none.
	Key string
	// Report tells a caller who waits what happens meanwhile; nil where nobody listens.
	Report func(message string)
	// Style writes the names of tools in a text as the client knows them.
	Style func(text string) string
	// Log writes an error of this program that an answer leaves out.
	Log func(asked *Operation, err error)
}

// Extras are the tools that a module offers.
type Extras interface {
	// ListExtras returns what a principal may call, by name, FindExtra one of them.
	ListExtras(context.Context, engine.Principal) []Extra
	FindExtra(ctx context.Context, p engine.Principal, name string) (Extra, bool)
	// Changed returns a channel that is closed once ListExtras may answer the principal something else than
	// now; nil if it never does.
	Changed(engine.Principal) <-chan struct{}
}

// ReportEvery is how often a caller who waits hears of something although nothing happens: a client may count from
// the last report until it gives up.
const ReportEvery = 10 * time.Second

// watchEvery is how often Watch is asked.
const watchEvery = time.Second

// AskWatched is Ask that reports what Operation.Watch says meanwhile, whenever the message is another one. A nil
// report is nobody who listens.
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
	<-watched // a report after the answer would be to nobody
	return res, err
}

func watch(ctx context.Context, look func(context.Context) (string, error), report func(message string)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	said, last := "", time.Now()
	for {
		message, err := look(ctx)
		if err != nil {
			return // the answer says why
		}
		if message != said || time.Since(last) >= ReportEvery {
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
