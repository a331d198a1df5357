package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// DecideRequest asks for a decision on an action without an instance.
type DecideRequest struct {
	// Workflow names a stored definition; Version 0 is the newest. Set either Workflow or Definition.
	Workflow string
	Version  int
	// Definition is the text of a definition, as JSON or YAML. It is not stored.
	Definition []byte
	// State is the state in which the action would be performed.
	State, Action string
	// Data is the action's data, Context the accumulated context: JSON objects; nil is {}.
	Data, Context json.RawMessage
	// Key, if set, lets a model's answer to exactly this request be reused.
	Key string
}

// Unchecked is a rule that was not checked because it needs the history of an instance.
type Unchecked struct {
	// What is "state", or the key of the definition that holds the rule: mustPassThrough, freezes, notBy,
	// evidence.
	What string `json:"what"`
	Why  string `json:"why"`
}

// DecideResult answers a DecideRequest. The decision is not recorded and has no id.
type DecideResult struct {
	Workflow string   `json:"workflow"`
	Version  int      `json:"version,omitempty"` // 0 when the definition came with the request
	Hash     string   `json:"definitionHash"`
	State    string   `json:"state"`
	Action   string   `json:"action"`
	Approved bool     `json:"approved"`
	Decision Decision `json:"decision"`
	// NotChecked lists the rules that a decision about an instance would also have checked.
	NotChecked []Unchecked `json:"notChecked"` // never nil
}

// Decide judges an action without an instance, for callers that keep their own state and want only the
// judgement. Nothing is recorded except what the loop guard counts, so that a caller that is refused
// repeatedly cannot ask forever. As with Validate, only read-only sources of evidence are queried.
func (e *Engine) Decide(ctx context.Context, p Principal, req DecideRequest) (DecideResult, error) {
	if err := Authorize(p, RightDecide); err != nil {
		return DecideResult{}, err
	}
	data, err := checkDecide(&req, e.cfg.Limits)
	if err != nil {
		return DecideResult{}, err
	}
	l, err := e.definitionToDecide(ctx, p, req)
	if err != nil {
		return DecideResult{}, err
	}
	if _, ok := l.def.States[req.State]; !ok {
		return DecideResult{}, unknownState("/state", req.State, l.def)
	}
	c, err := e.statelessCase(ctx, p, l, req, data)
	if err != nil {
		return DecideResult{}, err
	}
	release, err := e.lockGuard(ctx, record.Instance{}, c.Guard)
	if err != nil {
		return DecideResult{}, err
	}
	defer release()
	v, err := e.askJudge(ctx, p, c, nil)
	if err != nil {
		return DecideResult{}, err
	}
	if l := newLesson(c, v, false); l != nil {
		if err := e.cfg.Store.Commit(ctx, store.Commit{Lesson: l}); err != nil {
			return DecideResult{}, StoreError("count the refusal", err)
		}
	}
	v.Applied = false
	v.Suggestions = slices.DeleteFunc(v.Suggestions, func(s string) bool { return s == judge.ReviewsAreOff })
	e.publishUnrecorded(ctx, p, record.Prechecked, c, l.stored.Version, v)
	shown := decisionView(&record.Decision{Verdict: v})
	if seesAll(p.Role) { // agents get the same answer as from Validate
		shown.Opinions = v.Opinions
	}
	return DecideResult{
		Workflow: l.def.Name, Version: l.stored.Version, Hash: l.def.Hash, State: req.State, Action: req.Action,
		Approved: v.Outcome == judge.Approve, Decision: shown, NotChecked: notChecked(p, l.def, req, v.Target),
	}, nil
}

func checkDecide(req *DecideRequest, limits Limits) (document.JSON, error) {
	switch {
	case (req.Workflow == "") == (len(req.Definition) == 0):
		return document.JSON{}, &Error{Code: CodeInvalidArgument, Path: "/workflow", Message: "Give either a workflow's name or a definition.", Hint: "workflow is the name of a stored definition; definition is the text of one."}
	case len(req.Definition) > 0 && req.Version != 0:
		return document.JSON{}, &Error{Code: CodeInvalidArgument, Path: "/version", Message: "A definition that comes with the request has no version.", Hint: "Leave the version out."}
	case req.Version < 0:
		return document.JSON{}, &Error{Code: CodeInvalidArgument, Path: "/version", Message: "A version is 1 or more.", Hint: "Leave it out for the newest."}
	case req.State == "":
		return document.JSON{}, MissingField("state", "The state in which the action would be performed.")
	case req.Action == "":
		return document.JSON{}, MissingField("action", "An action of that state.")
	case len(req.Key) > limits.Key:
		return document.JSON{}, tooLarge("/idempotencyKey", "The idempotency key has %d bytes; the limit is %d.", len(req.Key), limits.Key)
	}
	data, err := readDocument("data", req.Data, limits.Data)
	if err != nil {
		return document.JSON{}, err
	}
	context, err := readDocument("context", req.Context, limits.Context)
	req.Context = context.Raw()
	return data, err
}

func (e *Engine) definitionToDecide(ctx context.Context, p Principal, req DecideRequest) (definition, error) {
	if req.Workflow != "" {
		return e.loadNamed(ctx, p, req.Workflow, req.Version)
	}
	if !slices.Contains(allowed[RightDefine], p.Role) {
		return definition{}, newError(CodeForbidden, "/definition", "The role %q may not send a definition.", p.Role).
			withHint("Give the name of a defined workflow.")
	}
	d, _, err := e.ExamineDefinition(ctx, p, DefineRequest{Source: "definition", Document: req.Definition})
	if err != nil {
		return definition{}, err
	}
	if !p.InScope(d.Name) {
		return definition{}, outOfScope(p, d.Name)
	}
	if err := e.checkName(ctx, p, d.Name, true); err != nil {
		return definition{}, err
	}
	return definition{def: d, stored: store.Definition{Name: d.Name, Hash: d.Hash, Owner: p.ID, Operator: p.Role == RoleOperator}}, nil
}

// statelessCase builds the case of an action without a history. Anything that only a history could show is
// assumed to hold, and listed in NotChecked.
func (e *Engine) statelessCase(ctx context.Context, p Principal, l definition, req DecideRequest, data document.JSON) (judge.Case, error) {
	if l.stored.Version != 0 {
		var err error
		if l.overlays, l.overlaysHash, err = e.loadOverlays(ctx, l, p.ID, time.Time{}); err != nil {
			return judge.Case{}, err
		}
	}
	id := ""
	if req.Key != "" { // without a key no answer is reused
		id = "decide:" + digestParts("gavel/decide/v1", p.ID, req.Key)
	}
	inst := instance{definition: l, by: p, Instance: record.Instance{
		ID: id, Workflow: l.def.Name, Version: l.stored.Version, DefinitionHash: l.def.Hash,
		State: req.State, Status: record.Running, Context: req.Context, Owner: p.ID,
		Facts: workflow.Facts{Visited: l.def.StateNames},
	}}
	c, err := e.newCase(inst, workflow.CaseInput{
		Action: req.Action, Read: data, Precheck: true, CallersContext: claimsContext(p),
	})
	c.KeyDigests = true
	bindRefusal(e.cfg.Digester, &c, "decide:"+p.ID) // a different key is not a different question
	bindGuard(e.cfg.Digester, &c, "decide:"+string(judge.FingerprintOf(c.Context)))
	c.ReviewPath = false // there is no instance that a person could move
	return c, err
}

// claimsContext reports whether the context is only the caller's claim. Such a caller could choose the queries
// to the sources, which run with the operator's credentials.
func claimsContext(p Principal) bool { return p.Role != RoleOperator }

func notChecked(p Principal, d *workflow.Definition, req DecideRequest, target string) []Unchecked {
	out := []Unchecked{{"state", fmt.Sprintf("Only the caller knows whether anything is in the state %q now.", req.State)}}
	add := func(when bool, what, why string) {
		if when {
			out = append(out, Unchecked{what, why})
		}
	}
	add(len(d.MustPassThrough[target]) > 0, "mustPassThrough", fmt.Sprintf("The states visited before %q are unknown without an instance.", target))
	freezes := false
	for _, s := range d.States {
		for _, t := range s.Transitions {
			freezes = freezes || len(t.Freezes) > 0
		}
	}
	add(freezes, "freezes", "The fields that earlier transitions froze are unknown without an instance.")
	t := d.States[req.State].Transitions[req.Action]
	if t == nil {
		return out
	}
	add(len(t.NotBy) > 0, "notBy", "The principals that performed earlier actions are unknown without an instance.")
	add(len(t.Evidence) > 0, "evidence", "Only read-only sources were queried.")
	for _, e := range t.Evidence {
		add(claimsContext(p) && e.UsesContext(), "evidence",
			fmt.Sprintf("The evidence %q was not fetched: its query uses fields of the context, which no instance confirms.", e.Name))
	}
	return out
}
