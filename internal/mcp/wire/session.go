package wire

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// session is the state of one client connection. Over HTTP, it belongs to a protocol session, or to one request if
// the client has none.
type session struct {
	id        string // set over HTTP for protocol versions with initialize
	remote    bool   // over HTTP
	requester *requester
	watch     *watch

	mu           sync.Mutex
	clientInfo   mcp.Implementation      // from initialize
	capabilities *mcp.ClientCapabilities // from initialize
	level        mcp.LoggingLevel
}

// newSession returns a session that writes its change notifications with write.
func (w *Wire) newSession(remote bool, write func(line []byte) error) *session {
	return &session{remote: remote, requester: newRequester(), watch: newWatch(w.cfg.Resources, w.cfg.Limits.Settle, write)}
}

// request is one request in progress. It implements mcp-go's session interfaces.
type request struct {
	*session
	ctx   context.Context //nolint:containedctx // mcp-go calls subscription methods without a context
	write func(line []byte) error
	// modern is true for 2026-07-28, which has no sessions.
	modern bool
	// failure is the error returned by a handler of mcp-go's server.
	failure *Error
	// For subscriptions/listen: its id, the channel for its acknowledgement, and the requested filter.
	stream  json.RawMessage
	notices chan mcp.JSONRPCNotification
	filter  mcp.SubscriptionFilter
}

type (
	requestKey struct{}
	callerKey  struct{}
)

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// WithCaller returns a context that carries the principal on whose behalf requests are answered.
func WithCaller(ctx context.Context, p engine.Principal) context.Context {
	return context.WithValue(ctx, callerKey{}, p)
}

// CallerOf returns the principal on whose behalf a request is answered: the authenticated principal over HTTP, the
// configured one over stdio. Without one it returns the zero Principal, for which the engine denies everything.
func CallerOf(ctx context.Context) engine.Principal {
	p, _ := ctx.Value(callerKey{}).(engine.Principal)
	return p
}

// Client is what the client reported about itself: during initialize, or in 2026-07-28 with each request.
type Client struct {
	Name         string                  // "" if not reported
	Capabilities *mcp.ClientCapabilities // nil if not reported
	Remote       bool                    // over HTTP
	Modern       bool                    // 2026-07-28, without initialize
}

// ClientOf returns the client of a request. Outside of a request it returns the zero Client.
func ClientOf(ctx context.Context) Client {
	r := requestOf(ctx)
	if r == nil {
		return Client{}
	}
	if info := server.RequestProtocolInfoFromContext(ctx); info != nil && info.Modern {
		c := Client{Capabilities: info.ClientCapabilities, Remote: r.remote, Modern: true}
		if info.ClientInfo != nil {
			c.Name = info.ClientInfo.Name
		}
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Client{Name: r.clientInfo.Name, Capabilities: r.capabilities, Remote: r.remote}
}

// Notify sends a notification that belongs to the context's request. It is written before the request's answer.
func Notify(ctx context.Context, method string, params map[string]any) error {
	r := requestOf(ctx)
	if r == nil {
		return errRequesterClosed
	}
	if err := r.write(notificationLine(method, nil, params)); !errors.Is(err, errNoEvents) {
		return err
	}
	return nil // the client does not accept events, so the notification is dropped
}

// The methods below implement mcp-go's session interfaces. In 2026-07-28, client details belong to one request, so
// the setters discard them.

func (r *request) SessionID() string                                   { return r.id }
func (r *request) Initialize()                                         {}
func (r *request) Initialized() bool                                   { return true }
func (r *request) NotificationChannel() chan<- mcp.JSONRPCNotification { return r.notices }
func (r *request) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	return r.filter, r.stream != nil
}
func (r *request) GetClientInfo() mcp.Implementation                    { return r.clientInfo }
func (r *request) GetClientCapabilities() (none mcp.ClientCapabilities) { return none }
func (r *request) SubscribeToResource(string)                           {}
func (r *request) SubscribedResources() []string                        { return nil }
func (r *request) IsSubscribedToResource(string) bool                   { return false }
func (r *request) UnsubscribeFromResource(uri string)                   { r.watch.remove(r.stream, uri) }

// SetSubscriptionFilter stores the filter of subscriptions/listen. It ignores the empty filter that mcp-go sets at
// the end.
func (r *request) SetSubscriptionFilter(f mcp.SubscriptionFilter) {
	if !f.IsEmpty() {
		r.filter = f
	}
}

// SubscribeToResourceErr subscribes to one more resource.
func (r *request) SubscribeToResourceErr(uri string) error {
	if err := r.watch.add(r.ctx, r.stream, uri); err != nil {
		return r.watch.resources.Explain(r.ctx, uri, err)
	}
	return nil
}

func (r *request) SetClientInfo(info mcp.Implementation) {
	if !r.modern {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.clientInfo = info
	}
}

func (r *request) SetClientCapabilities(c mcp.ClientCapabilities) {
	if !r.modern {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.capabilities = &c
	}
}

func (r *request) SetLogLevel(level mcp.LoggingLevel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.level = level
}

func (r *request) GetLogLevel() mcp.LoggingLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.level
}

var (
	_ server.SessionWithResourceSubscriptionsErr = (*request)(nil)
	_ server.SessionWithSubscriptionFilter       = (*request)(nil)
	_ server.SessionWithClientInfo               = (*request)(nil)
	_ server.SessionWithLogging                  = (*request)(nil)
)

// maxPendingQuestions limits the questions pending with one client, since each keeps a call waiting.
const maxPendingQuestions = 4

var (
	errTooManyQuestions    = errors.New("too many questions are already waiting")
	errNoAnswer            = errors.New("the client answered with an error")
	errRequesterClosed     = errors.New("the client is gone")
	errRequestsUnsupported = errors.New("servers send no requests in 2026-07-28")
)

// requester sends requests to one client and passes the answers to the calls that wait for them.
type requester struct {
	mu       sync.Mutex
	n        int
	pending  map[string]chan json.RawMessage
	isClosed bool
	done     chan struct{} // closed once no answer can arrive
}

func newRequester() *requester {
	return &requester{pending: map[string]chan json.RawMessage{}, done: make(chan struct{})}
}

// Ask sends a request to the context's client and returns the result. In 2026-07-28 it returns an error, because
// servers may not send requests. If ctx ends first, Ask cancels the request.
func Ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	r := requestOf(ctx)
	switch {
	case r == nil:
		return nil, errRequesterClosed
	case r.modern:
		return nil, errRequestsUnsupported
	}
	id, reply, err := r.requester.open()
	if err != nil {
		return nil, err
	}
	defer r.requester.close(id)
	if err := r.write(encodeLine(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "id": id, "method": method, "params": params})); err != nil {
		return nil, err
	}
	select {
	case result := <-reply:
		if result == nil {
			return nil, errNoAnswer
		}
		return result, nil
	case <-r.requester.done:
		return nil, errRequesterClosed
	case <-ctx.Done():
		// If this write fails, it also ends the connection.
		_ = r.write(notificationLine(methodCancelled, nil, map[string]any{"requestId": id, "reason": "The answer did not come in time."}))
		return nil, context.Cause(ctx)
	}
}

func (a *requester) open() (id string, reply chan json.RawMessage, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.isClosed:
		return "", nil, errRequesterClosed
	case len(a.pending) >= maxPendingQuestions:
		return "", nil, errTooManyQuestions
	}
	a.n++
	id, reply = "gavel-"+strconv.Itoa(a.n), make(chan json.RawMessage, 1)
	a.pending[id] = reply
	return id, reply, nil
}

func (a *requester) close(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, id)
}

// deliver passes an answer to the waiting call. It returns false if no call waits for it.
func (a *requester) deliver(m message) bool {
	if len(m.id) == 0 || m.id[0] != '"' {
		return false
	}
	id := document.ReadTrusted(m.id).Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := a.pending[id]
	if reply == nil {
		return false
	}
	delete(a.pending, id) // a second answer is not delivered
	reply <- m.result
	return true
}

// end stops every wait, because no answer can arrive.
func (a *requester) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isClosed {
		a.isClosed = true
		close(a.done)
	}
}
