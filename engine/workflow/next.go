package workflow

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// NextAction is an action that is possible now, with its requirements.
type NextAction struct {
	Action      string `json:"action"`
	Description string `json:"description,omitempty"`
	// Requires lists the fields that the data must contain: those that the action requires, and those that the target
	// state requires and the context lacks. With several possible targets, it includes only the fields that all of
	// them require.
	Requires []string `json:"requires,omitempty"`
	// Writes lists the only top-level fields that the data may have; absent if there is no restriction.
	Writes []string `json:"writes,omitzero"`
	// Needs lists the persons and components that the move depends on, in addition to the workflow's rules.
	Needs []Need `json:"needs,omitempty"`
}

// Need is a person or component that a move depends on.
type Need string

// The needs.
const (
	NeedEvidence Need = "evidence" // the gate fetches it
	NeedModel    Need = "model"    // a language model judges the move
	NeedPerson   Need = "person"   // only a person can approve it, or a person may have to
)

// DescribeActions returns the requirements of each of the actions of a state, given the context of
// an instance. Actions that the state does not have are left out.
func (d *Definition) DescribeActions(state string, actions []string, context json.RawMessage, overlays []Overlay) []NextAction {
	s := d.States[state]
	if s == nil {
		return nil
	}
	var known document.JSON // the context, read on first use
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

// StartFields returns the fields that a start context must have: those that inputSchema requires at
// the top level, and those that the initial state requires.
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

// findEntryFields returns the fields that every possible target state requires and the context
// lacks.
func (d *Definition) findEntryFields(t *Transition, context json.RawMessage, known *document.JSON) []string {
	var common []string
	for i, target := range t.Targets() {
		checks, ok := d.StateValidators[target]
		if !ok {
			return nil
		}
		if known.Kind() == 0 {
			*known = document.ReadTrusted(context)
		}
		lacking := listFields(checks.RequiredFields, checks.Schema, *known)
		if i == 0 {
			common = lacking
		}
		common = slices.DeleteFunc(common, func(f string) bool { return !slices.Contains(lacking, f) })
	}
	return common
}

// listFields returns the required fields, and the fields that a JSON Schema requires at the top
// level, that doc does not have.
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
	for _, name := range document.ReadTrusted(schema).Get("required").Elements() {
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

// ActionDescription returns the definition's description of an action of a state.
func (d *Definition) ActionDescription(state, action string) string {
	if s := d.States[state]; s != nil && s.Transitions[action] != nil {
		return s.Transitions[action].Description
	}
	return ""
}
