package mcpface

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// outlet takes the notifications of one request of the era without sessions and writes
// them to its response. The library's own way, without an event store, loses the last
// one when the answer follows it closely.
type outlet struct {
	out *reply

	once    sync.Once
	in      chan mcp.JSONRPCNotification
	stop    chan struct{}
	stopped chan struct{}
}

type outletKey struct{}

// withOutlet gives a request of that era an outlet; sent is to be called after the
// request was handled.
func withOutlet(ctx context.Context, modern bool, out *reply) (with context.Context, sent func()) {
	if !modern {
		return ctx, func() {}
	}
	o := &outlet{out: out, stop: make(chan struct{}), stopped: make(chan struct{})}
	end := sync.OnceFunc(o.end)
	out.before = end
	return context.WithValue(ctx, outletKey{}, o), end
}

// open is where notifications go. Few requests have any.
func (o *outlet) open() chan<- mcp.JSONRPCNotification {
	o.once.Do(func() {
		o.in = make(chan mcp.JSONRPCNotification, 100)
		go o.run()
	})
	return o.in
}

func (o *outlet) run() {
	defer close(o.stopped)
	for {
		select {
		case n := <-o.in:
			o.write(n)
		case <-o.stop:
			for {
				select {
				case n := <-o.in:
					o.write(n)
				default:
					return
				}
			}
		}
	}
}

func (o *outlet) write(n mcp.JSONRPCNotification) {
	if line, err := json.Marshal(n); err == nil {
		_ = o.out.push(line) // a client that is gone ends the request by itself
	}
}

// end waits until all that was given to it is written, and takes nothing more.
func (o *outlet) end() {
	o.once.Do(func() { close(o.stopped) }) // nothing was opened
	close(o.stop)
	<-o.stopped
}

// join gives the library a session with what the endpoint adds to its own.
func (e *Endpoint) join(ctx context.Context, _ *http.Request) context.Context {
	inner, ok := server.ClientSessionFromContext(ctx).(networkSession)
	if !ok {
		return ctx
	}
	o, direct := ctx.Value(outletKey{}).(*outlet)
	if direct {
		inner = directSession{inner, o}
	}
	s := sessionOf(ctx)
	switch {
	case e.check != nil && s != nil:
		return e.server.WithContext(ctx, networkSubscriber{inner, subscriber{check: e.check(ctx, s)}})
	case direct:
		return e.server.WithContext(ctx, inner)
	default:
		return ctx
	}
}

// networkSession is what the library's session over HTTP can do, of what is needed here.
type networkSession interface {
	stdioSession
	server.SessionWithStreamableHTTPConfig
	server.SessionWithSubscriptionFilter
}

// directSession has a request's notifications go to its outlet.
type directSession struct {
	networkSession
	outlet *outlet
}

func (s directSession) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.outlet.open() }

// networkSubscriber is subscriber over HTTP.
type networkSubscriber struct {
	networkSession
	subscriber subscriber
}

func (s networkSubscriber) SubscribeToResourceErr(uri string) error { return s.subscriber.check(uri) }
func (networkSubscriber) SubscribeToResource(string)                {}
func (networkSubscriber) UnsubscribeFromResource(string)            {}
func (networkSubscriber) SubscribedResources() []string             { return nil }
func (networkSubscriber) IsSubscribedToResource(string) bool        { return false }

var _ server.SessionWithResourceSubscriptionsErr = networkSubscriber{}
