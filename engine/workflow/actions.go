package workflow

import (
	"slices"
)

// The roles that a transition's roles may name.
const (
	roleAgent    = "agent"
	roleReviewer = "reviewer"
	roleOperator = "operator"
	roleAuditor  = "auditor"
)

// Roles are the roles that a transition's roles may name.
var Roles = []string{roleAgent, roleReviewer, roleOperator, roleAuditor}

// NextActions are the actions that a role may perform in a state, in the order of
// the document. Role "" asks for all of them. It is never nil; an unknown or
// final state has none.
func (d *Definition) NextActions(state, role string) []string {
	out := []string{}
	s := d.States[state]
	if s == nil || s.Final {
		return out
	}
	for _, a := range s.Actions {
		if t := s.Transitions[a]; t != nil && (role == "" || t.allows(role)) {
			out = append(out, a)
		}
	}
	return out
}

// allows says whether a role may perform the transition: one of those it names,
// else agents and operators. Reviewers and auditors act only where they are named.
func (t *Transition) allows(role string) bool {
	if len(t.Roles) > 0 {
		return slices.Contains(t.Roles, role)
	}
	return role == roleAgent || role == roleOperator
}

// Targets are the states that the transition can lead to, each once, in the
// order of the routes.
func (t *Transition) Targets() []string {
	var out []string
	for _, r := range t.Routes {
		if !slices.Contains(out, r.Target) {
			out = append(out, r.Target)
		}
	}
	return out
}
