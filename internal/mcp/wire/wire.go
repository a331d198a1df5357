// Package wire implements the Model Context Protocol over JSON-RPC: stdio and HTTP transports, sessions, streams,
// limits, and all protocol versions: 2026-07-28, and the older ones, which begin with initialize. It parses each message
// once. Requests for entries of other servers go to Foreign, other tools/call requests go to Tools, and everything else
// goes to mcp-go's MCPServer.HandleMessage, which is independent of the transport.
//
// Guarantees:
//   - A tool receives its arguments byte for byte as the client sent them.
//   - Lists, answers and errors of other servers reach the client byte for byte.
//   - A message whose content would change when it is decoded is answered with an error and not passed on.
//   - Ids are returned as they were sent.
//   - Over stdio, stdout carries only protocol messages, and a cancelled request gets no answer. Once stdin has ended,
//     the connection ends as soon as its requests have ended.
//   - Over HTTP, unauthenticated callers are rejected, and a session belongs to the principal that started it. No
//     notification between a call and its answer is lost, and the concurrent use by each caller is limited.
//   - A client that subscribed to a resource is promptly notified of changes, whichever process made them.
//
// It must never decide about rights or rules, expose the text of an unknown error, or know what a tool does. The packages
// that define gavel's MCP tools and resources import it, never the other way round.
package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Tools are this server's own tools. The implementation decides what a principal may see.
type Tools interface {
	// List returns the tools that a principal may see, in listing order.
	List(context.Context, engine.Principal) ([]mcp.Tool, error)
	// Call runs one tool. A failure of the tool itself is a result. An *Error means that the call is invalid. The
	// text of any other error is only logged.
	Call(context.Context, engine.Principal, Call) (*mcp.CallToolResult, error)
	// Changed returns a channel that is closed once List may return something different for the principal, or nil if
	// that never happens.
	Changed(engine.Principal) <-chan struct{}
}

// Call is one tools/call request.
type Call struct {
	Name      string
	Arguments json.RawMessage // as the client sent them; nil if absent
	Meta      json.RawMessage // as the client sent it; nil if absent
	// The client's answers to questions about the call. In 2026-07-28 a server may not send requests: it asks in a
	// result, and the client repeats the call with the answers.
	mcp.MultiRoundTripParams
}

// Resources are the resources that clients can subscribe to.
type Resources interface {
	// Look returns the position of a resource. It returns an error if the resource does not exist for the context's
	// caller, or does not announce changes.
	Look(ctx context.Context, uri string) (ResourcePosition, error)
	// Explain converts an error about a resource to the one that the client receives.
	Explain(ctx context.Context, uri string, err error) *Error
	// Feed returns the feed of changes.
	Feed() *engine.Feed
}

// Config configures a Wire. Tools and Logger are required.
type Config struct {
	Info      mcp.Implementation    // identifies this server
	Options   []server.ServerOption // for mcp-go's server, without hooks
	Hooks     server.Hooks          // for mcp-go's server
	Tools     Tools
	Foreign   Foreign   // nil: no entries of other servers
	Resources Resources // nil: no resource announces changes
	Logger    *slog.Logger
	Limits    Limits
	// StillValid reports whether the credential that opened a stream is still valid. It is called at the interval
	// Limits.Alive, and a stream ends when it returns false. If it is nil, a credential is valid until it expires.
	StillValid func(context.Context, auth.Identity) bool
}

// Wire serves one MCP server to one client over stdio, or to many over HTTP.
type Wire struct {
	// Server is mcp-go's server. Callers add resources, prompts and completions to it.
	Server *server.MCPServer
	cfg    Config
}

// New returns a Wire whose server has no resources or prompts yet.
func New(cfg Config) (*Wire, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Tools == nil || cfg.Logger == nil || cfg.Limits.MaxLine < 1024 {
		return nil, errors.New("mcp: config needs Tools, Logger and a MaxLine of at least 1024")
	}
	if cfg.StillValid == nil {
		cfg.StillValid = func(context.Context, auth.Identity) bool { return true }
	}
	w := &Wire{cfg: cfg}
	hooks := &cfg.Hooks
	hooks.AddOnError(noteError)
	hooks.AddAfterListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
		tools, err := cfg.Tools.List(ctx, CallerOf(ctx))
		if err != nil {
			requestOf(ctx).failure = w.explain(ctx, string(mcp.MethodToolsList), err)
			return
		}
		result.Tools = slices.Concat([]mcp.Tool{}, tools)
	})
	w.Server = server.NewMCPServer(cfg.Info.Name, cfg.Info.Version,
		slices.Concat([]server.ServerOption{server.WithTitle(cfg.Info.Title)}, cfg.Options, []server.ServerOption{server.WithHooks(hooks)})...)
	return w, nil
}

// outcome is a request's result, or its error.
type outcome struct {
	result any
	err    *Error
}

func (w *Wire) answer(r *request, m message) (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = outcome{err: w.explain(r.ctx, m.method, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))}
		}
	}()
	info, err := readInfo(m.protocol)
	if err != nil {
		return outcome{err: err}
	}
	r.modern = info.Modern
	r.ctx = server.WithRequestProtocolInfo(context.WithValue(r.ctx, requestKey{}, r), info)
	if out, ok := w.answerForeign(r, m); ok {
		return out
	}
	switch m.method {
	case methodCallTool:
		return w.call(r, m)
	case methodListen:
		return w.listen(r, m)
	}
	if kind, member := listedBy(m.method); kind != "" {
		return w.list(r, m, kind, member)
	}
	return w.handle(r, m)
}

// handle lets mcp-go answer. mcp-go has one code for all errors of handlers and hooks. So if noteError has stored an
// error in the request, handle returns that error instead.
func (w *Wire) handle(r *request, m message) outcome {
	answer := w.Server.HandleMessage(w.Server.WithContext(r.ctx, r), m.line)
	if r.failure != nil {
		return outcome{err: r.failure}
	}
	switch a := answer.(type) {
	case mcp.JSONRPCResponse:
		return outcome{result: a.Result}
	case mcp.JSONRPCError:
		return outcome{err: &Error{Code: a.Error.Code, Message: a.Error.Message, Data: a.Error.Data}}
	default:
		return outcome{err: w.explain(r.ctx, m.method, fmt.Errorf("mcp-go answers with %T", answer))}
	}
}

func (w *Wire) call(r *request, m message) outcome {
	c := Call{Name: m.name, Arguments: m.arguments, Meta: m.meta}
	if m.wrongType != nil {
		return outcome{err: m.wrongType}
	}
	if m.repeats {
		if err := json.Unmarshal(m.params, &c.MultiRoundTripParams); err != nil {
			return outcome{err: explainParams(err)}
		}
	}
	result, err := w.cfg.Tools.Call(r.ctx, CallerOf(r.ctx), c)
	if err != nil {
		return outcome{err: w.explain(r.ctx, m.method, err)}
	}
	if r.modern {
		w.decorate(result)
	}
	doc, err := encodeResult(result)
	if err != nil {
		return outcome{err: w.explain(r.ctx, m.method, err)}
	}
	return outcome{result: doc}
}

// encodeResult does the same as the method MarshalJSON of mcp.CallToolResult, but encodes each part only once.
// StructuredContent of type json.RawMessage is copied unchanged; it must be valid and on one line.
func encodeResult(r *mcp.CallToolResult) (json.RawMessage, error) {
	b := []byte{'{'}
	var failed error
	write := func(v any) {
		doc, ok := v.(json.RawMessage)
		if !ok {
			var err error
			doc, err = document.Marshal(v)
			failed = errors.Join(failed, err)
		}
		b = append(append(b, doc...), ',')
	}
	add := func(key string, given bool, v any) {
		if given {
			b = append(append(append(b, '"'), key...), `":`...)
			write(v)
		}
	}
	add("_meta", r.Meta != nil, r.Meta)
	b = append(b, `"content":[`...)
	for _, c := range r.Content {
		if text, ok := c.(mcp.TextContent); ok && text.Annotations == nil && text.Meta == nil {
			b = slices.Grow(b, len(text.Text)*9/4) // the structured content is often as long
			b = document.AppendQuote(append(b, `{"type":"text","text":`...), strings.ToValidUTF8(text.Text, "\uFFFD"))
			b = append(b, "},"...)
			continue
		}
		write(c)
	}
	b = append(bytes.TrimSuffix(b, []byte{','}), "],"...)
	add("inputRequests", len(r.InputRequests) > 0, r.InputRequests)
	add("isError", r.IsError, true)
	add("requestState", r.RequestState != "", r.RequestState)
	add("resultType", r.ResultType != "", r.ResultType)
	add("structuredContent", r.StructuredContent != nil && len(r.RawStructuredContent) == 0, r.StructuredContent)
	add("structuredContent", len(r.RawStructuredContent) > 0, &r.RawStructuredContent) // from another server, so it may span lines
	b[len(b)-1] = '}'
	return b, failed
}

// decorate adds members that 2026-07-28 requires in every result.
func (w *Wire) decorate(r *mcp.CallToolResult) {
	r.ResultType = cmp.Or(r.ResultType, mcp.ResultTypeComplete)
	if meta := r.EnsureResultMeta(); meta.ServerInfo() == nil {
		meta.SetServerInfo(w.cfg.Info)
	}
}

// listen answers subscriptions/listen, which lasts until its context ends. mcp-go sends the acknowledgement over the
// request's channel; notifications follow it.
func (w *Wire) listen(r *request, m message) outcome {
	if !survivesFloat(m.id) {
		return outcome{err: invalidRequest("The id names the subscription in every notification, and a 64-bit float would change it.", "Send a string, or a smaller integer.")}
	}
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	r.ctx, r.stream, r.notices = ctx, m.id, make(chan mcp.JSONRPCNotification, 1)
	var background sync.WaitGroup
	background.Go(func() {
		acknowledged, ok := <-r.notices
		lists := w.changingLists(CallerOf(ctx), &r.filter)
		if !ok || r.write(encodeLine(acknowledged)) != nil {
			return
		}
		background.Go(func() { announceLists(ctx, lists, m.id, r.write) })
		if r.remote { // over stdio, one watch serves the whole connection
			r.watch.run(ctx)
		}
	})
	out := w.handle(r, m)
	close(r.notices)
	end()
	background.Wait()
	return out
}

// readInfo determines the protocol version of a request, as mcp-go does for the requests that it handles.
func readInfo(meta *mcp.Meta) (*server.RequestProtocolInfo, *Error) {
	version := meta.ProtocolVersion()
	if !mcp.IsModernProtocol(version) {
		return &server.RequestProtocolInfo{ProtocolVersion: version}, nil
	}
	if !mcp.IsValidProtocolVersion(version) {
		e := mcp.UnsupportedProtocolVersionError{Version: version, Supported: mcp.ValidProtocolVersions}.JSONRPCError().Error
		return nil, &Error{Code: e.Code, Message: e.Message, Data: e.Data}
	}
	info := &server.RequestProtocolInfo{
		Modern: true, ProtocolVersion: version, ClientInfo: meta.ClientInfo(), ClientCapabilities: meta.ClientCapabilities(), LogLevel: meta.LogLevel(),
	}
	if info.ClientCapabilities == nil {
		return nil, newError(codeInvalidParams, "invalid_request", "The member params._meta has no valid "+mcp.MetaKeyClientCapabilities+".", "Send the client's capabilities with every request; an empty object is valid.")
	}
	return info, nil
}
