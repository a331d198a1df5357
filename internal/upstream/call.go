package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/yosida95/uritemplate/v3"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// methods lists the supported methods and the kinds that each applies to.
var methods = map[string][]Kind{
	string(mcp.MethodToolsCall):          {KindTool},
	string(mcp.MethodResourcesRead):      {KindResource},
	string(mcp.MethodPromptsGet):         {KindPrompt},
	string(mcp.MethodCompletionComplete): {KindPrompt, KindTemplate},
}

// Call asks an upstream for something on behalf of a principal; every use of an upstream passes through it. The
// upstream's answer, including an error, is the Reply. The error is an *Error, or ctx's error if ctx ended first; the
// upstream is then asked to stop.
func (m *Manager) Call(ctx context.Context, p engine.Principal, req Request) (Reply, error) {
	if !slices.Contains(methods[req.Method], req.Kind) {
		return Reply{}, newError(CodeInvalid, req.Upstream, "Use one of the methods of Request.", "The method %q cannot be used for a %s.", req.Method, req.Kind)
	}
	if m == nil || m.servers[req.Upstream] == nil {
		return Reply{}, unknownItem(req)
	}
	s := m.servers[req.Upstream]
	item, err := s.find(p, req)
	if err != nil {
		return Reply{}, err
	}
	params, bound, err := m.readParams(p, req, item)
	if err != nil {
		return Reply{}, err
	}
	var gated *gatedCall
	if item.Gate != nil {
		if gated, err = m.readGated(ctx, p, req, item, params, bound); err != nil {
			return Reply{}, err
		}
	}
	leave, err := s.acquireSlot(p)
	switch {
	case err != nil && gated != nil:
		return Reply{}, s.refuseFirst(ctx, gated, err)
	case err != nil:
		return Reply{}, err
	case gated != nil:
		return s.callGated(ctx, gated, leave)
	}
	defer leave()
	reply, err := s.call(ctx, p, req, params)
	s.noteOutcome(p, err)
	switch {
	case err == nil:
		reply.Result = sealResult(m.states, reply.Result, bound)
		return reply, nil
	case ctx.Err() != nil:
		return Reply{}, ctx.Err()
	default:
		return Reply{}, s.explain(err)
	}
}

// acquireSlot takes a slot for a call to the upstream; leave releases it.
func (s *server) acquireSlot(p engine.Principal) (leave func(), err error) {
	leave, ok := s.inFlight.TryAcquire(p.ID)
	if !ok {
		return nil, s.explain(&linkError{code: CodeBusy, text: fmt.Sprintf("%d calls are in flight, or %d of this caller", maxInFlight, maxInFlight/2)})
	}
	if wait := s.backoffFor(p); wait > 0 {
		leave()
		return nil, s.explain(&linkError{code: CodeUnavailable, text: "the last calls failed", retryAfter: wait})
	}
	return leave, nil
}

// codeOf returns the code of a failed call's error, or "".
func codeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if failure, ok := errors.AsType[*linkError](err); ok {
		return failure.code
	}
	return ""
}

func unknownItem(req Request) *Error {
	return newError(CodeUnknown, req.Upstream, "List the available items.", "There is no such %s.", req.Kind)
}

// find returns the pinned item for a request. For a resource that is not pinned, it returns a template that matches.
// An item that the caller may not use is reported as unknown.
func (s *server) find(p engine.Principal, req Request) (Item, error) {
	if !s.allows(p, req.Kind, req.Name) {
		return Item{}, unknownItem(req)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	item, found := s.findPinned(req.Kind, req.Name)
	if !found && req.Kind == KindResource && isPlainURI(req.Name) {
		for _, template := range s.pinned {
			if template.Kind == KindTemplate && isOfTemplate(template.Name, req.Name) {
				item, found = template, true
			}
		}
	}
	if !found {
		item = Item{Kind: req.Kind, Name: req.Name}
	}
	item.Gate = s.manager.gateOf(item)
	if d := s.differences[item.key()]; d.Change != "" {
		return Item{}, s.driftError(d)
	}
	if !found {
		return Item{}, unknownItem(req)
	}
	return item, nil
}

// findPinned returns a pinned item. s.mu must be held.
func (s *server) findPinned(kind Kind, name string) (Item, bool) {
	for _, item := range s.pinned {
		if item.Kind == kind && item.Name == name {
			return item, true
		}
	}
	return Item{}, false
}

func isOfTemplate(template, uri string) bool {
	t, err := uritemplate.New(template)
	return err == nil && t.Match(uri) != nil
}

func (s *server) driftError(d Difference) *Error {
	why := map[string]string{
		ChangeAdded: "is not pinned", ChangeRemoved: "no longer exists", ChangeTwice: "is listed twice",
		ChangeChanged: "differs from its pin (" + strings.Join(d.Members, ", ") + ")",
	}[d.Change]
	return newError(CodeDrifted, s.name, "Ask an operator to compare it with gavel upstream diff and accept it with gavel upstream pin.", "The %s %q of the server %s.", d.Kind, d.Name, why)
}

// readParams checks the caller's params. It returns the params for the upstream, with _meta unchanged, and the data
// that a requestState is bound to.
func (m *Manager) readParams(p engine.Principal, req Request, item Item) (params json.RawMessage, bound []byte, err error) {
	invalid := func(format string, args ...any) error {
		return newError(CodeInvalid, req.Upstream, "Correct the arguments.", format, args...)
	}
	params = req.Params
	if len(params) == 0 {
		params = json.RawMessage(`{}`)
	}
	v, readErr := document.ReadJSON(params, document.Limits{Bytes: maxFrame, Depth: maxDepth, Lax: true, Spaced: true})
	switch {
	case readErr != nil:
		return nil, nil, invalid("The params are not JSON in valid UTF-8, or too long: %v.", readErr)
	case v.Kind() != document.Object:
		return nil, nil, invalid("The params are not an object.")
	}
	if err := checkKeys(v, true); err != nil {
		return nil, nil, invalid("The params are ambiguous: %v.", err)
	}
	if err := checkCase(v, "name", "uri", "ref", "arguments", "argument", "_meta", "requestState", "inputResponses"); err != nil {
		return nil, nil, invalid("%v.", err)
	}
	if v.Get("task").Kind() != 0 {
		return nil, nil, invalid("Tasks are not offered for the tools of upstreams.")
	}
	arguments := v.Get("arguments")
	if item.Kind == KindTool {
		if err := checkArguments(readChecked(item.Raw).Get("inputSchema"), arguments); err != nil {
			return nil, nil, invalid("%v.", err)
		}
	}
	replace := map[string]json.RawMessage{}
	name := json.RawMessage(quoteJSON(req.Name))
	switch req.Method {
	case string(mcp.MethodResourcesRead):
		replace["uri"] = name
	case string(mcp.MethodCompletionComplete):
		key := map[Kind]string{KindPrompt: "name", KindTemplate: "uri"}[req.Kind]
		replace["ref"] = rewriteMembers(v.Get("ref").Raw(), map[string]json.RawMessage{key: name})
	default:
		replace["name"] = name
	}
	bound = binding(p, req, arguments)
	if state := v.Get("requestState"); state.Kind() != 0 {
		plain, err := m.states.Open(state.Text(), bound)
		if err != nil {
			return nil, nil, invalidState(req.Upstream)
		}
		replace["requestState"] = document.AppendQuote(nil, plain)
	}
	return rewriteMembers(params, replace), bound, nil
}

// call makes a call in an existing session, or in a new one. If the upstream has forgotten the session, call starts a
// new one and repeats the call once, provided that the upstream cannot have acted on it.
func (s *server) call(ctx context.Context, p engine.Principal, req Request, params json.RawMessage) (Reply, error) {
	for attempt := 1; ; attempt++ {
		reply, err := s.callOnce(ctx, p, req, params)
		if attempt > 1 || !canRepeat(err) {
			return reply, err
		}
	}
}

// prepare returns the item, and a session whose definitions were compared with the pins. Callers must call release when
// they are done with the session.
func (s *server) prepare(ctx context.Context, p engine.Principal, req Request) (ses *session, release func(), item Item, err error) {
	if ses, release, err = s.acquire(ctx, p); err != nil {
		return nil, nil, Item{}, err
	}
	if err = s.dropForgotten(ses, s.verify(ctx, ses, req.Kind)); err == nil {
		item, err = s.find(p, req) // verify may have found a change
	}
	if err != nil {
		release()
		return nil, nil, Item{}, err
	}
	return ses, release, item, nil
}

// canRepeat reports whether a failed call may be repeated in a new session, because the upstream cannot have acted on
// it.
func canRepeat(err error) bool {
	failure, _ := errors.AsType[*linkError](err)
	return failure != nil && !failure.mayHaveRun && (failure.forgotten || failure.code == CodeLost)
}

func (s *server) callOnce(ctx context.Context, p engine.Principal, req Request, params json.RawMessage) (Reply, error) {
	ses, release, item, err := s.prepare(ctx, p, req)
	if err != nil {
		return Reply{}, err
	}
	defer release()
	f, err := s.ask(ctx, context.Background(), ses, req, item, params)
	switch {
	case err != nil:
		return Reply{}, s.dropForgotten(ses, err)
	case f.failure != nil && isForgotten(f):
		s.forget(ses)
		if req.Method != string(mcp.MethodToolsCall) { // a tool may have acted first
			return Reply{}, &linkError{code: CodeUnavailable, text: "the server no longer knows the session", forgotten: true}
		}
	case req.Capabilities == nil && isQuestion(f.result):
		return Reply{}, errQuestion
	case isTask(f.result):
		return Reply{}, errTask
	}
	return Reply{Result: f.result, Error: f.failure}, nil
}

// dropForgotten drops a session that the upstream no longer knows.
func (s *server) dropForgotten(ses *session, err error) error {
	if failure, ok := errors.AsType[*linkError](err); ok && failure.forgotten {
		s.forget(ses)
	}
	return err
}

// Errors for answers that are not passed on to clients.
var (
	errTask     = &linkError{code: CodeProtocol, text: "the server answered with a task, which gavel does not offer", mayHaveRun: true}
	errQuestion = &linkError{code: CodeProtocol, text: "the server asks for input, and the client cannot be asked", mayHaveRun: true}
)

// isQuestion reports whether a result asks the client for input.
func isQuestion(result json.RawMessage) bool {
	return bytes.Contains(result, []byte(`"input_required"`)) && readChecked(result).Get("resultType").Is("input_required")
}

// isTask reports whether a result is a task, which only promises a result.
func isTask(result json.RawMessage) bool {
	if !bytes.Contains(result, []byte(`"task"`)) {
		return false
	}
	v := readChecked(result)
	return v.Get("resultType").Is("task") || v.Get("task").Kind() == document.Object && v.Get("content").Kind() == 0
}

// ask sends the call. Each progress notification restarts its deadline, for at most maxTimeout after the call began.
// When waits ends, ask tells the upstream to stop, but still waits for the answer until ctx ends.
func (s *server) ask(ctx, waits context.Context, ses *session, req Request, item Item, params json.RawMessage) (frame, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := &linkError{code: CodeTimeout, text: "there was no answer within " + s.CallTimeout.String(), mayHaveRun: true}
	timer := time.AfterFunc(s.CallTimeout, func() { cancel(late) })
	defer timer.Stop()
	begun := time.Now()

	id := ses.lastID.Add(1)
	more := map[string]json.RawMessage{}
	more["progressToken"] = json.RawMessage(strconv.FormatInt(id, 10))
	progress := func(params json.RawMessage) {
		if time.Since(begun) < maxTimeout {
			timer.Reset(s.CallTimeout)
		}
		if req.Progress != nil {
			req.Progress(params)
		}
	}
	if req.Trace != "" && readChecked(params).At("_meta", "traceparent").Kind() == 0 {
		more["traceparent"] = json.RawMessage(quoteJSON(req.Trace))
	}
	if ses.isModern() && req.Capabilities != nil {
		more[mcp.MetaKeyClientCapabilities] = req.Capabilities
	}
	m := ses.message(mcp.MCPMethod(req.Method), ses.withMeta(params, more), id)
	if ses.readsParamHeaders() && bytes.Contains(item.Raw, []byte("x-mcp-header")) {
		var tool mcp.Tool
		if err := json.Unmarshal(item.Raw, &tool); err == nil {
			maps.Copy(m.headers, mcp.GenerateParamHeaders(&tool, m.params))
		}
	}
	if req.Trace != "" {
		m.headers = maps.Clone(m.headers)
		if m.headers == nil {
			m.headers = map[string]string{}
		}
		m.headers["Traceparent"] = req.Trace
	}
	defer context.AfterFunc(waits, func() { ses.cancel(m) })()
	f, err := ses.ask(ctx, m, progress)
	if err == nil && isUninitialized(f) {
		return frame{}, &linkError{code: CodeUnavailable, text: (&refusal{readChecked(f.failure)}).Error(), forgotten: true}
	}
	return f, err
}

// explain converts the error of a failed call to an *Error.
func (s *server) explain(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	failure, ok := errors.AsType[*linkError](err)
	if !ok {
		failure = &linkError{code: CodeProtocol, text: err.Error(), err: err}
	}
	hint := "Try again later; an operator can check with gavel upstream test " + s.name + "."
	if failure.mayHaveRun {
		hint = "The request may have taken effect: find out before you repeat it."
	}
	s.manager.opts.Logger.Warn("a call to an upstream failed", "upstream", s.name, "code", string(failure.code), "why", failure.text,
		"cause", maskSecrets(fmt.Sprint(cmp.Or(failure.err, error(failure))), s.secrets))
	return &Error{
		Code: failure.code, Upstream: s.name, Message: maskSecrets(fmt.Sprintf("The server %q gave no answer: %s.", s.name, failure.text), s.secrets), Hint: hint,
		MayHaveRun: failure.mayHaveRun, RetryAfter: failure.retryAfter, Err: failure.err,
	}
}
