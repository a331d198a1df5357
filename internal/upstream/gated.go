package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Recorder judges the calls of gated tools and records their outcomes.
type Recorder interface {
	BeginCall(ctx context.Context, p engine.Principal, req engine.CallRequest) (engine.CallResult, error)
	SettleCall(ctx context.Context, p engine.Principal, req engine.SettleRequest) (engine.SettleResult, error)
}

// Instances reads workflow instances and their definitions.
type Instances interface {
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	Instances(ctx context.Context, p engine.Principal, req engine.InstancesRequest) (engine.InstancesResult, error)
	LoadDefinition(ctx context.Context, p engine.Principal, right engine.Right, name string, version int) (store.Definition, *workflow.Definition, error)
}

// Engine is the part of *engine.Engine that gates use.
type Engine interface {
	Recorder
	Instances
	gate.Subjects
}

// Members of _meta that belong to gavel: the id with which a gated call is sent, and the workflow's position after
// it.
const (
	metaCallID   = "io.github.gavel-mcp/callId"
	metaWorkflow = "io.github.gavel-mcp/workflow"
	// metaKey is set by clients: an idempotency key, as for gavel's own tools.
	metaKey = "gavel/idempotencyKey"
)

const (
	// settleTimeout limits the recording of an outcome.
	settleTimeout = 30 * time.Second
	// answerGrace is added to a call's timeout in its record, so that an answer at the last moment is recorded in
	// time.
	answerGrace = 15 * time.Second
	// inputGrace is how long a person may take to answer a server's question in a call.
	inputGrace = 10 * time.Minute
)

// gatedCall is a call of a gated tool.
type gatedCall struct {
	Request
	gate      gate.Gate
	principal engine.Principal
	item      Item
	params    json.RawMessage // as sent, except _meta
	bound     []byte          // binding of a requestState
	values    gate.Values
	instance  string
	at        engine.Position
	// callID is the engine's id of the call, "" until it is known. use is set if the call continues after a question
	// from the server.
	callID, use string
	key         string // the client's idempotency key, or ""
	deadline    time.Time
	release     func() // withdraws the claim that this process makes the call
}

// callGated judges a call, sends it and records the outcome. It continues if its caller stops waiting, because the
// outcome of a call that was sent must be recorded.
func (s *server) callGated(ctx context.Context, c *gatedCall, leave func()) (Reply, error) {
	progress := &progressRelay{to: c.Progress}
	if c.Progress != nil {
		c.Progress = progress.forward
	}
	type answer struct {
		reply Reply
		err   error
	}
	done := make(chan answer, 1)
	running := s.tryGo(func() {
		defer leave()
		reply, err := s.performGated(ctx, c)
		s.noteOutcome(c.principal, err)
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

// progressRelay forwards progress until its caller has gone.
type progressRelay struct {
	mu    sync.Mutex
	ended bool
	to    func(json.RawMessage)
}

func (r *progressRelay) forward(params json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.to(params)
	}
}

func (r *progressRelay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// performGated begins a call, sends it once, and settles it.
func (s *server) performGated(ctx context.Context, c *gatedCall) (Reply, error) {
	ses, release, item, err := s.prepare(ctx, c.principal, c.Request)
	if canRepeat(err) {
		ses, release, item, err = s.prepare(ctx, c.principal, c.Request)
	}
	if err != nil {
		return Reply{}, s.refuseFirst(ctx, c, s.explainTo(ctx, err))
	}
	c.item = item
	defer func() { c.release() }()
	c.release = func() {}
	continued := c.callID != ""
	if continued {
		s.hold(c, c.callID)
		err = s.manager.acceptAnswer(ctx, c)
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
		result, err := s.manager.sealQuestion(ctx, c, f.result)
		return Reply{Result: result}, err
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

// explainTo returns ctx's error if ctx has ended, and otherwise explain's.
func (s *server) explainTo(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.explain(err)
}

// sendGated sends a call and waits for the answer even if its caller does not. It repeats the call in a new session
// if the upstream cannot have acted on it.
func (s *server) sendGated(ctx context.Context, c *gatedCall, ses *session, release func()) (frame, error) {
	waits := ctx
	ctx = context.WithoutCancel(ctx)
	f, err := s.ask(ctx, waits, ses, c.Request, c.item, c.params)
	release()
	if canRepeat(err) && waits.Err() == nil {
		_ = s.dropForgotten(ses, err)
		again, release, item, prepareErr := s.prepare(waits, c.principal, c.Request)
		if prepareErr != nil {
			return frame{}, err
		}
		f, err = s.ask(ctx, waits, again, c.Request, item, c.params)
		release()
		ses = again
	}
	if err == nil && f.failure != nil && isForgotten(f) {
		s.forget(ses)
	}
	return f, s.dropForgotten(ses, err)
}

// refuseFirst returns the error for a gated call whose upstream cannot be reached. If the engine would refuse the call
// anyway, or the call was made before, it returns the engine's refusal; otherwise it returns err.
func (s *server) refuseFirst(ctx context.Context, c *gatedCall, err error) error {
	if c.callID != "" || ctx.Err() != nil {
		return err
	}
	req := s.newCallRequest(c, s.CallTimeout)
	req.CheckOnly = true
	r, checkErr := s.manager.opts.Engine().BeginCall(ctx, c.principal, req)
	if checkErr != nil {
		return wrapEngineError(s.name, checkErr)
	}
	c.at = r.Position
	return cmp.Or(s.refuseAnswer(ctx, c, r), err)
}

func (s *server) newCallRequest(c *gatedCall, timeout time.Duration) engine.CallRequest {
	g := c.gate
	return engine.CallRequest{
		ID: c.instance, Gate: g.Tool, Upstream: s.name, Tool: c.item.Name, Pin: c.item.Hash(), Arguments: c.values.Arguments.Raw(),
		States: g.States, Action: g.Action, Data: g.DataOf(c.values), Success: g.Success, Error: g.Error,
		Bound: g.Bind, MaxCalls: g.MaxCalls, MaxArguments: g.MaxArguments, Repeatable: g.Repeatable, Timeout: timeout, Key: c.key,
	}
}

// beginGated has a call judged and recorded. The call may be sent only if the error is nil.
func (s *server) beginGated(ctx context.Context, c *gatedCall, ses *session) error {
	timeout := s.CallTimeout + answerGrace
	if ses.isModern() && c.Capabilities != nil {
		timeout += inputGrace
	}
	req := s.newCallRequest(c, timeout)
	req.Hold = func(call string) { s.hold(c, call) }
	r, err := s.manager.opts.Engine().BeginCall(ctx, c.principal, req)
	if err != nil {
		return wrapEngineError(s.name, err)
	}
	c.at, c.callID, c.deadline = r.Position, r.CallID, r.Deadline
	return s.refuseAnswer(ctx, c, r)
}

// hold claims the call for this process. It first releases an earlier claim, for a call that was replaced before it was
// recorded.
func (s *server) hold(c *gatedCall, call string) {
	c.release()
	c.release = s.manager.opts.Hold(call)
}

// refuseAnswer explains why the engine does not permit a call. It returns nil if the call may be sent.
func (s *server) refuseAnswer(ctx context.Context, c *gatedCall, r engine.CallResult) error {
	g := c.gate
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
		e.Standing.CallID, e.Outcome = r.CallID, r.Outcome
		return e
	default:
		return s.refuseGated(ctx, c, r)
	}
}

// settleGated records the outcome of a call, even if its caller has gone.
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
