package workflow

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// lintRules are what Lint looks for. Each check looks for one thing only.
func lintRules() []Rule {
	const e, w = SeverityError, SeverityWarning
	return []Rule{
		{"unknown-initial-state", e, "initialState names no state.", unknownInitialState},
		{"unknown-target", e, "A transition or route leads to a state that does not exist.", unknownTarget},
		{"dead-end", e, "A state is not final and has no transition.", deadEnd},
		{"final-with-transitions", e, "A final state has transitions, which could never be taken.", finalWithTransitions},
		{"unknown-validator", e, "stateValidators names no state, or transitionValidators no action.", unknownValidator},
		{"unknown-not-by", e, "notBy names an action that does not exist.", unknownNotBy},
		{"unknown-must-pass", e, "mustPassThrough names a state that does not exist.", unknownMustPass},
		{"must-pass-through", e, "Some way leads into a state of mustPassThrough past a state that it must pass.", mustPassThrough},
		compileRules()[0], compileRules()[1], compileRules()[2],
		{"malformed-pointer", e, "sensitive or freezes holds something that is no JSON pointer to a field.", malformedPointer},
		{"malformed-write", e, "writes holds something that is no top-level key.", malformedWrite},
		{"reserved-key", e, "writes, freezes or a transition's requiredFields names a key that only the gate sets.", reservedKey},
		{"evidence-not-operator", e, "A definition that is no operator's asks for evidence.", evidenceNotOperator},
		{"retention-not-operator", e, "A definition that is no operator's says what may be removed of its records.", retentionNotOperator},

		{"unreachable-state", w, "No way leads from the initial state to this one.", unreachableState},
		{"no-path-to-final", w, "From this state no final state can be reached, though the definition has one.", noPathToFinal},
		{"outcome-not-final", w, "A state that is not final has an outcome.", outcomeNotFinal},
		{"llm-without-model", w, "A model is asked for and none (or not this one) is configured.", llmWithoutModel},
		{"criteria-without-llm", w, "Criteria, a reference, exemplars or samples stand where no model judges.", criteriaWithoutLLM},
		{"never-approves", w, "The judge's settings are such that no approval can come about.", neverApproves},
		{"unknown-source", w, "Evidence comes from a source that is not configured.", unknownSource},
		{"evidence-unbound", w, "What evidence is asked with comes from a field that nothing requires, or that agents can set at will.", evidenceUnbound},
		{"required-not-writable", w, "A transition requires a field that its writes do not allow.", requiredNotWritable},
		{"unchecked-field", w, "A script reads a field of data that nothing requires, and does not provide for its absence.", uncheckedField},
	}
}

// compileRules are those about what the compiler found.
func compileRules() [3]Rule {
	return [...]Rule{
		{"schema-invalid", SeverityError, "A JSON Schema does not compile.", compiled(badSchema)},
		{"script-invalid", SeverityError, "A validator or condition does not compile.", compiled(badScript)},
		{"field-invalid", SeverityError, "A required field is no key, dotted name or JSON pointer.", compiled(badField)},
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

func unknownInitialState(s *subject) {
	if s.States[s.InitialState] == nil {
		s.add("/initialState", "there is no state %s%s", shown(s.InitialState), s.known(s.InitialState, s.StateNames))
	}
}

func unknownTarget(s *subject) {
	s.eachTransition(func(from *State, t *Transition) {
		for i, r := range t.Routes {
			if s.States[r.Target] == nil {
				s.add(s.routePath(from, t, i, "target"), "the action %s leads to %s, which is no state%s",
					shown(t.Action), shown(r.Target), s.known(r.Target, s.StateNames))
			}
		}
	})
}

func deadEnd(s *subject) {
	for _, name := range s.StateNames {
		if st := s.States[name]; !st.Final && len(st.Transitions) == 0 {
			s.add(statePath(name), "the state %s is not final and has no transition: nothing could ever leave it; give it one, or \"final\": true", shown(name))
		}
	}
}

func finalWithTransitions(s *subject) {
	for _, name := range s.StateNames {
		if st := s.States[name]; st.Final && len(st.Transitions) > 0 {
			s.add(statePath(name), "the state %s is final and has transitions, which could never be taken; remove one or the other", shown(name))
		}
	}
}

func unknownValidator(s *subject) {
	for _, state := range sortedKeys(s.StateValidators) {
		if s.States[state] == nil {
			s.add(joinPointer("/stateValidators", state), "there is no state %s%s", shown(state), s.known(state, s.StateNames))
		}
	}
	known := s.validatorKeys()
	exists := setOf(known)
	for _, key := range sortedKeys(s.TransitionValidators) {
		if !exists[key] {
			s.add(joinPointer("/transitionValidators", key), "there is no action (or state.action) %s%s", shown(key), s.known(key, known))
		}
	}
}

// validatorKeys are the keys that transitionValidators may have: actions first.
func (d *Definition) validatorKeys() []string {
	keys := d.actions()
	d.eachTransition(func(s *State, t *Transition) { keys = append(keys, s.Name+"."+t.Action) })
	return keys
}

// actions are all actions, each once, in the order of the document.
func (d *Definition) actions() []string {
	var out []string
	seen := map[string]bool{}
	d.eachTransition(func(_ *State, t *Transition) {
		if !seen[t.Action] {
			seen[t.Action] = true
			out = append(out, t.Action)
		}
	})
	return out
}

func unknownNotBy(s *subject) {
	known := s.actions()
	exists := setOf(known)
	s.eachTransition(func(from *State, t *Transition) {
		path := joinPointer(transitionPath(from.Name, t.Action), "notBy")
		for i, before := range t.NotBy {
			if !exists[before] {
				s.add(s.element(path, i), "there is no action %s%s", shown(before), s.known(before, known))
			}
		}
	})
}

func unknownMustPass(s *subject) {
	for _, target := range sortedKeys(s.MustPassThrough) {
		path := joinPointer("/mustPassThrough", target)
		for _, name := range append([]string{target}, s.MustPassThrough[target]...) {
			if s.States[name] == nil {
				s.add(path, "there is no state %s%s", shown(name), s.known(name, s.StateNames))
			}
		}
	}
}

func mustPassThrough(s *subject) {
	if s.graph.initial == nowhere || len(s.MustPassThrough) == 0 {
		return // other rules speak about unknown states
	}
	known := newDominators(s.graph)
	for _, target := range sortedKeys(s.MustPassThrough) {
		to := s.graph.find(target)
		if to == nowhere || !known.reaches(to) {
			continue
		}
		looked := map[int]bool{}
		for _, name := range s.MustPassThrough[target] {
			through := s.graph.find(name)
			if through == nowhere || looked[through] || through != to && known.dominates(through, to) {
				continue
			}
			looked[through] = true
			if len(s.found) > maxIssues || s.ended() != nil {
				return
			}
			if way, ok := s.graph.bypass(to, through); ok {
				s.add(joinPointer("/mustPassThrough", target), "%s can be entered without passing through %s: %s", shown(target), shown(name), way)
			}
		}
	}
}

// compiled reports the problems of one kind that the compiler found.
func compiled(kind problemKind) func(*subject) {
	return func(s *subject) {
		for _, p := range s.problems {
			if p.kind == kind {
				s.add(p.path, "%s", p.message)
			}
		}
	}
}

func malformedPointer(s *subject) {
	check := func(path, pointer string, wild bool) {
		tokens, err := splitPointer(pointer)
		switch {
		case err != nil:
			s.add(path, "%s is no JSON pointer to a field: %v", shown(pointer), err)
		case !wild && slices.Contains(tokens, wildcard):
			s.add(path, "%s: * is understood in sensitive only; name the field itself", shown(pointer))
		}
	}
	for i, p := range s.Sensitive {
		check(joinPointer("/sensitive", strconv.Itoa(i)), p, true)
	}
	s.eachTransition(func(from *State, t *Transition) {
		for i, p := range t.Freezes {
			check(joinPointer(transitionPath(from.Name, t.Action), "freezes", strconv.Itoa(i)), p, false)
		}
	})
}

func malformedWrite(s *subject) {
	s.eachTransition(func(from *State, t *Transition) {
		for i, k := range t.Writes {
			if strings.HasPrefix(k, "/") {
				s.add(joinPointer(transitionPath(from.Name, t.Action), "writes", strconv.Itoa(i)),
					"writes takes top-level keys, not pointers: %s instead of %s", shown(firstField(k)), shown(k))
			}
		}
	})
}

func reservedKey(s *subject) {
	s.eachTransition(func(from *State, t *Transition) {
		for _, list := range []struct {
			key   string
			names []string
		}{{"writes", t.Writes}, {"freezes", t.Freezes}, {"requiredFields", t.RequiredFields}} {
			for i, name := range list.names {
				if top := firstField(name); slices.Contains(ReservedKeys, top) {
					s.add(joinPointer(transitionPath(from.Name, t.Action), list.key, strconv.Itoa(i)), "the key %q is reserved: only the gate sets it", top)
				}
			}
		}
	})
}

func unreachableState(s *subject) {
	if s.graph.initial == nowhere {
		return
	}
	for i, reached := range s.graph.reachable() {
		if !reached {
			s.add(statePath(s.StateNames[i]), "no way leads from %s to %s", shown(s.InitialState), shown(s.StateNames[i]))
		}
	}
}

func noPathToFinal(s *subject) {
	var finals []int
	for i, name := range s.StateNames {
		if s.States[name].Final {
			finals = append(finals, i)
		}
	}
	if len(finals) == 0 {
		return // a machine that is meant to run on
	}
	leads := s.graph.leadsTo(finals)
	for i, reached := range s.graph.reachable() {
		name := s.StateNames[i]
		if reached && !leads[i] && len(s.States[name].Transitions) > 0 {
			s.add(statePath(name), "no final state can be reached from %s", shown(name))
		}
	}
}

func outcomeNotFinal(s *subject) {
	for _, name := range s.StateNames {
		if st := s.States[name]; st.Outcome != "" && !st.Final {
			s.add(joinPointer(statePath(name), "outcome"), "only a final state has an outcome, and %s is not final", shown(name))
		}
	}
}

// element is the path of a list's element, or the list's own where a single
// value stands for the list.
func (d *Definition) element(path string, i int) string {
	if at := joinPointer(path, strconv.Itoa(i)); d.lines[at] > 0 {
		return at
	}
	return path
}

// firstField is the top-level key that a field's name or pointer begins with.
func firstField(name string) string {
	if tokens, err := splitPointer(name); err == nil {
		return tokens[0]
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), ".")
	return first
}
