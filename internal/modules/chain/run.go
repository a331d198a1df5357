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

// attempt is what an execution passes to the functions that perform a command.
type attempt struct {
	// stop is closed when the run is cancelled or the execution ends. A call that was already sent is still
	// awaited; pure waits end, and nothing more is sent. An execution that ends for another reason records
	// nothing, and the next one waits again.
	stop <-chan struct{}
	// renew restarts the timeout of the command; nil without one.
	renew func()
	// question shows the command in runs. runs is nil if the command is not shown.
	runs     *Runs
	question *question
}

// attemptKey is the context key of the attempt.
type attemptKey struct{}

func withAttempt(ctx context.Context, a attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// attemptOf returns the attempt in a context, or an empty one.
func attemptOf(ctx context.Context) attempt {
	a, _ := ctx.Value(attemptKey{}).(attempt)
	return a
}

// isStopped reports whether a wait must end.
func (a attempt) isStopped() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

// perform performs one command within its timeout. A server that reports progress restarts the timeout.
func perform(ctx context.Context, c Command, do func(context.Context, Command) Outcome) Outcome {
	bounded := ctx
	if c.Timeout > 0 {
		stopped, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer := time.AfterFunc(cmp.Or(c.Rest, c.Timeout), func() { cancel(context.DeadlineExceeded) })
		defer timer.Stop()
		a := attemptOf(ctx)
		a.renew = func() { timer.Reset(c.Timeout) }
		bounded = withAttempt(stopped, a)
	}
	o := do(bounded, c)
	if o.Err != nil && bounded.Err() != nil && ctx.Err() == nil {
		o.Err = &StepError{Code: CodeTimeout, Message: "no answer within " + c.Timeout.String(), MayHaveRun: c.Op == OpCall}
	}
	if o.Err == nil {
		o = keepParts(c, o)
	}
	return o
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
