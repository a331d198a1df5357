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
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, cmp.Or(c.Rest, c.Timeout))
		defer cancel()
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
		if o.Value, o.Err = keepParts(c, o.Value); o.Err != nil {
			o.Err.MayHaveRun = c.Op == OpCall
		}
	}
	return o
}

// keepParts returns the parts of a value that are kept, and refuses what is too long to be
// recorded.
func keepParts(c Command, value any) (any, *StepError) {
	if len(c.Keep) > 0 {
		kept := map[string]any{}
		for _, path := range c.Keep {
			r, err := parsePath(path)
			var part any
			if err == nil {
				part, err = walkPath(value, r, 0)
			}
			if err != nil {
				return nil, &StepError{Code: CodeOutput, Message: "of the output " + err.Error(), Final: true}
			}
			putPart(kept, r.segments, part)
		}
		value = kept
	}
	raw, err := document.Marshal(value)
	switch {
	case err != nil:
		return nil, &StepError{Code: CodeOutput, Message: "the output is not JSON: " + err.Error(), Final: true}
	case len(raw) > MaxOutput:
		return nil, &StepError{Code: CodeOutput, Final: true, Message: fmt.Sprintf("the output has %d bytes; at most %d are kept: name the parts that are needed with \"keep\"", len(raw), MaxOutput)}
	}
	return value, nil
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
