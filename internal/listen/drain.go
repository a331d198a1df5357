package listen

import "context"

type drainKey struct{}

// Draining returns what is closed once the server of a request begins to end; nil, which
// is never closed, when ctx is not of such a request. Whatever lasts until its caller
// leaves has to end then: waiting for events, above all. Requests that do something go on.
func Draining(ctx context.Context) <-chan struct{} {
	ch, _ := ctx.Value(drainKey{}).(<-chan struct{})
	return ch
}

// WithDraining returns a context whose Draining is the given channel, for handlers that
// are served by something else than a Server.
func WithDraining(ctx context.Context, draining <-chan struct{}) context.Context {
	return context.WithValue(ctx, drainKey{}, draining)
}
