package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// sealQuestion prepares an input_required result of a gated call, in which the server asks for input before it
// answers. It replaces the requestState with one that identifies the call. A call can be continued once for each
// requestState.
func (m *Manager) sealQuestion(ctx context.Context, c *gatedCall, result json.RawMessage) (json.RawMessage, error) {
	use, err := m.states.AllowUse(context.WithoutCancel(ctx), time.Until(c.deadline))
	if err != nil {
		return nil, m.explainCount(ctx, c, err)
	}
	b := document.AppendQuote([]byte(`{"call":`), c.callID)
	b = document.AppendQuote(append(b, `,"instance":`...), c.instance)
	b = document.AppendQuote(append(b, `,"use":`...), use)
	if state := readChecked(result).Get("requestState"); state.Kind() == document.String {
		b = append(append(b, `,"state":`...), state.Raw()...)
	}
	return rewriteMembers(result, map[string]json.RawMessage{"requestState": document.AppendQuote(nil, m.states.Seal(string(append(b, '}')), c.bound))}), nil
}

// acceptAnswer permits a call to continue, once and only before its deadline. After the deadline, a person may already
// have decided how the call ended.
func (m *Manager) acceptAnswer(ctx context.Context, c *gatedCall) error {
	left, err := m.states.Use(ctx, c.use)
	switch {
	case errors.Is(err, clientstate.ErrState):
		e := newError(CodeInvalid, c.Upstream, "Check workflow.status: the call may wait for a person.", "The requestState was used before, or the call is no longer open.")
		e.Err = err
		return e
	case err != nil:
		return m.explainCount(ctx, c, err)
	}
	c.deadline = time.Now().Add(left)
	return nil
}

// explainCount logs and returns the error for a call whose continuation the store could not record.
func (m *Manager) explainCount(ctx context.Context, c *gatedCall, cause error) error {
	m.opts.Logger.ErrorContext(ctx, "a call that asks its client for input cannot continue; after its deadline it counts as unknown",
		"upstream", c.Upstream, "tool", c.item.Public, "call", c.callID, "cause", cause.Error())
	e := newError(CodeUnavailable, c.Upstream, "Check workflow.status: after its deadline the call waits for a person.", "The store could not record that the call continues.")
	e.Err = cause
	return e
}
