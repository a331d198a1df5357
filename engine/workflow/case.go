package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Case builds the judge's question about an action or a start: the requirements of the
// definition, the states that it can lead to, and its documents with their masked copies. It is
// pure: the same input gives the same case. Requirements on the history are checked against
// in.Facts only, never against data or context.
//
// An error means that the input is inconsistent (an unknown state, a document that is not a JSON
// object), which is a bug in the caller. Anything that an agent can get wrong is a finding in the
// case.
func (d *Definition) Case(in CaseInput) (judge.Case, error) {
	c := judge.Case{
		Operation: in.Operation, Precheck: in.Precheck,
		Workflow: d.Name, Version: in.Version, DefinitionHash: d.Hash, JudgeConfigHash: in.JudgeConfigHash,
		Instance: in.Instance, State: in.State, Action: in.Action,
		Principal: in.Principal, Role: in.Role, Owner: in.Owner,
		ReviewPath: in.ReviewPath, Now: in.Now, Seed: in.Seed,
	}
	if in.Operation == judge.Start {
		in.Context = nil
		c.State, c.Action = "", ""
	}
	if err := d.fillDocuments(&c, in); err != nil {
		return judge.Case{}, fmt.Errorf("case of workflow %q: %w", d.Name, err)
	}
	var err error
	switch in.Operation {
	case judge.Start:
		err = d.fillStartCase(&c, in)
	case judge.Advance:
		err = d.fillAdvanceCase(&c, in)
	default:
		err = fmt.Errorf("unknown operation %q", in.Operation)
	}
	if err != nil {
		return judge.Case{}, fmt.Errorf("case of workflow %q: %w", d.Name, err)
	}
	return c, nil
}

func (d *Definition) fillDocuments(c *judge.Case, in CaseInput) error {
	var err error
	if c.Data = in.Read; c.Data.Kind() != document.Object {
		if c.Data, err = readObject(in.Data); err != nil {
			return fmt.Errorf("data: %w", err)
		}
	}
	if c.Context, err = readObject(in.Context); err != nil {
		return fmt.Errorf("context: %w", err)
	}
	c.MaskedData, c.MaskedContext = d.MaskJSON(c.Data, nil), d.MaskJSON(c.Context, nil)
	c.Merged, c.MaskedMerged = c.Context, c.MaskedContext
	secrets := []document.JSON{c.Context, c.Data}
	if in.Call != nil {
		c.Call = &judge.Call{Tool: in.Call.Tool, Arguments: in.Call.Arguments}
		c.Call.Masked = d.maskArguments(c, in.Bound)
		secrets = append(secrets, c.Call.Arguments)
	}
	c.Scrub = d.newScrubber(slices.Values(secrets))
	c.Scrubber = func(doc json.RawMessage) func(string) string { return d.Scrubber(doc) }
	c.Mask = func(doc json.RawMessage) (json.RawMessage, error) { return d.Mask(doc, nil) }
	return nil
}

// isFieldMissing reports whether the data will be rejected because a required field is missing.
func isFieldMissing(c *judge.Case) bool {
	return slices.ContainsFunc(c.Checks.RequiredFields, func(name string) bool { return !validators.HasField(c.Data, name) })
}

// merge sets the context that the action would lead to. Callers skip it for an action that is illegal or
// is rejected because a required field is missing.
func (d *Definition) merge(c *judge.Case) {
	c.Merged = mergeObjects(c.Context, c.Data)
	c.MaskedMerged = d.MaskJSON(c.Merged, nil)
}

func (d *Definition) fillStartCase(c *judge.Case, in CaseInput) error {
	initial := d.States[d.InitialState]
	if initial == nil {
		return fmt.Errorf("unknown initial state %q", d.InitialState)
	}
	d.merge(c)
	c.Checks.Schema = d.InputSchema
	c.Candidates = []judge.Candidate{d.Candidate(initial.Name, Facts{}, "")}
	c.Rubric = d.resolveStartRubric(in.Overlays)
	return nil
}

func (d *Definition) fillAdvanceCase(c *judge.Case, in CaseInput) error {
	s := d.States[in.State]
	if s == nil {
		return fmt.Errorf("unknown state %q", in.State)
	}
	if c.Illegal = d.findIllegal(s, in); len(c.Illegal) > 0 {
		c.Rubric = d.Rubric(in.Overlays)
		return nil
	}
	t := s.Transitions[in.Action]
	c.Checks = d.collectChecks(s, t)
	for _, r := range t.Routes {
		c.Candidates = append(c.Candidates, d.Candidate(r.Target, in.Facts, in.State))
	}
	c.Rubric = d.resolveRubric(t.Judge, in.Overlays)
	if c.Rubric.Enabled && c.Rubric.UseLLM {
		for i, source := range c.Rubric.Conditions() {
			c.Checks.Validators = append(c.Checks.Validators, script.Script{
				Name: fmt.Sprintf("states.%s.transitions.%s.criteria.when[%d]", s.Name, t.Action, i), Kind: script.Condition, Source: source,
			})
		}
	}
	if c.Rubric.Mode == judge.Shadow || !isFieldMissing(c) {
		d.merge(c)
	}
	c.Rubric.Reference, c.Rubric.Exemplars, c.Rubric.ExemplarsFrom = t.Reference, t.Exemplars, t.ExemplarsFrom
	c.About = judge.About{Workflow: d.Description, State: s.Description, Action: t.Description}
	if c.Rubric.UseLLM && !in.CallersContext {
		c.Path = pathOf(in.Facts, in.Principal)
	}
	for _, e := range t.Evidence {
		r := e.buildRequest(c)
		r.Unproven = in.CallersContext && e.UsesContext()
		c.Evidence = append(c.Evidence, r)
	}
	c.Forbidden = findUnwritableKeys(t, c.Data)
	frozen, err := findChangedFrozenFields(in.Facts.Frozen, c.Context, c.Merged)
	c.Forbidden = append(c.Forbidden, frozen...)
	return err
}

// pathOf describes how the instance reached its state. Principals are not named; the path only separates the asking
// principal from others.
func pathOf(f Facts, principal string) judge.Path {
	p := judge.Path{States: f.Visited, Actions: map[string]string{}}
	for action, by := range f.Performed {
		switch own := slices.Contains(by, principal); {
		case !own:
			p.Actions[action] = "somebody else"
		case len(by) > 1:
			p.Actions[action] = "who asks now, and somebody else"
		default:
			p.Actions[action] = "who asks now"
		}
	}
	return p
}

// Candidate returns the conditions for entering a state: its checks of the context, and the
// states that mustPassThrough requires and the facts do not show. The present state ("" for none)
// counts as visited; the target itself does not.
func (d *Definition) Candidate(target string, facts Facts, present string) judge.Candidate {
	c := judge.Candidate{Target: target}
	if s := d.States[target]; s != nil {
		c.About = s.Description
	}
	if v, ok := d.StateValidators[target]; ok {
		c.Entry = validators.Checks{RequiredFields: v.RequiredFields, Schema: v.Schema}
	}
	for _, before := range d.MustPassThrough[target] {
		if before != present && !slices.Contains(facts.Visited, before) {
			c.Unmet = append(c.Unmet, validators.Finding{
				Code:    CodeMustPassThrough,
				Message: fmt.Sprintf("The state %s may only be entered after %s, which this instance has not visited.", quoteName(target), quoteName(before)),
				Hint:    fmt.Sprintf("Take a path through %s first.", quoteName(before)),
			})
		}
	}
	return c
}

// collectChecks returns the checks of the action's data: the transition's own fields,
// schema and validator, and the keyed validators that apply.
func (d *Definition) collectChecks(s *State, t *Transition) validators.Checks {
	out := validators.Checks{RequiredFields: t.RequiredFields, Schema: t.Schema}
	at := "states." + s.Name + ".transitions." + t.Action
	if t.Validator != "" {
		out.Validators = append(out.Validators, script.Script{Name: at + ".validator", Kind: script.Validator, Source: t.Validator})
	}
	for _, key := range [...]string{t.Action, s.Name + "." + t.Action} {
		if source, ok := d.TransitionValidators[key]; ok {
			out.Validators = append(out.Validators, script.Script{Name: "transitionValidators." + key, Kind: script.Validator, Source: source})
		}
	}
	if t.Conditional() {
		for i, r := range t.Routes {
			out.Routes = append(out.Routes, script.Script{
				Name: fmt.Sprintf("%s[%d].condition", at, i), Kind: script.Condition, Source: r.Condition,
			})
		}
	}
	return out
}

func findUnwritableKeys(t *Transition, data document.JSON) []validators.Finding {
	if t.Writes == nil {
		return nil
	}
	var out []validators.Finding
	for name := range data.Members() {
		key := name.Text()
		if slices.Contains(t.Writes, key) {
			continue
		}
		out = append(out, validators.Finding{
			Code: CodeWriteNotAllowed, Path: joinPointer("", script.Clean(key, maxShown)),
			Message: fmt.Sprintf("The action %s may not set %s; it may set %s.", quoteName(t.Action), quoteName(key), quoteNames(t.Writes)),
			Hint:    "Leave the key out.",
		})
	}
	return out
}

func findChangedFrozenFields(pointers []string, before, after document.JSON) ([]validators.Finding, error) {
	var out []validators.Finding
	for _, p := range pointers {
		tokens, err := splitPointer(p)
		if err != nil {
			return out, fmt.Errorf("frozen field %q: %w", p, err)
		}
		if !before.At(tokens...).Equal(after.At(tokens...)) {
			out = append(out, validators.Finding{
				Code: CodeFrozenField, Path: p,
				Message: fmt.Sprintf("The field %s was frozen by an earlier transition and may not be changed.", p),
				Hint:    fmt.Sprintf("Leave %s out of the data, or send its current value.", quoteName(tokens[0])),
			})
		}
	}
	return out, nil
}

// Facts is what an instance's events record in addition to its state and context. A rollback
// restores the facts of its target revision, so undone visits do not count.
type Facts struct {
	// Visited are the states entered, each once, in order of the first visit.
	Visited []string `json:"visited,omitempty"`
	// Frozen are the JSON pointers that applied transitions froze, each once.
	Frozen []string `json:"frozen,omitempty"`
	// Performed maps an action to the principals that performed it (applied moves only).
	Performed map[string][]string `json:"performed,omitempty"`
	// Reviews are the pending reviews, at most one per action. A rollback restores none.
	Reviews []OpenReview `json:"reviews,omitempty"`
	// Calls are the calls of other servers' tools that are open or whose outcome is unknown.
	// They are not part of a revision: a rollback leaves them as they are.
	Calls []OpenCall `json:"calls,omitempty"`
	// Called counts the calls of each gate. A rollback does not reset the counts.
	Called map[string]CallCount `json:"called,omitempty"`
	// Grants are approvals by a person that have not been used yet. Any change of state or
	// context voids them.
	Grants []Grant `json:"grants,omitempty"`
	// Stops records the agent's attempts to end its session since the instance last moved.
	Stops Stops `json:"stops,omitzero"`
}

// Stops counts how often an agent tried to end its session while the instance was not finished.
type Stops struct {
	// Refused counts the stops that were refused since the last move, or since a person sent the
	// agent back. Sessions counts them per known client session, for at most maxStopSessions
	// sessions; later sessions share the count of "".
	Refused  int            `json:"refused,omitempty"`
	Sessions map[string]int `json:"sessions,omitempty"`
	// Accepted is true if a person accepted the early end.
	Accepted bool `json:"accepted,omitempty"`
}

const maxStopSessions = 32

// CountIn returns the number of refused stops of a session, or of all sessions if session is "".
func (s Stops) CountIn(session string) int {
	if session == "" {
		return s.Refused
	}
	return s.Sessions[s.keyOf(session)]
}

// Refuse returns the counts after one more refused stop of a session; session is "" if it is not known.
func (s Stops) Refuse(session string) Stops {
	s.Refused++
	if session != "" {
		key := s.keyOf(session)
		s.Sessions = maps.Clone(s.Sessions)
		if s.Sessions == nil {
			s.Sessions = map[string]int{}
		}
		s.Sessions[key]++
	}
	return s
}

func (s Stops) keyOf(session string) string {
	if _, known := s.Sessions[session]; !known && len(s.Sessions) >= maxStopSessions {
		return ""
	}
	return session
}

// OpenCall is a call that is not finally settled.
type OpenCall struct {
	ID        string `json:"id"`
	Gate      string `json:"gate"`
	Principal string `json:"principal"`
	// Arguments is the keyed digest of the arguments that were sent.
	Arguments string    `json:"arguments"`
	Deadline  time.Time `json:"deadline"`
	// Seq is the seq of the event that began the call, Revision the instance's revision at that time.
	Seq      int64 `json:"seq"`
	Revision int64 `json:"revision"`
	// Review is the id of the review in which a person decides whether the call happened; "" while it is open.
	Review string `json:"review,omitempty"`
}

// IsOpen reports whether the call may still be in progress. While it is, nothing moves the instance.
func (c OpenCall) IsOpen() bool { return c.Review == "" }

// CallCount is how often a gate's tool was called: in total, and before the current visit to the
// state.
type CallCount struct {
	Total  int `json:"total"`
	Before int `json:"before"`
}

// Grant is a person's approval of exactly one call.
type Grant struct {
	Review    string    `json:"review"`
	Gate      string    `json:"gate"`
	Action    string    `json:"action"`
	Principal string    `json:"principal"`
	Arguments string    `json:"arguments"` // a keyed digest
	Until     time.Time `json:"until"`
}

// HasOpenCall reports whether a call may still be in progress.
func (f Facts) HasOpenCall() bool { return slices.ContainsFunc(f.Calls, OpenCall.IsOpen) }

// CallsMade returns how often a gate was called during the current visit to the state.
func (f Facts) CallsMade(gate string) int { return f.Called[gate].Total - f.Called[gate].Before }

// OpenReview is a pending review as the facts record it.
type OpenReview struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	// Digest binds the review to the request that opened it.
	Digest string `json:"digest"`
	// Seq is the seq of the event that opened the review.
	Seq int64 `json:"seq"`
}

// CaseInput is what Definition.Case needs in addition to the definition.
type CaseInput struct {
	Operation judge.Operation
	Precheck  bool
	Version   int
	// Owner wrote this version of the definition.
	Owner validators.Owner
	// Instance is the id, "" for a start.
	Instance string
	// State is the current one; ignored for a start.
	State string
	// Ended is "" while the instance runs, else "final" or "cancelled".
	Ended  string
	Action string
	// Data is the data of the action, or the start context of a start. Context is the accumulated context. Both are
	// JSON objects that document.CheckJSON accepted; nil is {}.
	Data, Context json.RawMessage
	// Read is Data if it has been read already.
	Read document.JSON
	// Call is the call that the action represents, without its masked copy; nil if there is none. Bound lists its
	// arguments that are bound to fields of the context.
	Call  *judge.Call
	Bound []Binding
	// CallersContext is true if the context is a claim of the caller and not accumulated by an
	// instance. No evidence is fetched with such a context.
	CallersContext  bool
	Principal, Role string
	Facts           Facts
	// Overlays are the judge-config revisions in force, applied to judgeConfig in order: a later
	// one wins (tightenings of agents come last and only raise).
	Overlays        []Overlay
	JudgeConfigHash string
	ReviewPath      bool
	Now             time.Time
	Seed            int64
}

// Overlay is one judge-config revision in force.
type Overlay struct {
	Settings JudgeSettings
	// TightenOnly keeps the stricter of the current value and the overlay's value:
	// enabled true, strictMode true, the higher minConfidence.
	TightenOnly bool
}

// The codes of the findings that Case and FindCallObstacles return.
const (
	CodeIllegalAction   = "illegal_action"
	CodeInstanceEnded   = "instance_ended"
	CodeRoleNotAllowed  = "role_not_allowed"
	CodeNotBy           = "not_by"
	CodeMustPassThrough = "must_pass_through"
	CodeWriteNotAllowed = "write_not_allowed"
	CodeFrozenField     = "frozen_field"
	CodeCallState       = "call_state"
	CodeCallLimit       = "call_limit"
	CodeCallArgument    = "call_argument"
	CodeCallUnknown     = "call_unknown"
	CodeCallUnsettled   = "call_unsettled"
	CodeGateMisfit      = "gate_misfit"
	// CodeNotFinished is the code of a stop that was refused, or that was allowed and escalated to a person.
	CodeNotFinished = "not_finished"
)

// CodeInfo documents one code of a finding.
type CodeInfo struct {
	Code string
	// Meaning is one sentence; Do is the caller's next step.
	Meaning, Do string
}

// Codes lists the codes of the findings that Case and FindCallObstacles return, in the order of the
// reference page.
var Codes = []CodeInfo{
	{CodeIllegalAction, "The current state has no such action.", "Perform an action that the finding names."},
	{CodeInstanceEnded, "The instance has reached a final state or was cancelled.", "Start a new instance."},
	{CodeRoleNotAllowed, "The action is reserved for other roles.", "Leave it to a principal in one of the roles that the finding names."},
	{CodeNotBy, "The same principal performed an earlier action that notBy separates from this one.", "Leave it to another principal."},
	{CodeMustPassThrough, "The state may only be entered after others that were not visited.", "Go through the states that the finding names first."},
	{CodeWriteNotAllowed, "The data sets a key that the transition may not set.", "Leave the key out, or send it with an action that may set it."},
	{CodeCallState, "The tool may not be called in the state of the instance.", "Bring the instance to a state that the finding names first."},
	{CodeCallLimit, "The tool has reached its limit of calls in this state.", "To call the tool again, leave the state and enter it again."},
	{CodeCallArgument, "An argument of the call differs from the approved one.", "Call the tool with exactly the approved arguments."},
	{CodeCallUnknown, "It is unknown whether an earlier call of the tool happened.", "Wait until a person decides that in its review."},
	{CodeCallUnsettled, "Another call is open; the instance cannot move until it ends.", "Wait for its answer."},
	{CodeGateMisfit, "The gate names a state or an action that the instance's version of the workflow does not have.", "Tell the operator."},
	{CodeNotFinished, "The agent wants to end, but the instance is not in a state in which it may.", "Take the step that the finding names."},
	{CodeFrozenField, "The data would change a field that an earlier transition froze.", "Leave the field out, or send its current value."},
}
