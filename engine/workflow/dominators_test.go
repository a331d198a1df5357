package workflow

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestDominators holds the tree of dominators to its definition: through dominates
// target when a search that does not go on behind through does not come to target.
func TestDominators(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "states")
		d := &Definition{InitialState: "s0", States: map[string]*State{}}
		for i := range n {
			s := &State{Name: fmt.Sprint("s", i), Transitions: map[string]*Transition{}}
			for j := range rapid.IntRange(0, 3).Draw(t, "edges") {
				action := fmt.Sprint("a", j)
				s.Actions = append(s.Actions, action)
				s.Transitions[action] = &Transition{Action: action, Routes: []Route{{Target: fmt.Sprint("s", rapid.IntRange(0, n).Draw(t, "to"))}}}
			}
			d.States[s.Name], d.StateNames = s, append(d.StateNames, s.Name)
		}
		g := newGraph(d)
		known := newDominators(g)
		reached := g.reachable()
		for target := range n {
			if known.reaches(target) != reached[target] {
				t.Fatalf("s%d: reached %v", target, reached[target])
			}
			for through := range n {
				past, _ := g.search(through)
				want := reached[target] && reached[through] && (through == target || !past[target])
				if got := known.dominates(through, target); got != want && reached[target] {
					t.Fatalf("s%d dominates s%d: %v, want %v", through, target, got, want)
				}
			}
		}
	})
}
