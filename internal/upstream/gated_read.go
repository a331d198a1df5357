package upstream

import (
	"context"
	"encoding/json"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// gateReader is the principal that reads definitions for gates, because whether a gate fits must not depend on what the
// caller may see.
var gateReader = engine.Principal{ID: "local:gateway", Role: engine.RoleOperator}

// readGated builds a call from checked params. It removes the argument gate.Handle from them. If they have a
// requestState, it restores the call that the requestState continues.
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
		arguments = document.ReadTrusted([]byte(`{}`))
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
			return nil, newError(CodeInvalid, req.Upstream, "Start one with workflow.start, or find yours with workflow.instances.",
				"The argument %s is missing: %s", gate.Handle, c.gate.DescribeHandle())
		}
		arguments = readChecked(rewriteMembers(arguments.Raw(), map[string]json.RawMessage{gate.Handle: nil}))
		replace["arguments"] = arguments.Raw()
	}
	c.values = gate.Values{Arguments: arguments, Principal: gate.PrincipalValue(p)}
	if state := v.Get("requestState"); state.Kind() != 0 {
		known := document.ReadTrusted(state.Bytes())
		c.callID, c.use = known.Get("call").Text(), known.Get("use").Text()
		instance := known.Get("instance").Text()
		if c.callID == "" || c.use == "" || c.gate.Subject == nil && instance != c.instance {
			return nil, invalidState(req.Upstream)
		}
		c.instance = instance
		replace["requestState"] = known.Get("state").Raw() // nil if the server gave none
	}
	c.params = rewriteMembers(params, replace)
	return c, m.findInstance(ctx, c)
}

// findInstance sets the instance that a call belongs to, and checks that the gate fits it.
func (m *Manager) findInstance(ctx context.Context, c *gatedCall) error {
	e := m.opts.Engine()
	if e == nil {
		return newError(CodeUnavailable, c.Upstream, "Call it through a running gavel server.", "This process cannot judge a call of %s.", c.item.Public)
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
			return wrapEngineError(c.Upstream, err)
		}
		c.at = status.Position
	}
	stored, d, err := e.LoadDefinition(ctx, gateReader, engine.RightRead, c.at.Workflow, c.at.Version)
	if err != nil {
		return wrapEngineError(c.Upstream, err)
	}
	if r := c.gate.RefuseForeign(c.at, stored.Operator, d); r != nil {
		return c.refuse(*r)
	}
	return nil
}

// findSubject returns the instance for the call's subject, and starts one if the gate allows that.
func findSubject(ctx context.Context, e Engine, c *gatedCall) (engine.Position, error) {
	subject, problem := c.gate.SubjectOf(c.values)
	if problem != "" {
		return engine.Position{}, newError(CodeInvalid, c.Upstream, "Correct the arguments.", "%s", problem)
	}
	at, refusal, err := gate.FindInstance(ctx, e, c.principal, c.gate.Workflow, subject, c.gate.Tool, c.gate.Start)
	switch {
	case err != nil:
		return at, wrapEngineError(c.Upstream, err)
	case refusal != nil:
		return at, newError(codeOfRefusal(*refusal), c.Upstream, refusal.Hint, "%s", refusal.Message)
	}
	return at, nil
}
