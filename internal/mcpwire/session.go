package mcpwire

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

// session is what belongs to one client's connection, over HTTP to its protocol session, or
// to one request of a client that has none.
type session struct {
	id     string // over HTTP, in the eras with initialize
	remote bool   // over HTTP
	asks   *asker
	watch  *watch

	mu           sync.Mutex
	clientInfo   mcp.Implementation      // of an initialize
	capabilities *mcp.ClientCapabilities // likewise
	level        mcp.LoggingLevel
}

// newSession returns a session whose changes are written with write.
func (w *Wire) newSession(remote bool, write func(line []byte) error) *session {
	return &session{remote: remote, asks: newAsker(), watch: newWatch(w.cfg.Resources, w.cfg.Limits.Settle, write)}
}

// request is one request while it is answered, and mcp-go's view of its session.
type request struct {
	*session
	ctx   context.Context //nolint:containedctx // mcp-go asks about subscriptions without one
	write func(line []byte) error
	// modern is true in the era without sessions.
	modern bool
	// failure is the error that a handler of mcp-go's server returned.
	failure *Error
	// Of subscriptions/listen: its id, the acknowledgement, and what it asks for.
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

// WithCaller returns a context that knows on whose behalf requests are answered.
func WithCaller(ctx context.Context, p engine.Principal) context.Context {
	return context.WithValue(ctx, callerKey{}, p)
}

// CallerOf returns on whose behalf a request is answered: over HTTP whom it was
// authenticated as, over stdio whom the configuration names. Without one it is nobody, whom
// the engine refuses everything.
func CallerOf(ctx context.Context) engine.Principal {
	p, _ := ctx.Value(callerKey{}).(engine.Principal)
	return p
}

// Client is what the client of a request said of itself: in the eras with initialize then,
// in 2026-07-28 with the request.
type Client struct {
	Name         string                  // "" if it did not say
	Capabilities *mcp.ClientCapabilities // nil if it did not say
	Remote       bool                    // over HTTP
	Modern       bool                    // of the era without initialize
}

// ClientOf returns the client of a request, the zero value outside of one.
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

// Notify sends the client of a request a notification that belongs to it. It arrives before
// the answer.
func Notify(ctx context.Context, method string, params map[string]any) error {
	r := requestOf(ctx)
	if r == nil {
		return errAskEnded
	}
	if err := r.write(notificationLine(method, nil, params)); !errors.Is(err, errNoEvents) {
		return err
	}
	return nil // such a client does without notifications
}

// What mcp-go wants to know of a session. What it is told of a client in the era without
// initialize is of one request, and not kept.

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

// SetSubscriptionFilter takes what a subscriptions/listen asks for; at its end mcp-go sets none.
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

// mostAsked is how many questions may wait for a client at once. Each keeps a call waiting.
const mostAsked = 4

var (
	errAskedEnough = errors.New("too many questions wait already")
	errNoAnswer    = errors.New("the client answered with an error")
	errAskEnded    = errors.New("the client is gone")
	errMayNotAsk   = errors.New("servers send no requests in 2026-07-28")
)

// asker sends requests to one client, and hands the answers to the calls that wait for them.
type asker struct {
	mu      sync.Mutex
	n       int
	waiting map[string]chan json.RawMessage
	over    bool
	ended   chan struct{} // closed once nobody can answer any more
}

func newAsker() *asker {
	return &asker{waiting: map[string]chan json.RawMessage{}, ended: make(chan struct{})}
}

// Ask asks the client of a request and returns its result. It is an error in 2026-07-28, where
// servers may not. A question that is given up is cancelled.
func Ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	r := requestOf(ctx)
	switch {
	case r == nil:
		return nil, errAskEnded
	case r.modern:
		return nil, errMayNotAsk
	}
	id, reply, err := r.asks.open()
	if err != nil {
		return nil, err
	}
	defer r.asks.close(id)
	if err := r.write(encodeLine(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "id": id, "method": method, "params": params})); err != nil {
		return nil, err
	}
	select {
	case result := <-reply:
		if result == nil {
			return nil, errNoAnswer
		}
		return result, nil
	case <-r.asks.ended:
		return nil, errAskEnded
	case <-ctx.Done():
		// If this cannot be written, the connection ends for it.
		_ = r.write(notificationLine(methodCancelled, nil, map[string]any{"requestId": id, "reason": "The answer did not come in time."}))
		return nil, context.Cause(ctx)
	}
}

func (a *asker) open() (id string, reply chan json.RawMessage, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return "", nil, errAskEnded
	case len(a.waiting) >= mostAsked:
		return "", nil, errAskedEnough
	}
	a.n++
	id, reply = "gavel-"+strconv.Itoa(a.n), make(chan json.RawMessage, 1)
	a.waiting[id] = reply
	return id, reply, nil
}

func (a *asker) close(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
}

// deliver takes an answer, and is false for one that no call waits for.
func (a *asker) deliver(m message) bool {
	if len(m.id) == 0 || m.id[0] != '"' {
		return false
	}
	id := document.Known(m.id).Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := a.waiting[id]
	if reply == nil {
		return false
	}
	delete(a.waiting, id) // nobody waits for a second answer
	reply <- m.result
	return true
}

// end ends every wait: no answer can come.
func (a *asker) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.over = true
		close(a.ended)
	}
}
