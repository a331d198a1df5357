package workflow

import (
	"slices"
	"strconv"
)

func (s *subject) eachEvidence(do func(path string, from *State, t *Transition, e Evidence)) {
	s.eachTransition(func(from *State, t *Transition) {
		for i, e := range t.Evidence {
			do(joinPointer(transitionPath(from.Name, t.Action), "evidence", strconv.Itoa(i)), from, t, e)
		}
	})
}

func evidenceNotOperator(s *subject) {
	if s.trusted {
		return
	}
	s.eachEvidence(func(path string, _ *State, t *Transition, _ Evidence) {
		s.add(parentPointer(path), "the action %s asks for evidence, which is fetched only for definitions of an operator", shown(t.Action))
	})
}

func unknownSource(s *subject) {
	if s.sources == nil {
		return
	}
	s.eachEvidence(func(path string, _ *State, _ *Transition, e Evidence) {
		if !slices.Contains(s.sources, e.Source) {
			s.add(path+"/source", "no source %s is configured%s; without it the evidence %s cannot be had", shown(e.Source), s.known(e.Source, s.sources), shown(e.Name))
		}
	})
}

// evidenceUnbound speaks of facts that the judged choose themselves: who may name the
// ticket names one that is approved.
func evidenceUnbound(s *subject) {
	var frozen []string
	s.eachTransition(func(_ *State, t *Transition) { frozen = append(frozen, t.Freezes...) })
	s.eachEvidence(func(path string, _ *State, t *Transition, e Evidence) {
		for _, r := range e.References() {
			pointer := joinPointer("", r.Tokens...)
			switch {
			case r.Root == "context" && !covered(frozen, r.Tokens):
				s.add(path+"/arguments", "%s is asked with %s, which no transition freezes, so whoever performs an action before it chooses what is looked at; let an earlier transition freeze %s",
					shown(e.Name), r, pointer)
			case r.Root == "data" && !slices.Contains(t.RequiredFields, r.Tokens[0]) && len(t.Schema) == 0:
				s.add(path+"/arguments", "%s is asked with %s, which nothing requires; add %q to requiredFields",
					shown(e.Name), r, r.Tokens[0])
			}
		}
	})
}

// covered reports whether one of the pointers names the field or something around it.
func covered(pointers, tokens []string) bool {
	return slices.ContainsFunc(pointers, func(p string) bool {
		around, err := splitPointer(p)
		return err == nil && len(around) <= len(tokens) && slices.Equal(around, tokens[:len(around)])
	})
}
