package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/validators/document"
)

// session is one MCP session with an upstream, of one protocol version.
type session struct {
	server  *server
	link    link
	version string // protocol version
	// capabilities and info are what the upstream reported about itself.
	capabilities, info document.JSON
	lastID             atomic.Int64

	mu      sync.Mutex
	pending map[string]*pending
	checks  map[Kind]*kindCheck
}

// pending is an unanswered request.
type pending struct {
	answer   chan frame // buffered for one element
	progress func(json.RawMessage)
	failed   chan *linkError // buffered for one element: why the answer cannot be passed on
}

// kindCheck is the state of comparing the upstream's definitions of one kind with their pins.
type kindCheck struct {
	at      time.Time
	isStale bool
	// scheduled reports that a comparison will start soon.
	scheduled bool
	running   chan struct{} // closed when the running comparison has ended
	err       error
}

func (s *session) isModern() bool { return s.version == ModernVersion }

// receive implements receiver.
func (s *session) receive(f frame) {
	switch {
	case f.isResponse():
		s.mu.Lock()
		p := s.pending[f.id]
		delete(s.pending, f.id)
		s.mu.Unlock()
		if p != nil {
			p.answer <- f
		} else {
			s.receiveFailure(f.id, s.newUnmatched(f.line))
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

// listChanged maps notifications to the kinds that they concern.
var listChanged = map[string][]Kind{
	string(mcp.MethodNotificationToolsListChanged):     {KindTool},
	string(mcp.MethodNotificationResourcesListChanged): {KindResource, KindTemplate},
	string(mcp.MethodNotificationPromptsListChanged):   {KindPrompt},
}

// receiveFailure implements receiver. If id was never issued, the failure goes to the oldest open request, to which it
// most likely belongs. A failure for a request that is no longer open is ignored, as after a late or second answer.
func (s *session) receiveFailure(id string, failure *linkError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[id] == nil && !s.hasIssued(id) {
		id = ""
		for known := range s.pending {
			if id == "" || len(known) < len(id) || len(known) == len(id) && known < id { // numeric order
				id = known
			}
		}
	}
	if p := s.pending[id]; p != nil {
		delete(s.pending, id)
		p.failed <- failure
	}
}

// hasIssued reports whether a request with this id was ever sent.
func (s *session) hasIssued(id string) bool {
	n, err := strconv.ParseInt(id, 10, 64)
	return err == nil && n > 0 && n <= s.lastID.Load()
}

// newUnmatched returns the failure for an answer that matches no request of the session.
func (s *session) newUnmatched(line []byte) *linkError {
	return &linkError{code: CodeProtocol, text: "the server sent an answer that matches no call" + prefixWords(shortenText(string(line), s.server.secrets)), mayHaveRun: true}
}

// maxQuoted limits how much of a server's own text is quoted, in bytes.
const maxQuoted = 200

// shortenText returns the beginning of a server's text, on one line and without secrets.
func shortenText(text string, secrets []string) string {
	text = maskSecrets(strings.ToValidUTF8(text[:min(len(text), maxTail)], ""), secrets)
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxQuoted)], "")
}

// maxResponses limits concurrent responses to requests of an upstream.
const maxResponses = 16

// respond answers a request of the upstream. Only ping is supported; gavel declares no other capability.
func (s *session) respond(f frame) {
	ctx, cancel := context.WithTimeout(context.Background(), pipeGrace)
	defer cancel()
	select {
	case s.server.responding <- struct{}{}:
		defer func() { <-s.server.responding }()
	default:
		return // the upstream sends requests faster than it reads
	}
	answer := `"error":{"code":-32601,"message":"gavel does not offer this to servers"}`
	if f.method == string(mcp.MethodPing) {
		answer = `"result":{}`
	}
	_ = s.link.reply(ctx, []byte(`{"jsonrpc":"2.0","id":`+f.id+`,`+answer+`}`))
}

// ask sends a request and returns the response. If ctx ends first, it asks the upstream to stop and returns
// context.Cause(ctx).
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
	select { // prefer an answer that has just arrived
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

// cancel notifies the upstream that a request was abandoned.
func (s *session) cancel(m message) {
	if m.method == string(mcp.MethodInitialize) || s.isModern() && s.server.URL != "" {
		return // over HTTP, closing the connection cancels the request
	}
	params := s.withMeta(json.RawMessage(`{"requestId":`+strconv.FormatInt(m.id, 10)+`,"reason":"the caller does not wait any longer"}`), nil)
	s.server.goTracked(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pipeGrace)
		defer cancel()
		_ = s.link.send(ctx, s.message(mcp.MethodNotificationCancelled, params, 0))
	})
}

// message builds a message with the headers that its protocol version requires.
func (s *session) message(method mcp.MCPMethod, params json.RawMessage, id int64) message {
	return message{id: id, method: string(method), params: params, headers: mcp.StandardHeaders(s.version, method, params)}
}

// withMeta returns params with the _meta that the protocol version requires. It removes members that belong to the
// client's own session, and for 2026-07-28 adds the protocol version, and gavel's name and capabilities. more replaces
// or adds further members.
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

// request sends one of gavel's own requests, such as a handshake or a list, and returns the result.
func (s *session) request(ctx context.Context, method mcp.MCPMethod, params json.RawMessage) (document.JSON, error) {
	f, err := s.ask(ctx, s.message(method, s.withMeta(params, nil), s.lastID.Add(1)), nil)
	switch {
	case err != nil:
		return document.JSON{}, err
	case f.failure != nil && method != mcp.MethodInitialize && (isForgotten(f) || isUninitialized(f)):
		return document.JSON{}, &linkError{code: CodeUnavailable, text: (&refusal{readChecked(f.failure)}).Error(), forgotten: true}
	case f.failure != nil:
		return document.JSON{}, &refusal{readChecked(f.failure)}
	}
	v := readChecked(f.result)
	if v.Kind() != document.Object || checkKeys(v, false) != nil {
		return document.JSON{}, &linkError{code: CodeProtocol, text: fmt.Sprintf("the answer to %s is not an object, or is ambiguous", method)}
	}
	return v, nil
}

// refusal is an upstream's error response to one of gavel's own requests.
type refusal struct{ v document.JSON }

func (r *refusal) Error() string {
	return "the server answered with error " + string(r.v.Get("code").Raw()) + prefixWords(shortenText(r.v.Get("message").Text(), nil))
}

// notFound reports whether the upstream does not know the method.
func (r *refusal) notFound() bool {
	return string(r.v.Get("code").Raw()) == strconv.Itoa(mcp.METHOD_NOT_FOUND)
}

// open starts the session with a protocol version that the server supports.
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
		return &linkError{code: CodeProtocol, text: "the server has no MCP version in common with gavel"}
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

// readsParamHeaders reports whether the upstream expects some arguments in HTTP headers, too.
func (s *session) readsParamHeaders() bool { return s.isModern() && s.server.URL != "" }

// checkHeaders returns an error for a tool whose declarations of argument headers are invalid in MCP.
func checkHeaders(item Item) error {
	var tool mcp.Tool
	if item.Kind != KindTool || json.Unmarshal(item.Raw, &tool) != nil {
		return nil
	}
	return mcp.ValidateParamHeaderAnnotations(&tool)
}

func (s *session) initialize(ctx context.Context) error {
	params := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, mcp.LATEST_LEGACY_PROTOCOL_VERSION, s.server.clientInfo())
	v, err := s.request(ctx, mcp.MethodInitialize, json.RawMessage(params))
	if err != nil {
		return err
	}
	version := v.Get("protocolVersion").Text()
	if version == ModernVersion || !slices.Contains(mcp.ValidProtocolVersions, version) {
		return &linkError{code: CodeProtocol, text: "the server has no MCP version in common with gavel"}
	}
	s.version, s.capabilities, s.info = version, v.Get("capabilities"), v.Get("serverInfo")
	return s.link.send(ctx, message{method: "notifications/initialized"})
}

// lists maps a kind to its list method, the member of the result, and the required capability.
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

// list returns all definitions of a kind, each once, in the form that strict clients accept. The notes describe the
// definitions that were repaired or omitted.
func (s *session) list(ctx context.Context, kind Kind) (items []Item, notes []Note, err error) {
	how := lists[kind]
	if s.capabilities.Get(how.capability).Kind() == 0 {
		return nil, nil, nil
	}
	seen, cursors, listed := map[string]bool{}, map[string]bool{"": true}, 0
	params := json.RawMessage(`{}`)
	for {
		v, err := s.request(ctx, how.method, params)
		var refused *refusal
		switch {
		case errors.As(err, &refused) && refused.notFound():
			return items, notes, nil
		case err != nil:
			return nil, nil, err
		}
		page := v.Get(how.member)
		if page.Kind() != document.Array && page.Kind() != document.Null && page.Kind() != 0 {
			return nil, nil, &linkError{code: CodeProtocol, text: fmt.Sprintf("%s of the answer to %s is %s, not a list", how.member, how.method, page.Kind())}
		}
		for _, raw := range page.Elements() {
			if listed++; seen[string(raw.Raw())] {
				continue
			}
			seen[string(raw.Raw())] = true
			item, repaired, err := readItem(s.server.name, kind, raw.Raw())
			if err == nil && s.readsParamHeaders() {
				err = checkHeaders(item)
			}
			if err != nil {
				notes = append(notes, Note{Kind: kind, Name: shortenText(raw.Get(nameKey(kind)).Text(), nil), LeftOut: true, Reason: err.Error()})
				continue
			}
			items = append(items, item)
			for _, reason := range repaired {
				notes = append(notes, Note{Kind: kind, Name: item.Name, Reason: reason})
			}
		}
		cursor := v.Get("nextCursor")
		switch {
		case listed > maxItems:
			return nil, nil, &linkError{code: CodeProtocol, text: fmt.Sprintf("the server lists more than %d items of a kind", maxItems)}
		case cursor.Kind() == 0 || cursor.Kind() == document.Null:
			return items, notes, nil
		case cursor.Kind() != document.String:
			return nil, nil, &linkError{code: CodeProtocol, text: fmt.Sprintf("nextCursor of the answer to %s is %s, not a string: %s", how.method, cursor.Kind(), shortenText(string(cursor.Raw()), nil))}
		case cursors[cursor.Text()]:
			return items, append(notes, Note{Kind: kind, Reason: "the list ends at a nextCursor that is empty or repeated"}), nil
		}
		cursors[cursor.Text()] = true
		params = rewriteMembers(json.RawMessage(`{}`), map[string]json.RawMessage{"cursor": cursor.Raw()})
	}
}
