package chain

import (
	"fmt"
	"slices"
)

// use is a reference with its place: in a step, a condition, or the arguments of a handler.
type use struct {
	reference
	path string
	step *Step // nil for the chain itself
	// fills is the step whose defaults apply; for the arguments of a handler, that is the handler's step.
	// It is nil for conditions, which have no defaults.
	fills *Step
	// reader is the step that reads the reference, or nil if that may happen at any time.
	reader *Step
	// inItem and failing report whether {{item}} and {{error}} have values there.
	inItem, failing bool
}

// listUses returns every reference.
func (l *linter) listUses() (uses []use) {
	add := func(t template, c *Condition, at use) {
		note := func(r reference) { at.reference = r; uses = append(uses, at) }
		if c.visit(note); t != nil {
			t.visit(note, nil)
		}
	}
	handling := l.listHandlers()
	l.visitSteps(func(s *Step) {
		at := use{step: s, fills: s, reader: s}
		for outer := s; outer != nil; outer = outer.parent {
			at.inItem = at.inItem || outer != s && outer.Kind == KindForEach
			at.failing = at.failing || handling[outer]
			if outer.Named {
				at.reader = nil
			}
		}
		for key, t := range s.templates() {
			at.path = s.path + "/" + key
			add(t, nil, at)
		}
		for _, h := range s.handlers() {
			add(h.Arguments, nil, use{path: h.path, step: s, fills: l.steps[h.Step], inItem: at.inItem, failing: true})
		}
		at.fills = nil
		for i, c := range s.Cases {
			at.path = fmt.Sprintf("%s/cases/%d/when", s.path, i)
			add(nil, c.When, at)
		}
		if at.path = s.path + "/until"; at.reader != nil {
			at.reader = &Step{parent: s} // it is read after the steps inside
		}
		add(nil, s.Until, at)
	})
	for _, c := range l.Conditionals {
		add(nil, c.Condition, use{path: c.path + "/condition"})
	}
	if h := l.OnError; h != nil {
		add(h.Arguments, nil, use{path: h.path, fills: l.steps[h.Step], failing: true})
	}
	return uses
}

// listHandlers returns the steps that run after a failure. It omits steps that only conditionals name.
func (l *linter) listHandlers() map[*Step]bool {
	out := map[*Step]bool{}
	for _, n := range l.listStepRefs() {
		if n.from != nil || l.OnError != nil && n.path == l.OnError.path {
			out[l.steps[n.step]] = true
		}
	}
	return out
}

// canFollow reports whether a reader may see the output of s, and the variables that s writes. It compares
// the positions of the two; a step that runs only when named may run at any time.
func (l *linter) canFollow(reader, s *Step) (output, variables bool) {
	for outer := s; outer != nil; outer = outer.parent {
		if reader == nil || outer.Named {
			return true, true
		}
	}
	x, y := s, reader // the steps in the same container that hold s and the reader
	for ; ; y = y.parent {
		for x = s; x != nil && x.parent != y.parent; {
			x = x.parent
		}
		if x != nil {
			break
		}
	}
	lists := [][]*Step{l.Steps}
	if y.parent != nil {
		lists = y.parent.lists()
	}
	before := slices.ContainsFunc(lists, func(list []*Step) bool {
		at := slices.Index(list, x)
		return at >= 0 && (y.ID == "" || at < slices.Index(list, y))
	})
	variables = before
	for p := y.parent; p != nil; p = p.parent {
		variables = variables || p.isLoop() || p == y.parent && p.Kind == KindParallel && x != y
	}
	output = before
	for ; s != x; s = s.parent {
		output = output && !s.parent.isLoop()
	}
	return output, variables
}

// isLoop reports whether the steps inside s may run several times.
func (s *Step) isLoop() bool { return s.Kind == KindLoop || s.Kind == KindForEach }
