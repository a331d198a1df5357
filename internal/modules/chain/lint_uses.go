package chain

import (
	"fmt"
	"maps"
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
	// ended holds the ids of steps that may have ended at this place, and the variables that may have been
	// written, such as global.x. If nil, any may have.
	ended map[string]bool
	// inItem and failing report whether {{item}} and {{error}} have values there.
	inItem, failing bool
}

// listUses returns every reference, with what may have ended when it is read.
func (l *linter) listUses() []use {
	w := useWalk{linter: l, passed: map[*Step]bool{}, decided: map[*Conditional]bool{}, begins: map[*Step]map[string]bool{}}
	w.walkChain()
	handling := l.listHandlers()
	for _, s := range l.listNamedSteps() {
		w.walkStep(s, w.begins[s], insideForEach(s), handling[s])
	}
	if h := l.OnError; h != nil && h.Arguments != nil {
		h.Arguments.visit(func(r reference) { w.uses = append(w.uses, use{r, h.path, nil, w.steps[h.Step], nil, false, true}) })
	}
	return w.uses
}

// listHandlers returns the steps that run when another has failed, without those that only conditionals
// name.
func (l *linter) listHandlers() map[*Step]bool {
	out := map[*Step]bool{}
	for _, n := range l.listNamings() {
		if n.from != nil || l.OnError != nil && n.path == l.OnError.path {
			out[l.steps[n.step]] = true
		}
	}
	return out
}

func (l *linter) listNamedSteps() []*Step {
	var out []*Step
	l.visitSteps(func(s *Step) {
		if s.Named {
			out = append(out, s)
		}
	})
	return out
}

func insideForEach(s *Step) bool {
	for s = s.parent; s != nil; s = s.parent {
		if s.Kind == KindForEach {
			return true
		}
	}
	return false
}

type useWalk struct {
	*linter
	uses    []use
	passed  map[*Step]bool // top-level steps
	decided map[*Conditional]bool
	// begins holds what may have ended when a step begins that only conditionals name; nil if anything may
	// have.
	begins map[*Step]map[string]bool
	// rounds are the variables that an earlier round of an enclosing loop may have written.
	rounds map[string]bool
}

// walkChain visits the top-level steps and decides conditionals in the order of a run.
func (w *useWalk) walkChain() {
	ended := map[string]bool{}
	for _, c := range w.Conditionals {
		if !w.isLoose(c) {
			continue
		}
		w.decided[c] = true
		w.add(c.Condition, nil, c.path+"/condition", nil, false, false)
		for _, id := range slices.Concat(c.IfTrue, c.IfFalse) {
			if s := w.steps[id]; s != nil {
				w.mark(ended, s)
			}
		}
	}
	for _, s := range w.Steps {
		w.walk([]*Step{s}, ended, false, false)
		if !s.Named {
			w.passed[s] = true
			w.decide(ended, false)
		}
	}
	w.decide(ended, true)
	w.forgetHandlers()
}

// isLoose reports whether the time at which a conditional is decided is unknown, because its condition uses
// a step that runs only when named.
func (w *useWalk) isLoose(c *Conditional) (loose bool) {
	if c.Condition != nil {
		c.Condition.visit(func(r reference) {
			if s := w.stepOf(r); s != nil {
				loose = loose || s.Named || s.top().Named
			}
		})
	}
	return loose
}

// decide visits the conditionals that can be decided now. The steps they name begin now, and may have ended
// afterwards.
func (w *useWalk) decide(ended map[string]bool, atEnd bool) {
	for _, c := range w.Conditionals {
		if w.decided[c] || c.Condition == nil || !w.canDecide(c, w.passed, atEnd) {
			continue
		}
		w.decided[c] = true
		before := maps.Clone(ended)
		w.add(c.Condition, nil, c.path+"/condition", before, false, false)
		for _, branch := range [][]string{c.IfTrue, c.IfFalse} {
			inner := maps.Clone(before)
			for _, id := range branch {
				s := w.steps[id]
				if s == nil {
					continue
				}
				if w.begins[s] == nil {
					w.begins[s] = map[string]bool{}
				}
				addAll(w.begins[s], inner)
				w.mark(inner, s)
			}
			addAll(ended, inner)
		}
	}
}

// forgetHandlers removes the known beginning of steps that also run elsewhere.
func (w *useWalk) forgetHandlers() {
	for _, n := range w.listNamings() {
		if s := w.steps[n.step]; s != nil && (n.from != nil || s.parent != nil || w.OnError != nil && n.path == w.OnError.path) {
			delete(w.begins, s)
		}
	}
	for _, c := range w.Conditionals {
		if w.isLoose(c) {
			for _, id := range slices.Concat(c.IfTrue, c.IfFalse) {
				delete(w.begins, w.steps[id])
			}
		}
	}
}

func (w *useWalk) add(c *Condition, s *Step, path string, ended map[string]bool, inItem, failing bool) {
	if c != nil {
		c.visit(func(r reference) { w.uses = append(w.uses, use{r, path, s, nil, ended, inItem, failing}) })
	}
}

// walk visits a sequence, and adds to ended what has ended after it.
func (w *useWalk) walk(steps []*Step, ended map[string]bool, inItem, failing bool) {
	for _, s := range steps {
		if s.Named {
			if ended != nil {
				ended[s.ID] = true // it may have run
			}
			continue
		}
		w.walkStep(s, ended, inItem, failing)
	}
}

func (w *useWalk) walkStep(s *Step, after map[string]bool, inItem, failing bool) {
	ended := maps.Clone(after)
	if s.Kind == KindSwitch || len(s.handlers()) > 0 { // an earlier round may have skipped the references, or their failure was handled
		addAll(ended, w.rounds)
	}
	for key, t := range s.templates() {
		before := maps.Clone(ended)
		t.visit(func(r reference) { w.uses = append(w.uses, use{r, s.path + "/" + key, s, s, before, inItem, failing}) })
	}
	for _, h := range s.handlers() {
		if h.Arguments != nil {
			h.Arguments.visit(func(r reference) { w.uses = append(w.uses, use{r, h.path, s, w.steps[h.Step], nil, inItem, true}) })
		}
	}
	around := w.rounds
	if s.Kind == KindLoop || s.Kind == KindForEach {
		w.rounds = maps.Clone(around)
		if w.rounds == nil {
			w.rounds = map[string]bool{}
		}
		w.markInside(w.rounds, s, map[*Step]bool{})
	}
	switch s.Kind {
	case KindParallel:
		w.walkTasks(s, ended, after, inItem, failing)
	case KindLoop, KindForEach:
		inner := maps.Clone(ended)
		if s.Kind == KindForEach && s.MaxConcurrent > 1 { // another item may be further along
			addAll(inner, w.rounds)
		}
		w.walk(s.Steps, inner, inItem || s.Kind == KindForEach, failing)
		w.add(s.Until, s, s.path+"/until", inner, inItem, failing)
	case KindSwitch:
		for i, c := range s.Cases {
			w.add(c.When, s, fmt.Sprintf("%s/cases/%d/when", s.path, i), maps.Clone(ended), inItem, failing)
			inner := maps.Clone(ended)
			w.walk(c.Steps, inner, inItem, failing)
			addAll(after, inner)
		}
		inner := maps.Clone(ended)
		w.walk(s.Else, inner, inItem, failing)
		addAll(after, inner)
	case KindTool, KindResource, KindPrompt, KindWait, KindWorkflow: // no inner steps
	}
	w.rounds = around
	w.mark(after, s)
}

// containers are the kinds of steps that contain others.
var containers = []Kind{KindParallel, KindLoop, KindForEach, KindSwitch}

// walkTasks visits the tasks of a parallel step. A task that does not start at the same time may read what
// another one writes.
func (w *useWalk) walkTasks(s *Step, ended, after map[string]bool, inItem, failing bool) {
	place := 0
	for _, task := range s.Tasks {
		inner := maps.Clone(ended)
		if inner != nil && (place >= s.MaxConcurrent || slices.Contains(containers, task.Kind)) {
			for _, other := range s.Tasks {
				if other != task && !other.Named {
					w.markWritten(inner, other, map[*Step]bool{})
				}
			}
		}
		w.walk([]*Step{task}, inner, inItem, failing)
		addAll(after, inner)
		if !task.Named {
			place++
		}
	}
}

// mark adds a step, and what it writes, to the things that may have ended.
func (w *useWalk) mark(ended map[string]bool, s *Step) {
	if ended == nil {
		return
	}
	for _, one := range w.listHandling(s, map[*Step]bool{}) {
		ended[one.ID] = true
	}
	w.markWritten(ended, s, map[*Step]bool{})
}

// listHandling returns a step and the steps that may run in its place.
func (w *useWalk) listHandling(s *Step, done map[*Step]bool) []*Step {
	if s == nil || done[s] {
		return nil
	}
	done[s] = true
	out := []*Step{s}
	for _, h := range s.handlers() {
		out = append(out, w.listHandling(w.steps[h.Step], done)...)
	}
	return out
}

// markWritten adds the variables that a step, its inner steps and its handlers may write.
func (w *useWalk) markWritten(ended map[string]bool, s *Step, done map[*Step]bool) {
	for _, one := range w.listHandling(s, done) {
		if t := one.SaveOutputTo; t != nil {
			ended[t.scope+"."+t.name] = true
		}
		w.markInside(ended, one, done)
	}
}

func (w *useWalk) markInside(ended map[string]bool, s *Step, done map[*Step]bool) {
	for _, list := range s.lists() {
		for _, inner := range list {
			if !inner.Named {
				w.markWritten(ended, inner, done)
			}
		}
	}
}

// addAll adds from to the set to; a nil set contains everything and is left alone.
func addAll(to, from map[string]bool) {
	if to != nil {
		maps.Copy(to, from)
	}
}
