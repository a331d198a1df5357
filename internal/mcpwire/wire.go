// Package mcpwire speaks the Model Context Protocol: JSON-RPC over stdio and over HTTP,
// sessions, streams, limits, and both protocol eras, those with initialize and 2026-07-28.
// It parses each message once. It hands what is about other servers to Foreign, tools/call to
// Tools, and everything else to mcp-go's MCPServer.HandleMessage, which knows no transport.
//
// It promises that a tool gets its arguments byte for byte as the client sent them, that what
// other servers list, answer and refuse reaches the client byte for byte, that a
// message which a decoder would change on its way is answered and not passed on, and that
// ids come back as they were sent. Over stdio, stdout carries protocol only, a cancelled
// request is not answered, and a connection ends as soon as its requests have. Over HTTP,
// nothing is done for a caller that is not authenticated, a session belongs to the principal
// that began it, no notification between a call and its answer is lost, and what callers
// hold at once is bounded. A client that subscribed to a resource gets changes within a
// moment, whichever process made them.
//
// It must never decide about rights or rules, show the text of an unknown error, or know
// what a tool does. Faces import it; it imports none.
package mcpwire

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

// Tools are this server's own. What a principal may see is theirs to say.
type Tools interface {
	// List returns the tools that a principal sees, in the order in which they are listed.
	List(context.Context, engine.Principal) ([]mcp.Tool, error)
	// Call runs one tool. What the tool could not do is a result; an *Error is why the
	// call itself is wrong; the text of any other error stays in the log.
	Call(context.Context, engine.Principal, Call) (*mcp.CallToolResult, error)
	// Changed returns a channel that is closed once List may answer the principal
	// something else than now; nil if it never does.
	Changed(engine.Principal) <-chan struct{}
}

// Call is one tools/call.
type Call struct {
	Name      string
	Arguments json.RawMessage // as the client sent them; nil without any
	Meta      json.RawMessage // likewise
	// The answers that a client of the era without server requests repeats a call with.
	mcp.MultiRoundTripParams
}

// Resources are what a client can subscribe to.
type Resources interface {
	// Look returns the position of a resource; an error if it does not exist for the caller
	// of the context, or announces no changes.
	Look(ctx context.Context, uri string) (Sight, error)
	// Explain turns an error about a resource into what a client is answered.
	Explain(ctx context.Context, uri string, err error) *Error
	// Feed reports what happened.
	Feed() *engine.Feed
}

// Config is what a Wire is made of. Tools and Logger are required.
type Config struct {
	Info      mcp.Implementation    // who the server is
	Options   []server.ServerOption // of mcp-go's server; not its hooks
	Hooks     server.Hooks          // of mcp-go's server
	Tools     Tools
	Foreign   Foreign   // nil: there is nothing of other servers
	Resources Resources // nil: nothing announces changes
	Logger    *slog.Logger
	Limits    Limits
	// StillValid is asked, as often as Limits.Alive says, about the credential that an open
	// stream was opened with; the stream ends when it is false. nil: it is valid until it
	// expires.
	StillValid func(context.Context, auth.Identity) bool
}

// Wire serves one server: to one client over stdio, or to many over HTTP.
type Wire struct {
	// Server is mcp-go's. Resources, prompts and completions are added to it.
	Server *server.MCPServer
	cfg    Config
}

// New returns a Wire whose server has no resources and prompts yet.
func New(cfg Config) (*Wire, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Tools == nil || cfg.Logger == nil || cfg.Limits.MaxLine < 1024 {
		return nil, errors.New("mcpwire: config needs Tools, Logger and a MaxLine of at least 1024")
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

// outcome is what a request came to: a result, or why there is none.
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

// handle has mcp-go answer. An error that a handler or hook returned is taken from the
// request, where noteError put it: mcp-go has one code for all of them.
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

// encodeResult writes what mcp.CallToolResult's MarshalJSON does, but each part once. Its
// StructuredContent is taken as it is where it is a json.RawMessage: valid, and one line.
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
	add("structuredContent", len(r.RawStructuredContent) > 0, &r.RawStructuredContent) // another server's: in lines perhaps
	b[len(b)-1] = '}'
	return b, failed
}

// decorate adds what the era without sessions wants in every result.
func (w *Wire) decorate(r *mcp.CallToolResult) {
	r.ResultType = cmp.Or(r.ResultType, mcp.ResultTypeComplete)
	if meta := r.EnsureResultMeta(); meta.ServerInfo() == nil {
		meta.SetServerInfo(w.cfg.Info)
	}
}

// listen answers subscriptions/listen, which lasts until its context ends. mcp-go sends the
// acknowledgement over the request's channel; what the request subscribed to follows it.
func (w *Wire) listen(r *request, m message) outcome {
	if !floatKeeps(m.id) {
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
		if r.remote { // over stdio one watch serves the whole connection
			r.watch.run(ctx)
		}
	})
	out := w.handle(r, m)
	close(r.notices)
	end()
	background.Wait()
	return out
}

// readInfo reads which era a request belongs to, as mcp-go does for those that it answers.
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
