package workflow

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// NextAction is an action that is possible now, and what it takes.
type NextAction struct {
	Action      string `json:"action"`
	Description string `json:"description,omitempty"`
	// Requires are the fields that the data has to bring: what the action requires, and
	// what the state that it leads to requires and the context lacks. Where there are
	// several such states, only what each of them requires.
	Requires []string `json:"requires,omitempty"`
	// Writes are the only top-level fields that the data may have; absent where it may have any.
	Writes []string `json:"writes,omitzero"`
	// Needs says who is asked apart from the workflow's own rules.
	Needs []Need `json:"needs,omitempty"`
}

// Need is somebody or something that a move depends on.
type Need string

// The needs.
const (
	NeedEvidence Need = "evidence" // the gate fetches it
	NeedModel    Need = "model"    // a language model judges the move
	NeedPerson   Need = "person"   // only a person can approve it, or may have to
)

// DescribeActions returns what each of the actions of a state takes, given the context of an
// instance. An action that the state does not have is left out.
func (d *Definition) DescribeActions(state string, actions []string, context json.RawMessage, overlays []Overlay) []NextAction {
	s := d.States[state]
	if s == nil {
		return nil
	}
	var known document.JSON // the context, read when it is needed
	out := make([]NextAction, 0, len(actions))
	for _, a := range actions {
		t := s.Transitions[a]
		if t == nil {
			continue
		}
		requires := listFields(t.RequiredFields, t.Schema, document.JSON{})
		for _, field := range d.findEntryFields(t, context, &known) {
			if !slices.Contains(requires, field) {
				requires = append(requires, field)
			}
		}
		out = append(out, NextAction{Action: a, Requires: requires, Writes: t.Writes, Needs: t.listNeeds(d.resolveRubric(t.Judge, overlays))})
	}
	return out
}

// StartFields are the fields that a start context must have: what inputSchema requires at its
// top, and what the initial state demands.
func (d *Definition) StartFields() []string {
	fields := listFields(nil, d.InputSchema, document.JSON{})
	checks := d.StateValidators[d.InitialState]
	for _, field := range listFields(checks.RequiredFields, checks.Schema, document.JSON{}) {
		if !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	return fields
}

// findEntryFields are the fields that the context lacks for every state to which the
// transition can lead.
func (d *Definition) findEntryFields(t *Transition, context json.RawMessage, known *document.JSON) []string {
	var common []string
	for i, target := range t.Targets() {
		checks, ok := d.StateValidators[target]
		if !ok {
			return nil
		}
		if known.Kind() == 0 {
			*known = document.Known(context)
		}
		lacking := listFields(checks.RequiredFields, checks.Schema, *known)
		if i == 0 {
			common = lacking
		}
		common = slices.DeleteFunc(common, func(f string) bool { return !slices.Contains(lacking, f) })
	}
	return common
}

// listFields are the required fields, and what a JSON Schema requires at its top, that a
// document does not have.
func listFields(fields []string, schema json.RawMessage, doc document.JSON) []string {
	var out []string
	for _, field := range fields {
		if !validators.HasField(doc, field) {
			out = append(out, field)
		}
	}
	if len(schema) == 0 {
		return out
	}
	for _, name := range document.Known(schema).Get("required").Elements() {
		if field := name.Text(); name.Kind() == document.String && doc.Get(field).Kind() == 0 && !slices.Contains(out, field) {
			out = append(out, field)
		}
	}
	return out
}

func (t *Transition) listNeeds(r judge.Rubric) []Need {
	var out []Need
	if len(t.Evidence) > 0 {
		out = append(out, NeedEvidence)
	}
	asked := r.Enabled && r.UseLLM
	if asked {
		out = append(out, NeedModel)
	}
	if need := r.RequiredAssurance(); r.Mode != judge.Shadow && (need.AtLeast(judge.AssuranceLLMCalibrated) || !asked && need.AtLeast(judge.AssuranceLLM)) {
		out = append(out, NeedPerson)
	}
	return out
}

// ActionDescription is what the definition says of an action of a state.
func (d *Definition) ActionDescription(state, action string) string {
	if s := d.States[state]; s != nil && s.Transitions[action] != nil {
		return s.Transitions[action].Description
	}
	return ""
}
