package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Recorder judges the calls of tools that have gates, and records what comes of them.
type Recorder interface {
	BeginCall(ctx context.Context, p engine.Principal, req engine.CallRequest) (engine.CallResult, error)
	SettleCall(ctx context.Context, p engine.Principal, req engine.SettleRequest) (engine.SettleResult, error)
}

// Instances tells where workflows stand.
type Instances interface {
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	Instances(ctx context.Context, p engine.Principal, req engine.InstancesRequest) (engine.InstancesResult, error)
	LoadDefinition(ctx context.Context, p engine.Principal, right engine.Right, name string, version int) (store.Definition, *workflow.Definition, error)
}

// Engine is what gates ask: an *engine.Engine.
type Engine interface {
	Recorder
	Instances
	gate.Subjects
}

// The members of _meta that are gavel's own: the id with which a gated call is sent, and where the
// workflow stands after it.
const (
	metaCallID   = "io.github.gavel-mcp/callId"
	metaWorkflow = "io.github.gavel-mcp/workflow"
	// metaKey is a client's: an idempotency key, as for gavel's own tools.
	metaKey = "gavel/idempotencyKey"
)

// gateReader reads definitions for the door itself: what of them a caller may see does not matter
// to whether a gate fits.
var gateReader = engine.Principal{ID: "local:gateway", Role: engine.RoleOperator}

const (
	// settleTimeout bounds how long recording an outcome may take.
	settleTimeout = 30 * time.Second
	// answerGrace is how much longer than its call a record stays open, so that an answer at the
	// last moment is recorded first.
	answerGrace = 15 * time.Second
	// inputGrace is how long a person may take to answer what a server asks in a call.
	inputGrace = 10 * time.Minute
)

// gatedCall is a call of a tool that has a gate.
type gatedCall struct {
	Request
	gate      gate.Gate
	principal engine.Principal
	item      Item
	params    json.RawMessage // as they are sent, but for _meta
	bound     []byte          // what a requestState belongs to
	values    gate.Values
	instance  string
	at        engine.Position
	// callID is the engine's, "" before it gave one; nonce is set when the call goes on after the
	// server asked for something.
	callID, nonce string
	key           string // the client's idempotency key, "" for none
	deadline      time.Time
}

// callGated judges and records a call before and after it is sent. It goes on when its caller
// does not wait any longer: what was sent has to be recorded.
func (s *server) callGated(ctx context.Context, c *gatedCall, leave func()) (Reply, error) {
	progress := &relayed{to: c.Progress}
	if c.Progress != nil {
		c.Progress = progress.tell
	}
	type answer struct {
		reply Reply
		err   error
	}
	done := make(chan answer, 1)
	running := s.tryRun(func() {
		defer leave()
		reply, err := s.performGated(ctx, c)
		done <- answer{reply, err}
	})
	if !running {
		leave()
		return Reply{}, s.explain(errClosing)
	}
	select {
	case a := <-done:
		return a.reply, a.err
	case <-ctx.Done():
		progress.end()
		return Reply{}, ctx.Err()
	}
}

// relayed hands on progress until its caller is gone.
type relayed struct {
	mu    sync.Mutex
	ended bool
	to    func(json.RawMessage)
}

func (r *relayed) tell(params json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.to(params)
	}
}

func (r *relayed) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// readGated makes a call of checked params: it takes the handle out, and the call that a
// requestState continues.
func (m *Manager) readGated(ctx context.Context, p engine.Principal, req Request, item Item, params json.RawMessage, bound []byte) (*gatedCall, error) {
	invalid := func(format string, args ...any) error {
		return newError(CodeInvalid, req.Upstream, "Correct the arguments.", format, args...)
	}
	c := &gatedCall{Request: req, gate: *item.Gate, principal: p, item: item, bound: bound}
	v := readChecked(params)
	if v.At("_meta", metaCallID).Kind() != 0 {
		return nil, invalid("The member %s of _meta is gavel's own.", metaCallID)
	}
	key := v.At("_meta", metaKey)
	if key.Kind() != 0 && key.Kind() != document.String {
		return nil, invalid("The idempotency key, %s of _meta, is %s.", metaKey, key.Kind())
	}
	c.key = key.Text()
	arguments := v.Get("arguments")
	if arguments.Kind() == 0 {
		arguments = document.Known([]byte(`{}`))
	}
	if arguments.Kind() != document.Object {
		return nil, invalid("The arguments are not an object.")
	}
	replace := map[string]json.RawMessage{}
	if c.gate.Subject == nil {
		if err := checkCase(arguments, gate.Handle); err != nil {
			return nil, invalid("%v.", err)
		}
		handle := arguments.Get(gate.Handle)
		if c.instance = handle.Text(); c.instance == "" {
			return nil, newError(CodeInvalid, req.Upstream, "Begin one with workflow.start, or find yours with workflow.instances.",
				"The argument %s is missing: %s", gate.Handle, c.gate.DescribeHandle())
		}
		arguments = readChecked(rewriteMembers(arguments.Raw(), map[string]json.RawMessage{gate.Handle: nil}))
		replace["arguments"] = arguments.Raw()
	}
	c.values = gate.Values{Arguments: arguments, Principal: gate.PrincipalValue(p)}
	if state := v.Get("requestState"); state.Kind() != 0 {
		known := document.Known(state.Bytes())
		c.callID, c.nonce = known.Get("call").Text(), known.Get("nonce").Text()
		instance := known.Get("instance").Text()
		if c.callID == "" || c.nonce == "" || c.gate.Subject == nil && instance != c.instance {
			return nil, invalidState(req.Upstream)
		}
		c.instance = instance
		replace["requestState"] = known.Get("state").Raw() // nil where the server gave none
	}
	c.params = rewriteMembers(params, replace)
	return c, m.findInstance(ctx, c)
}

// findInstance finds the instance that a call belongs to, and whether the gate fits it.
func (m *Manager) findInstance(ctx context.Context, c *gatedCall) error {
	e := m.opts.Engine()
	if e == nil {
		return newError(CodeUnavailable, c.Upstream, "Call it where gavel serves.", "Nothing here can judge a call of %s.", c.item.Public)
	}
	if c.instance == "" {
		at, err := findSubject(ctx, e, c)
		if err != nil {
			return err
		}
		c.at, c.instance = at, at.ID
	} else {
		status, err := e.Status(ctx, c.principal, c.instance)
		if err != nil {
			return ofEngine(c.Upstream, err)
		}
		c.at = status.Position
	}
	stored, d, err := e.LoadDefinition(ctx, gateReader, engine.RightRead, c.at.Workflow, c.at.Version)
	if err != nil {
		return ofEngine(c.Upstream, err)
	}
	if r := c.gate.RefuseForeign(c.at, stored.Operator, d); r != nil {
		return c.refuse(*r)
	}
	return nil
}

// findSubject finds the instance that is about what a call is about, or begins it where the gate
// says so.
func findSubject(ctx context.Context, e Engine, c *gatedCall) (engine.Position, error) {
	subject, problem := c.gate.SubjectOf(c.values)
	if problem != "" {
		return engine.Position{}, newError(CodeInvalid, c.Upstream, "Correct the arguments.", "%s", problem)
	}
	at, refusal, err := gate.FindInstance(ctx, e, c.principal, c.gate.Workflow, subject, c.gate.Tool, c.gate.Start)
	switch {
	case err != nil:
		return at, ofEngine(c.Upstream, err)
	case refusal != nil:
		return at, newError(codeOfRefusal(*refusal), c.Upstream, refusal.Hint, "%s", refusal.Message)
	}
	return at, nil
}

func codeOfRefusal(r gate.Refusal) Code {
	if r.Judged {
		return CodeCallRefused
	}
	return CodeGateClosed
}

// Standing is where the workflow of a gated call stands.
type Standing struct {
	ID       string `json:"id"`
	Workflow string `json:"workflow"`
	State    string `json:"state"`
	// NextActions and NextTools are what is possible now; absent where that is not known.
	NextActions []string `json:"nextActions,omitempty"`
	NextTools   []string `json:"nextTools,omitempty"`
	CallID      string   `json:"callId,omitempty"`
	ReviewID    string   `json:"reviewId,omitempty"`
}

func (c *gatedCall) refuse(r gate.Refusal) *Error { return c.refuseAs(codeOfRefusal(r), r) }

func (c *gatedCall) refuseAs(code Code, r gate.Refusal) *Error {
	e := newError(code, c.Upstream, r.Hint, "%s", r.Message)
	e.Standing = &Standing{ID: c.at.ID, Workflow: c.at.Workflow, State: c.at.State, NextActions: r.Actions, NextTools: r.Tools}
	return e
}

// ofEngine is an engine's error at this door.
func ofEngine(upstream string, err error) error {
	known, ok := errors.AsType[*engine.Error](err)
	if !ok {
		return err
	}
	e := newError(Code(known.Code), upstream, known.Hint, "%s", known.Message)
	e.Err = known.Err
	for _, info := range engine.Codes {
		e.Retryable = e.Retryable || info.Code == known.Code && info.Retryable
	}
	return e
}

// performGated begins a call, sends it once, and settles it.
func (s *server) performGated(ctx context.Context, c *gatedCall) (Reply, error) {
	ses, release, item, err := s.prepare(ctx, c.principal, c.Request)
	if canRepeat(err) {
		ses, release, item, err = s.prepare(ctx, c.principal, c.Request)
	}
	if err != nil {
		return Reply{}, s.explainTo(ctx, err)
	}
	c.item = item
	continued := c.callID != ""
	if continued {
		err = s.manager.continued.take(c)
	} else {
		err = s.beginGated(ctx, c, ses)
	}
	if err != nil {
		release()
		return Reply{}, cmp.Or(ctx.Err(), err)
	}
	meta := rewriteMembers(readChecked(c.params).Get("_meta").Raw(), map[string]json.RawMessage{metaCallID: document.AppendQuote(nil, c.callID)})
	c.params = rewriteMembers(c.params, map[string]json.RawMessage{"_meta": meta})
	if ctx.Err() != nil && !continued {
		release()
		_, _ = s.settleGated(ctx, c, engine.CallNotSent, nil)
		return Reply{}, ctx.Err()
	}
	f, err := s.sendGated(ctx, c, ses, release)
	failure, _ := errors.AsType[*linkError](err)
	switch {
	case err == nil && isTask(f.result):
		return s.endGated(ctx, c, engine.CallUnknown, f, errTask)
	case err == nil && c.Capabilities == nil && isQuestion(f.result):
		return s.endGated(ctx, c, engine.CallUnknown, f, errQuestion)
	case err == nil && f.failure != nil && isForgotten(f):
		return s.endGated(ctx, c, engine.CallUnknown, f, nil)
	case err == nil && isQuestion(f.result):
		return Reply{Result: s.manager.continued.put(s.manager.sealer, c, f.result)}, nil
	case err == nil && (f.failure != nil || readChecked(f.result).Get("isError").Kind() == document.True):
		return s.endGated(ctx, c, engine.CallError, f, nil)
	case err == nil:
		return s.endGated(ctx, c, engine.CallOK, f, nil)
	case failure != nil && !failure.mayHaveRun && !continued:
		return s.endGated(ctx, c, engine.CallNotSent, f, err)
	default:
		return s.endGated(ctx, c, engine.CallUnknown, f, err)
	}
}

// explainTo is explain, or ctx's error where that ended first.
func (s *server) explainTo(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.explain(err)
}

// sendGated sends a call, to a new session too where nothing of it can have been done, and waits
// for the answer whether its caller does or not.
func (s *server) sendGated(ctx context.Context, c *gatedCall, ses *session, release func()) (frame, error) {
	waits := ctx
	ctx = context.WithoutCancel(ctx)
	f, err := s.ask(ctx, waits, ses, c.Request, c.item, c.params)
	release()
	if canRepeat(err) && waits.Err() == nil {
		_ = s.noteForgotten(ses, err)
		again, release, item, prepareErr := s.prepare(waits, c.principal, c.Request)
		if prepareErr != nil {
			return frame{}, err
		}
		f, err = s.ask(ctx, waits, again, c.Request, item, c.params)
		release()
		ses = again
	}
	s.noteOutcome(err)
	if err == nil && f.failure != nil && isForgotten(f) {
		s.forget(ses)
	}
	return f, s.noteForgotten(ses, err)
}

// beginGated has a call judged and recorded. Only without an error may it be sent.
func (s *server) beginGated(ctx context.Context, c *gatedCall, ses *session) error {
	g := c.gate
	timeout := s.CallTimeout + answerGrace
	if ses.isModern() && c.Capabilities != nil {
		timeout += inputGrace
	}
	r, err := s.manager.opts.Engine().BeginCall(ctx, c.principal, engine.CallRequest{
		ID: c.instance, Gate: g.Tool, Upstream: s.name, Tool: c.item.Name, Pin: c.item.Hash(), Arguments: c.values.Arguments.Raw(),
		States: g.States, Action: g.Action, Data: g.DataOf(c.values), Success: g.Success, Error: g.Error,
		Bound: g.Bind, MaxCalls: g.MaxCalls, MaxArguments: g.MaxArguments, Repeatable: g.Repeatable, Timeout: timeout, Key: c.key,
	})
	if err != nil {
		return ofEngine(s.name, err)
	}
	c.at, c.callID, c.deadline = r.Position, r.CallID, r.Deadline
	switch r.Answer {
	case engine.CallGo:
		return nil
	case engine.CallParked:
		e := c.refuseAs(CodeCallParked, g.RefuseParked())
		if r.Review != nil {
			e.Standing.ReviewID = r.Review.ID
		}
		return e
	case engine.CallKnown:
		e := c.refuseAs(CodeCallRepeated, g.RefuseKnown(r.Outcome))
		e.Standing.CallID = r.CallID
		return e
	default:
		return s.refuseGated(ctx, c, r)
	}
}

// refuseGated says why a call was refused: by where the workflow stands, or as it was judged.
func (s *server) refuseGated(ctx context.Context, c *gatedCall, r engine.CallResult) error {
	_, d, err := s.manager.opts.Engine().LoadDefinition(ctx, gateReader, engine.RightRead, r.Workflow, r.Version)
	if err != nil {
		return ofEngine(s.name, err)
	}
	return c.refuse(s.manager.opts.Gates.RefuseCall(c.gate, d, r, c.principal.Role, func(tool string) bool { return s.manager.mayUse(c.principal, tool) }))
}

// listTimeout bounds how long a list may ask where workflows stand.
const listTimeout = 5 * time.Second

// isOpenTo reports whether an instance that a principal sees is in a state in which the gate's tool
// may be called.
func (m *Manager) isOpenTo(p engine.Principal, g gate.Gate) bool {
	e := m.opts.Engine()
	if e == nil || g.Start {
		return e != nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	return slices.ContainsFunc(g.States, func(state string) bool {
		r, err := e.Instances(ctx, p, engine.InstancesRequest{Workflow: g.Workflow, State: state, Status: record.Running, Limit: 1})
		if err != nil {
			m.opts.Logger.Warn("it could not be found out whether a tool may be called, so it is not listed", "tool", g.Tool, "cause", err.Error())
		}
		return err == nil && r.Count > 0
	})
}

// ListNextTools returns the gated tools that a principal may call where an instance stands.
func (m *Manager) ListNextTools(p engine.Principal, at engine.Position) []string {
	tools, _ := m.opts.Gates.ListPossible(at, nil, func(tool string) bool { return m.mayUse(p, tool) })
	return tools
}

// mayUse reports whether a principal may use a tool at all.
func (m *Manager) mayUse(p engine.Principal, public string) bool {
	server, name, ok := m.Resolve(KindTool, public)
	return ok && m.servers[server].allows(p, KindTool, name)
}

// settleGated records how a call ended, also when its caller is gone.
func (s *server) settleGated(ctx context.Context, c *gatedCall, outcome engine.CallOutcome, answer []byte) (engine.SettleResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	req := engine.SettleRequest{ID: c.instance, CallID: c.callID, Outcome: outcome, Result: answer}
	if action := c.gate.EndAction(outcome); action != "" {
		values := c.values
		values.Result = readChecked(answer)
		req.Data = c.gate.ResultOf(values)
	}
	r, err := s.manager.opts.Engine().SettleCall(ctx, c.principal, req)
	if err != nil {
		s.manager.opts.Logger.ErrorContext(ctx, "the outcome of a call could not be recorded; after its deadline it counts as unknown",
			"upstream", s.name, "tool", c.item.Public, "call", c.callID, "outcome", string(outcome), "cause", err.Error())
	}
	return r, err
}

// endGated settles a call and makes of it what its caller is answered.
func (s *server) endGated(ctx context.Context, c *gatedCall, outcome engine.CallOutcome, f frame, callErr error) (Reply, error) {
	answer := f.result
	if f.failure != nil {
		answer = append(append([]byte(`{"isError":true,"error":`), f.failure...), '}')
	}
	r, err := s.settleGated(ctx, c, outcome, answer)
	at := Standing{ID: r.ID, Workflow: r.Workflow, State: r.State, CallID: c.callID}
	at.NextTools, at.NextActions = s.manager.opts.Gates.ListPossible(r.Position, r.NextActions, func(tool string) bool { return s.manager.mayUse(c.principal, tool) })
	if r.Review != nil {
		at.ReviewID = r.Review.ID
	}
	switch {
	case callErr != nil:
		e, _ := errors.AsType[*Error](s.explain(callErr))
		if err == nil {
			e.Standing = &at
		}
		if outcome == engine.CallUnknown {
			e.Hint = "It may have been done: the tool is not called again before a person has said whether it was."
		}
		return Reply{}, e
	case f.failure != nil:
		return Reply{Error: f.failure}, nil
	}
	var note string
	switch {
	case err != nil:
		note = "The tool was called, but gavel could not record how it ended. Do not call it again: a person has to look at it."
	default:
		note = gate.DescribeAfter(r)
	}
	return Reply{Result: addNote(f.result, note, at, err == nil)}, nil
}

// addNote adds to the result of a tool where the workflow stands, and a text where something has to
// be said to the model.
func addNote(result json.RawMessage, note string, at Standing, known bool) json.RawMessage {
	v, replace := readChecked(result), map[string]json.RawMessage{}
	if v.Kind() != document.Object {
		return result
	}
	if where, err := document.Marshal(at); err == nil && known {
		replace["_meta"] = rewriteMembers(v.Get("_meta").Raw(), map[string]json.RawMessage{metaWorkflow: where})
	}
	if note != "" {
		b := []byte{'['}
		for _, block := range v.Get("content").Elements() {
			b = append(append(b, block.Raw()...), ',')
		}
		b = document.AppendQuote(append(b, `{"type":"text","text":`...), note)
		replace["content"] = append(b, `}]`...)
	}
	return rewriteMembers(result, replace)
}
