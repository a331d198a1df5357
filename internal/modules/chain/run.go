package chain

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Effects do what a run asks for: calls, completions, scripts and moves. An error is in the
// Outcome. They are called by several goroutines at once.
type Effects interface {
	Do(ctx context.Context, c Command) Outcome
}

// Waiter answers what a run waits for: signals, and what a person says of a call that may have run.
type Waiter interface {
	Await(ctx context.Context, c Command) Outcome
	// Show shows that a command is under way, and what showWait says of it in its context, until over is called.
	Show(ctx context.Context, c Command) (shown context.Context, over func())
}

// perform does one command, within its time.
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

// renewKey is the key of what begins the time of a command anew.
type renewKey struct{}

// renew begins the time of a command anew, because its server reports progress.
func renew(ctx context.Context) {
	if again, ok := ctx.Value(renewKey{}).(func()); ok {
		again()
	}
}

// keepParts returns the outcome with the parts of its value that are kept, and refuses what is too long to be
// recorded.
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
				return fail("of the output %v", err)
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
		return fail("the output has %d bytes; at most %d are kept: name the parts that are needed with \"keep\"", max(len(raw), len(o.Text)), MaxOutput)
	}
	return o
}

// putPart puts a part where the references that name it look for it. What is around it, and kept as a whole, has it.
func putPart(kept map[string]any, path []string, part any) {
	for len(path) > 1 {
		around, has := kept[path[0]]
		inner, _ := around.(map[string]any)
		switch {
		case !has:
			inner = map[string]any{}
			kept[path[0]] = inner
		case inner == nil: // a list
			return
		}
		kept, path = inner, path[1:]
	}
	kept[path[0]] = part
}
