package upstream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

func codeOfRefusal(r gate.Refusal) Code {
	if r.Judged {
		return CodeCallRefused
	}
	return CodeGateClosed
}

// Standing is the position of a gated call's workflow.
type Standing struct {
	ID       string `json:"id"`
	Workflow string `json:"workflow"`
	State    string `json:"state"`
	// NextActions and NextTools are possible now; absent if unknown.
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

// wrapEngineError converts an error of the engine to an *Error about the upstream.
func wrapEngineError(upstream string, err error) error {
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

// refuseGated explains why a call was refused, by the workflow's state or by the judgement.
func (s *server) refuseGated(ctx context.Context, c *gatedCall, r engine.CallResult) error {
	_, d, err := s.manager.opts.Engine().LoadDefinition(ctx, gateReader, engine.RightRead, r.Workflow, r.Version)
	if err != nil {
		return wrapEngineError(s.name, err)
	}
	return c.refuse(s.manager.opts.Gates.RefuseCall(c.gate, d, r, c.principal.Role, func(tool string) bool { return s.manager.mayUse(c.principal, tool) }))
}

// endGated settles a call and returns the reply to its caller.
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
			e.Hint = "The call may have taken effect; the tool is not called again until a person decides."
		}
		return Reply{}, e
	case f.failure != nil:
		return Reply{Error: f.failure}, nil
	}
	var note string
	switch {
	case err != nil:
		note = "The tool was called, but gavel could not record how it ended. Do not call it again: a person has to check it."
	default:
		note = gate.DescribeRefusedMove(r)
	}
	return Reply{Result: addNote(f.result, note, at, err == nil)}, nil
}

// addNote adds the workflow's position to a tool's result, and a text for the model if note is not empty.
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
