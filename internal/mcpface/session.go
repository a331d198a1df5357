package mcpface

import (
	"context"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
)

// session is what belongs to one client's connection, over HTTP to its protocol
// session, or to one request of a client that has none.
type session struct {
	asks  *asker
	watch *watch
	// remote is true over HTTP.
	remote bool
	// dotless is true once a client of the era with initialize turned out to refuse
	// dots in names.
	dotless atomic.Bool
	// forms is true once a client of the era with initialize said that it shows forms.
	forms atomic.Bool
}

type (
	sessionKey struct{}
	callerKey  struct{}
)

// withCaller returns a context that knows on whose behalf the engine is asked.
func withCaller(ctx context.Context, p engine.Principal) context.Context {
	return context.WithValue(ctx, callerKey{}, p)
}

// callerOf is on whose behalf the engine is asked: over HTTP who the request was
// authenticated as, over stdio whom the configuration names. Without one it is nobody,
// whom the engine refuses everything.
func callerOf(ctx context.Context) engine.Principal {
	p, _ := ctx.Value(callerKey{}).(engine.Principal)
	return p
}

// sessionOf is the connection that a request came over, nil when there is none.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// showsForms reports whether the client of a request can show a form to a person.
// Clients of the era without initialize say so in each request.
func (s *session) showsForms(ctx context.Context) bool {
	if s == nil {
		return false
	}
	if server.IsModernRequest(ctx) {
		return hasForms(server.RequestProtocolInfoFromContext(ctx).ClientCapabilities)
	}
	return s.forms.Load()
}

// hasForms reads a client's capabilities: elicitation without a mode means forms.
func hasForms(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// join gives every request of a connection its session, and the library one that
// refuses subscriptions to what announces nothing.
func (f *Face) join(s *session) server.StdioContextFunc {
	return func(ctx context.Context) context.Context {
		ctx = context.WithValue(ctx, sessionKey{}, s)
		inner, ok := server.ClientSessionFromContext(ctx).(stdioSession)
		if !ok {
			return ctx
		}
		return f.server.WithContext(ctx, subscriber{stdioSession: inner, check: f.subscribable(ctx, s)})
	}
}

// subscribable says whether a session can subscribe to one more resource.
func (f *Face) subscribable(ctx context.Context, s *session) func(uri string) error {
	return func(uri string) error {
		if err := s.watch.checkLimit(); err != nil {
			return f.rpc(ctx, uri, err)
		}
		if _, err := f.look(ctx, uri); err != nil {
			return f.rpcNotFound(ctx, uri, err)
		}
		return nil
	}
}

// stdioSession is what the library's session for stdio can do.
type stdioSession interface {
	server.SessionWithLogging
	server.SessionWithClientInfo
	server.SessionWithProtocolVersion
	SetProtocolVersion(version string)
}

// subscriber asks before the library says yes to a subscription. What is subscribed is
// kept by watch, which hooks tell: only they know the stream that it belongs to.
type subscriber struct {
	stdioSession
	check func(uri string) error
}

func (s subscriber) SubscribeToResourceErr(uri string) error { return s.check(uri) }
func (subscriber) SubscribeToResource(string)                {}
func (subscriber) UnsubscribeFromResource(string)            {}
func (subscriber) SubscribedResources() []string             { return nil }
func (subscriber) IsSubscribedToResource(string) bool        { return false }

var _ server.SessionWithResourceSubscriptionsErr = subscriber{}

// watchHooks keep what is subscribed. By the protocol before 2026-07-28 that is a
// request of its own; since then it lasts as long as the request that named it.
func (f *Face) watchHooks(h *server.Hooks) {
	h.AddAfterSubscribe(func(ctx context.Context, _ any, req *mcp.SubscribeRequest, _ *mcp.EmptyResult) {
		if s := sessionOf(ctx); s != nil {
			s.watch.add(ctx, nil, req.Params.URI)
		}
	})
	h.AddAfterUnsubscribe(func(ctx context.Context, _ any, req *mcp.UnsubscribeRequest, _ *mcp.EmptyResult) {
		if s := sessionOf(ctx); s != nil {
			s.watch.remove(nil, req.Params.URI)
		}
	})
	h.AddBeforeSubscriptionsListen(func(ctx context.Context, id any, req *mcp.SubscriptionsListenRequest) {
		s := sessionOf(ctx)
		if s == nil || id == nil {
			return
		}
		for _, uri := range req.Params.Notifications.ResourceSubscriptions {
			s.watch.add(ctx, id, uri)
		}
		context.AfterFunc(ctx, func() { s.watch.end(id) })
	})
}
