package judge

import "context"

// Layer is one examiner. Weigh looks at the case and says what it thinks; an
// Opinion whose Outcome is empty means that there was nothing to check.
//
// The error is for "could not decide" only (the sandbox is down, the context
// ended): the caller may retry, and nothing is recorded. Whatever the case itself
// can bring about is an Opinion.
type Layer interface {
	Name() LayerName
	Weigh(ctx context.Context, c Case) (Opinion, error)
}
