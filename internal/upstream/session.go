package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/validators/document"
)

// session is one conversation with an upstream, of one era.
type session struct {
	server  *server
	link    link
	version string // of the protocol
	// capabilities and info are what the upstream says of itself.
	capabilities, info document.JSON
	lastID             atomic.Int64

	mu      sync.Mutex
	pending map[string]*pending
	checks  map[Kind]*check
}

// pending is a request that was not answered yet.
type pending struct {
	answer   chan frame // holds one
	progress func(json.RawMessage)
	failed   chan *linkError // holds one: the answer cannot be handed on
}

// check is what was seen when a kind's definitions were last compared with the pins.
type check struct {
	at    time.Time
	stale bool
	// scheduled says that a comparison begins soon.
	scheduled bool
	running   chan struct{} // closed when the comparison that runs has ended
	err       error
}

func (s *session) isModern() bool { return s.version == ModernVersion }

// receive implements receiver.
func (s *session) receive(f frame) {
	switch {
	case f.isResponse():
		s.mu.Lock()
		p := s.pending[f.id]
		delete(s.pending, f.id) // a second answer, or one to another id, is nobody's
		s.mu.Unlock()
		if p != nil {
			p.answer <- f
		}
	case f.id != "":
		go s.respond(f) // the reader must not wait for the writer
	case f.method == string(mcp.MethodNotificationProgress):
		params := readChecked(f.params)
		s.mu.Lock()
		p := s.pending[string(params.Get("progressToken").Raw())]
		s.mu.Unlock()
		if p != nil && p.progress != nil {
			p.progress(rewriteMembers(f.params, map[string]json.RawMessage{"progressToken": nil}))
		}
	default:
		if kinds := listChanged[f.method]; kinds != nil {
			s.server.markStale(s, kinds)
		}
	}
}

// listChanged are the kinds that a notification is about.
var listChanged = map[string][]Kind{
	string(mcp.MethodNotificationToolsListChanged):     {KindTool},
	string(mcp.MethodNotificationResourcesListChanged): {KindResource, KindTemplate},
	string(mcp.MethodNotificationPromptsListChanged):   {KindPrompt},
}

// receiveFailure implements receiver.
func (s *session) receiveFailure(id string, failure *linkError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known, p := range s.pending {
		if id == "" || id == known { // of an unknown id each may be the one
			delete(s.pending, known)
			p.failed <- failure
		}
	}
}

// maxResponses is how many requests of an upstream are answered at once.
const maxResponses = 16

// respond answers a request of the upstream's: a ping, and nothing else. gavel has told it so.
func (s *session) respond(f frame) {
	ctx, cancel := context.WithTimeout(context.Background(), pipeGrace)
	defer cancel()
	select {
	case s.server.responding <- struct{}{}:
		defer func() { <-s.server.responding }()
	default:
		return // it asks faster than it reads
	}
	answer := `"error":{"code":-32601,"message":"gavel does not offer this to servers"}`
	if f.method == string(mcp.MethodPing) {
		answer = `"result":{}`
	}
	_ = s.link.reply(ctx, []byte(`{"jsonrpc":"2.0","id":`+f.id+`,`+answer+`}`))
}

// ask sends a request and returns what it is answered. Until ctx ends, whose cause is then
// returned, and the upstream is asked to stop.
func (s *session) ask(ctx context.Context, m message, progress func(json.RawMessage)) (frame, error) {
	p := &pending{answer: make(chan frame, 1), failed: make(chan *linkError, 1), progress: progress}
	id := strconv.FormatInt(m.id, 10)
	s.mu.Lock()
	s.pending[id] = p
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pending, id)
		s.mu.Unlock()
	}()
	err := s.link.send(ctx, m)
	if err == nil {
		select {
		case f := <-p.answer:
			return f, nil
		case failure := <-p.failed:
			return frame{}, failure
		case <-s.link.gone():
			err = s.link.cause()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	select { // what came at the last moment counts
	case f := <-p.answer:
		return f, nil
	default:
	}
	if ctx.Err() != nil {
		s.cancel(m)
		return frame{}, context.Cause(ctx)
	}
	return frame{}, err
}

var errAnswerTooLong = &linkError{code: CodeProtocol, text: fmt.Sprintf("the answer is longer than %d MiB", maxFrame>>20), mayHaveRun: true}

// cancel tells the upstream that nobody waits for a request any more.
func (s *session) cancel(m message) {
	if m.method == string(mcp.MethodInitialize) || s.isModern() && s.server.URL != "" {
		return // over HTTP the end of the connection says it
	}
	params := s.withMeta(json.RawMessage(`{"requestId":`+strconv.FormatInt(m.id, 10)+`,"reason":"the caller does not wait any longer"}`), nil)
	s.server.goRun(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pipeGrace)
		defer cancel()
		_ = s.link.send(ctx, s.message(mcp.MethodNotificationCancelled, params, 0))
	})
}

// message completes a message with the headers that its era wants.
func (s *session) message(method mcp.MCPMethod, params json.RawMessage, id int64) message {
	return message{id: id, method: string(method), params: params, headers: mcp.StandardHeaders(s.version, method, params)}
}

// withMeta returns params with the _meta that the session's era wants: nothing of the
// client's own session, and of 2026-07-28 gavel's version, name and capabilities.
func (s *session) withMeta(params json.RawMessage, more map[string]json.RawMessage) json.RawMessage {
	replace := map[string]json.RawMessage{"progressToken": nil}
	for _, key := range []string{mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities, mcp.MetaKeyServerInfo, mcp.MetaKeyLogLevel, mcp.MetaKeySubscriptionID} {
		replace[key] = nil
	}
	if s.isModern() {
		replace[mcp.MetaKeyProtocolVersion] = document.AppendQuote(nil, s.version)
		replace[mcp.MetaKeyClientInfo] = s.server.clientInfo()
		replace[mcp.MetaKeyClientCapabilities] = json.RawMessage(`{}`)
	}
	maps.Copy(replace, more)
	meta := readChecked(params).Get("_meta")
	rewritten := rewriteMembers(meta.Raw(), replace)
	if string(rewritten) == "{}" && meta.Kind() == 0 {
		return params
	}
	return rewriteMembers(params, map[string]json.RawMessage{"_meta": rewritten})
}

// request asks for something of gavel's own: a handshake or a list.
func (s *session) request(ctx context.Context, method mcp.MCPMethod, params json.RawMessage) (document.JSON, error) {
	f, err := s.ask(ctx, s.message(method, s.withMeta(params, nil), s.lastID.Add(1)), nil)
	switch {
	case err != nil:
		return document.JSON{}, err
	case f.failure != nil:
		return document.JSON{}, &refusal{readChecked(f.failure)}
	}
	v := readChecked(f.result)
	if v.Kind() != document.Object || checkKeys(v, false) != nil {
		return document.JSON{}, &linkError{code: CodeProtocol, text: fmt.Sprintf("the answer to %s is not an object that reads in one way only", method)}
	}
	return v, nil
}

// refusal is an error that an upstream answered gavel's own request with.
type refusal struct{ v document.JSON }

func (r *refusal) Error() string {
	return "the server answered with error " + string(r.v.Get("code").Raw())
}

// notFound reports whether the upstream does not know the method.
func (r *refusal) notFound() bool {
	return string(r.v.Get("code").Raw()) == strconv.Itoa(mcp.METHOD_NOT_FOUND)
}

// open begins the conversation in the era that the server speaks.
func (s *session) open(ctx context.Context) error {
	protocol := s.server.Protocol
	if protocol != ProtocolModern {
		err := s.initialize(ctx)
		var refused *refusal
		if protocol == ProtocolInitialize || !errors.As(err, &refused) {
			return err
		}
	}
	s.version = ModernVersion
	v, err := s.request(ctx, mcp.MethodServerDiscover, json.RawMessage(`{}`))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(listElements(v.Get("supportedVersions")), func(version document.JSON) bool { return version.Is(ModernVersion) }) {
		return &linkError{code: CodeProtocol, text: "the server speaks no version of MCP that gavel does"}
	}
	s.capabilities, s.info = v.Get("capabilities"), v.Get("_meta").Get(mcp.MetaKeyServerInfo)
	return nil
}

func listElements(v document.JSON) (out []document.JSON) {
	for _, element := range v.Elements() {
		out = append(out, element)
	}
	return out
}

// readsParamHeaders reports whether the upstream wants arguments in headers too.
func (s *session) readsParamHeaders() bool { return s.isModern() && s.server.URL != "" }

// hasValidHeaders reports whether the headers that a tool names for its arguments can be sent as
// MCP has them. A client must leave out a tool of which they cannot.
func hasValidHeaders(item Item) bool {
	var tool mcp.Tool
	return item.Kind != KindTool || json.Unmarshal(item.Raw, &tool) != nil || mcp.ValidateParamHeaderAnnotations(&tool) == nil
}

func (s *session) initialize(ctx context.Context) error {
	params := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, mcp.LATEST_LEGACY_PROTOCOL_VERSION, s.server.clientInfo())
	v, err := s.request(ctx, mcp.MethodInitialize, json.RawMessage(params))
	if err != nil {
		return err
	}
	version := v.Get("protocolVersion").Text()
	if version == ModernVersion || !slices.Contains(mcp.ValidProtocolVersions, version) {
		return &linkError{code: CodeProtocol, text: "the server speaks no version of MCP that gavel does"}
	}
	s.version, s.capabilities, s.info = version, v.Get("capabilities"), v.Get("serverInfo")
	return s.link.send(ctx, message{method: "notifications/initialized"})
}

// lists says how the definitions of a kind are asked for, and the capability that offers them.
var lists = map[Kind]struct {
	method     mcp.MCPMethod
	member     string
	capability string
}{
	KindTool:     {mcp.MethodToolsList, "tools", "tools"},
	KindResource: {mcp.MethodResourcesList, "resources", "resources"},
	KindTemplate: {mcp.MethodResourcesTemplatesList, "resourceTemplates", "resources"},
	KindPrompt:   {mcp.MethodPromptsList, "prompts", "prompts"},
}

// list reads all definitions of a kind. Those that nothing can be made of are left out, and
// counted.
func (s *session) list(ctx context.Context, kind Kind) (items []Item, unreadable int, err error) {
	how := lists[kind]
	if s.capabilities.Get(how.capability).Kind() == 0 {
		return nil, 0, nil
	}
	params := json.RawMessage(`{}`)
	for range maxItems { // of pages
		v, err := s.request(ctx, how.method, params)
		var refused *refusal
		switch {
		case errors.As(err, &refused) && refused.notFound():
			return items, unreadable, nil
		case err != nil:
			return nil, 0, err
		}
		for _, raw := range v.Get(how.member).Elements() {
			item, err := newItem(s.server.name, kind, raw.Raw())
			if err != nil || s.readsParamHeaders() && !hasValidHeaders(item) {
				unreadable++
				continue
			}
			items = append(items, item)
		}
		cursor := v.Get("nextCursor")
		if cursor.Kind() != document.String || len(items)+unreadable > maxItems {
			break
		}
		params = rewriteMembers(json.RawMessage(`{}`), map[string]json.RawMessage{"cursor": cursor.Raw()})
	}
	if len(items)+unreadable > maxItems {
		return nil, 0, &linkError{code: CodeProtocol, text: fmt.Sprintf("the server lists more than %d items of a kind", maxItems)}
	}
	return items, unreadable, nil
}
