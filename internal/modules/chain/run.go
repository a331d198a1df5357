package chain

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Effects performs the commands of runs: calls, completions, scripts and moves. Errors are returned in the
// Outcome. Implementations must be safe for concurrent use.
type Effects interface {
	Do(ctx context.Context, c Command) Outcome
}

// Waiter waits for signals, and for a person's answer about a call that may have run.
type Waiter interface {
	Await(ctx context.Context, c Command) Outcome
	// Show publishes that a command is in progress, with updates from showWait in the returned context,
	// until over is called.
	Show(ctx context.Context, c Command) (shown context.Context, over func())
}

// perform performs one command within its timeout.
func perform(ctx context.Context, c Command, effects Effects, waiter Waiter) Outcome {
	if c.Op == OpSleep {
		timer := time.NewTimer(c.Timeout)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return Outcome{}
	}
	bounded := ctx
	if c.Timeout > 0 {
		stopped, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(cmp.Or(c.Rest, c.Timeout), func() { cancel(context.DeadlineExceeded) })
		defer timer.Stop()
		bounded = context.WithValue(stopped, renewKey{}, func() { timer.Reset(c.Timeout) })
	}
	var o Outcome
	if c.Op == OpWait || c.Op == OpAsk {
		o = waiter.Await(bounded, c)
	} else {
		shown, over := waiter.Show(bounded, c)
		o = effects.Do(shown, c)
		over()
	}
	if o.Err != nil && bounded.Err() != nil && ctx.Err() == nil {
		o.Err = &StepError{Code: CodeTimeout, Message: "no answer within " + c.Timeout.String(), MayHaveRun: c.Op == OpCall}
	}
	if o.Err == nil {
		o = keepParts(c, o)
	}
	return o
}

// renewKey is the context key of the function that restarts a command's timeout.
type renewKey struct{}

// renew restarts the timeout of a command, because its server reported progress.
func renew(ctx context.Context) {
	if again, ok := ctx.Value(renewKey{}).(func()); ok {
		again()
	}
}

// keepParts reduces the value of an outcome to the parts to keep, and rejects values that are too long to
// record.
func keepParts(c Command, o Outcome) Outcome {
	fail := func(format string, args ...any) Outcome {
		return Outcome{Err: &StepError{Code: CodeOutput, Message: fmt.Sprintf(format, args...), Final: true, MayHaveRun: c.Op == OpCall}}
	}
	if len(c.Keep) > 0 {
		kept := map[string]any{}
		for _, path := range c.Keep {
			r, err := parsePath(path)
			var part any
			if err == nil {
				part, err = walkPath(content{o.Value, o.Text, o.Wrapped}.around(r.segments[0]), r, 0)
			}
			if err != nil {
				return fail("in the output, %v", err)
			}
			putPart(kept, r.segments, part)
		}
		o = Outcome{Value: kept}
	}
	raw, err := document.Marshal(o.Value)
	switch {
	case err != nil:
		return fail("the output is not JSON: %v", err)
	case max(len(raw), len(o.Text)) > MaxOutput:
		return fail("the output has %d bytes; the limit is %d: select the needed parts with \"keep\"", max(len(raw), len(o.Text)), MaxOutput)
	}
	return o
}

// putPart stores a part where references look for it. If an enclosing value is kept as a whole, it already
// contains the part.
func putPart(kept map[string]any, path []string, part any) {
	for len(path) > 1 {
		around, has := kept[path[0]]
		inner, _ := around.(map[string]any)
		switch {
		case !has:
			inner = map[string]any{}
			kept[path[0]] = inner
		case inner == nil: // a list that is kept as a whole
			return
		}
		kept, path = inner, path[1:]
	}
	kept[path[0]] = part
}
