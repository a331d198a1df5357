package mcpface

import (
	"context"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// session is what belongs to one client's connection.
type session struct {
	asks  *asker
	watch *watch
	// forms is true once a client of the era with initialize said that it shows forms.
	forms atomic.Bool
}

type sessionKey struct{}

// sessionOf is the connection that a request came over, nil when there is none.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// showsForms reports whether the client of a request can show a form to a person.
// Clients of the era without initialize say so in each request.
func (s *session) showsForms(ctx context.Context) bool {
	if server.IsModernRequest(ctx) {
		return hasForms(server.RequestProtocolInfoFromContext(ctx).ClientCapabilities)
	}
	return s != nil && s.forms.Load()
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
		return f.server.WithContext(ctx, subscriber{stdioSession: inner, check: func(uri string) error {
			if err := s.watch.room(); err != nil {
				return f.rpc(ctx, uri, err)
			}
			if _, err := f.mark(ctx, uri); err != nil {
				return f.rpcNotFound(ctx, uri, err)
			}
			return nil
		}})
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
