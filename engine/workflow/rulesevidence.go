package workflow

import (
	"slices"
	"strconv"
)

func (s *linter) visitEvidence(do func(path string, from *State, t *Transition, e Evidence)) {
	s.visitTransitions(func(from *State, t *Transition) {
		for i, e := range t.Evidence {
			do(joinPointer(transitionPath(from.Name, t.Action), "evidence", strconv.Itoa(i)), from, t, e)
		}
	})
}

func checkEvidenceOwner(s *linter) {
	if s.trusted {
		return
	}
	s.visitEvidence(func(path string, _ *State, t *Transition, _ Evidence) {
		s.addIssue(parentPointer(path), "the action %s asks for evidence, which is fetched only for definitions owned by an operator; remove it, or have an operator define the workflow", quoteName(t.Action))
	})
}

func checkSources(s *linter) {
	if s.sources == nil {
		return
	}
	s.visitEvidence(func(path string, _ *State, _ *Transition, e Evidence) {
		if !slices.Contains(s.sources, e.Source) {
			s.addIssue(path+"/source", "no source %s is configured%s; without it the evidence %s cannot be fetched", quoteName(e.Source), s.suggestKnown(e.Source, s.sources), quoteName(e.Name))
		}
	})
}

// checkEvidenceArguments finds facts that the judged choose themselves: a caller that
// may name the ticket names an approved one.
func checkEvidenceArguments(s *linter) {
	var frozen []string
	s.visitTransitions(func(_ *State, t *Transition) { frozen = append(frozen, t.Freezes...) })
	s.visitEvidence(func(path string, _ *State, t *Transition, e Evidence) {
		for _, r := range e.References() {
			pointer := joinPointer("", r.Tokens...)
			switch {
			case r.Root == "context" && !isCovered(frozen, r.Tokens):
				s.addIssue(path+"/arguments", "%s takes %s, which no transition freezes: the caller of an earlier action chooses what is looked up; let an earlier transition freeze %s",
					quoteName(e.Name), r, pointer)
			case r.Root == "data" && !slices.Contains(t.RequiredFields, r.Tokens[0]) && len(t.Schema) == 0:
				s.addIssue(path+"/arguments", "%s takes %s, which nothing requires; add %q to requiredFields",
					quoteName(e.Name), r, r.Tokens[0])
			}
		}
	})
}

// isCovered reports whether one of the pointers names the field or something around it.
func isCovered(pointers, tokens []string) bool {
	return slices.ContainsFunc(pointers, func(p string) bool {
		around, err := splitPointer(p)
		return err == nil && len(around) <= len(tokens) && slices.Equal(around, tokens[:len(around)])
	})
}
