package listen

import (
	"context"
	"sync"
)

// enter takes a place among the requests in flight, false when there is none.
func (a *answer) enter() bool {
	select {
	case a.server.requests <- struct{}{}:
		a.leave = sync.OnceFunc(func() { <-a.server.requests })
		return true
	default:
		return false
	}
}

// openStream exchanges the place of a request for one of an event stream, which ends
// with the server. It is false when there is none.
func (a *answer) openStream() bool {
	select {
	case a.server.streams <- struct{}{}:
	default:
		return false
	}
	forget := make(chan struct{})
	ctx, stop := context.WithCancel(a.request.Context())
	go func() {
		defer close(forget)
		select {
		case <-a.server.draining:
			a.cancel()
		case <-ctx.Done():
		}
	}()
	if a.leave != nil {
		a.leave()
	}
	a.leave = sync.OnceFunc(func() {
		stop()
		<-forget
		<-a.server.streams
	})
	return true
}

// end gives the place back, and the rest of the answer its time.
func (a *answer) end() {
	a.extend()
	if a.leave != nil {
		a.leave()
	}
}
