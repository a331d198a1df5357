// Package foreign serves the tools, resources, resource templates and prompts of other MCP servers through wire,
// under names that begin with the server's name.
//
// It promises that:
//
//   - definitions, answers and errors reach the client as the server wrote them, except that names and URIs get the
//     server's name as a prefix;
//   - progress arrives before the answer;
//   - the definition of a tool with a gate names the states in which it can be called;
//   - a change is announced to exactly those principals whose lists it changes;
//   - a principal cannot tell an item that it may not use from one that does not exist.
//
// It must never reach a server except through Upstreams, decide who may use an item, or trust text from a server. Only
// the gateway module imports it.
package foreign

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Upstreams is the only way to reach other servers. It is implemented by upstream.Manager.
type Upstreams interface {
	List(p engine.Principal, kind upstream.Kind) []upstream.Item
	Resolve(kind upstream.Kind, public string) (server, name string, ok bool)
	Call(ctx context.Context, p engine.Principal, req upstream.Request) (upstream.Reply, error)
}

// Face implements wire.Foreign. It is safe for concurrent use.
type Face struct {
	log *slog.Logger

	mu        sync.Mutex
	upstreams Upstreams // nil before Serve, which means no items
	waiting   map[list]chan struct{}
}

// list identifies one list of one principal, as the key of the channels that report its changes.
type list struct {
	principal engine.Principal
	kind      wire.Kind
}

var _ wire.Foreign = (*Face)(nil)

// New returns a Face without servers.
func New(log *slog.Logger) *Face {
	return &Face{log: log, waiting: map[list]chan struct{}{}}
}

// Serve replaces the upstreams whose tools, resources and prompts are served, and notifies clients whose lists change.
func (f *Face) Serve(upstreams Upstreams) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.upstreams
	f.upstreams = upstreams
	for l, changed := range f.waiting {
		if !slices.EqualFunc(listOf(before, l), listOf(upstreams, l), isSameItem) {
			close(changed)
			delete(f.waiting, l)
		}
	}
}

func listOf(upstreams Upstreams, l list) []upstream.Item {
	if upstreams == nil {
		return nil
	}
	return upstreams.List(l.principal, upstream.Kind(l.kind))
}

func isSameItem(a, b upstream.Item) bool { return a.Public == b.Public && bytes.Equal(a.Raw, b.Raw) }

// Announce notifies clients whose list may have changed. It is meant for upstream.Options.Changed.
func (f *Face) Announce(c upstream.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l, changed := range f.waiting {
		if l.kind == wire.Kind(c.Kind) && c.Affects(l.principal) {
			close(changed)
			delete(f.waiting, l)
		}
	}
}

// Changed implements wire.Foreign.
func (f *Face) Changed(p engine.Principal, kind wire.Kind) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := list{p, kind}
	if f.waiting[l] == nil {
		f.waiting[l] = make(chan struct{})
	}
	return f.waiting[l]
}

func (f *Face) current() Upstreams {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.upstreams
}

// List implements wire.Foreign.
func (f *Face) List(p engine.Principal, kind wire.Kind) (items []wire.Item) {
	for _, item := range listOf(f.current(), list{p, kind}) {
		if isListable(item) {
			items = append(items, publishItem(item))
		}
	}
	slices.SortFunc(items, func(a, b wire.Item) int { return cmp.Compare(a.Name, b.Name) })
	return items
}

// Find implements wire.Foreign.
func (f *Face) Find(ctx context.Context, kind wire.Kind, name string) (wire.Item, bool) {
	upstreams := f.current()
	if upstreams == nil || !isPrefixed(kind, name) {
		return wire.Item{}, false
	}
	items := upstreams.List(wire.CallerOf(ctx), upstream.Kind(kind))
	i := slices.IndexFunc(items, func(i upstream.Item) bool { return i.Public == name })
	if i < 0 {
		return wire.Item{}, false
	}
	return publishItem(items[i]), true
}

// isPrefixed reports whether a name may be a server's. It is a cheap test that rules out gavel's own names.
func isPrefixed(kind wire.Kind, name string) bool {
	if kind == wire.Tool || kind == wire.Prompt {
		return strings.Contains(name, "__")
	}
	return strings.Contains(name, "+")
}

// Ask implements wire.Foreign.
func (f *Face) Ask(ctx context.Context, p engine.Principal, r wire.Request) (wire.Reply, error) {
	upstreams := f.current()
	if upstreams == nil || !isPrefixed(r.Kind, r.Name) {
		return wire.Reply{}, wire.ErrNotForeign
	}
	server, name, ok := upstreams.Resolve(upstream.Kind(r.Kind), r.Name)
	if !ok {
		return wire.Reply{}, wire.ErrNotForeign
	}
	meta := document.ReadTrusted(r.Params).Get("_meta")
	relay := newRelay(ctx, meta.Get("progressToken"))
	reply, err := upstreams.Call(ctx, p, upstream.Request{
		Upstream: server, Method: r.Method, Kind: upstream.Kind(r.Kind), Name: name, Params: r.Params,
		Progress: relay.progress(), Trace: meta.Get("traceparent").Text(), Capabilities: clientCapabilities(ctx, meta),
	})
	relay.finish()
	if err != nil {
		return f.explain(ctx, r, server, err)
	}
	return wire.Reply{Result: prefixURIs(server, r.Kind, reply.Result), Error: reply.Error}, nil
}

// metaCapabilities is the member of _meta in which a client declares its capabilities.
const metaCapabilities = "io.modelcontextprotocol/clientCapabilities"

// clientCapabilities returns the capabilities that let a server ask the client for input: elicitation, sampling and roots. A
// client of protocol 2026-07-28 declares them with each request. For an older client, which a result cannot ask,
// clientCapabilities returns nil.
func clientCapabilities(ctx context.Context, meta document.JSON) json.RawMessage {
	if !wire.ClientOf(ctx).Modern {
		return nil
	}
	return meta.Get(metaCapabilities).Edit(func(name string, declared document.JSON) json.RawMessage {
		if name == "elicitation" || name == "sampling" || name == "roots" {
			return declared.Raw()
		}
		return nil
	})
}

// The JSON-RPC codes of errors that did not come from another server.
const (
	rpcInvalidParams = -32602
	rpcInternalError = -32603
)

// codeCancelled is the code of a call that its client cancelled.
const codeCancelled = "cancelled"

// failure describes why a server did not answer, with the fields of gavel's other errors.
type failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Retryable bool   `json:"retryable"`
	// MayHaveRun is set if the server may have performed the request.
	MayHaveRun   bool                  `json:"mayHaveRun,omitempty"`
	RetryAfterMs document.Milliseconds `json:"retryAfterMs,omitempty"`
	// Workflow is the current position of the call's workflow.
	Workflow *upstream.Standing `json:"workflow,omitempty"`
}

// retryable lists the codes of failures that may be temporary.
var retryable = []upstream.Code{upstream.CodeUnavailable, upstream.CodeBusy, upstream.CodeTimeout, upstream.CodeLost}

// internalFailures lists the engine's codes whose cause is for operators only, so it is logged.
var internalFailures = []upstream.Code{upstream.Code(engine.CodeInternal), upstream.Code(engine.CodeUnavailable)}

// explain converts the error of a call to a reply. A tool call gets a result with isError, which the model reads.
// Other requests get a JSON-RPC error, because their results cannot express failure.
func (f *Face) explain(ctx context.Context, r wire.Request, server string, err error) (wire.Reply, error) {
	e, known := errors.AsType[*upstream.Error](err)
	switch {
	case known && e.Code == upstream.CodeUnknown:
		return wire.Reply{}, wire.ErrNotForeign
	case !known && ctx.Err() == nil:
		return wire.Reply{}, err // a defect
	case !known:
		e = &upstream.Error{Code: codeCancelled, Message: "The call was cancelled.", Hint: "The server was asked to stop; it may have done a part.", MayHaveRun: true}
	}
	if e.Err != nil && slices.Contains(internalFailures, e.Code) { // the upstreams log failures of servers, without secrets
		f.log.ErrorContext(ctx, "could not answer", "server", server, "method", r.Method, "name", r.Name, "code", string(e.Code), "cause", e.Err.Error())
	}
	failed := failure{
		Code: string(e.Code), Message: e.Message, Hint: e.Hint, MayHaveRun: e.MayHaveRun, RetryAfterMs: document.Milliseconds(e.RetryAfter),
		Retryable: (e.Retryable || slices.Contains(retryable, e.Code)) && !e.MayHaveRun, Workflow: e.Standing,
	}
	if r.Kind != wire.Tool || errors.Is(e, clientstate.ErrState) { // no model wrote a requestState
		code := rpcInternalError
		if e.Code == upstream.CodeInvalid {
			code = rpcInvalidParams
		}
		return wire.Reply{}, &wire.Error{Code: code, Message: strings.TrimSpace(failed.Message + " " + failed.Hint), Data: failed}
	}
	text, err := document.Marshal(map[string]failure{"error": failed})
	if err != nil {
		return wire.Reply{}, err
	}
	result := append([]byte(`{"content":[{"type":"text","text":`), document.AppendQuote(nil, string(text))...)
	return wire.Reply{Result: append(result, `}],"isError":true}`...)}, nil
}

// relay passes the progress of a call to its client, in order and before the answer. It never blocks the reader of the
// server's messages.
type relay struct {
	ctx   context.Context //nolint:containedctx // the relay's lifetime is that of the request
	token json.RawMessage // the client's; nil if it wants no progress

	mu      sync.Mutex
	queue   []json.RawMessage
	running bool
	done    sync.WaitGroup
}

// maxQueued limits the notifications queued for a client that does not read. More are dropped.
const maxQueued = 1000

func newRelay(ctx context.Context, token document.JSON) *relay {
	return &relay{ctx: ctx, token: token.Raw()}
}

func (r *relay) progress() func(json.RawMessage) {
	if r.token == nil {
		return nil
	}
	return r.add
}

func (r *relay) add(params json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxQueued {
		return
	}
	r.queue = append(r.queue, params)
	if !r.running {
		r.running = true
		r.done.Go(r.run)
	}
}

func (r *relay) run() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		params := map[string]any{}
		for name, value := range document.ReadTrusted(next).Members() {
			params[name.Text()] = value.Raw()
		}
		params["progressToken"] = r.token
		_ = wire.Notify(r.ctx, "notifications/progress", params) // fails only if the client is gone
	}
}

// finish waits until all queued progress is sent.
func (r *relay) finish() { r.done.Wait() }
