package workflow

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestDominators holds the tree of dominators to its definition: through dominates
// target when a search that does not go on behind through does not come to target. Few
// graphs have a dominator that is not a semidominator, so it takes many of some size.
func TestDominators(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // graphs
		n := 1 + random.IntN(14)
		d := &Definition{InitialState: "s0", States: map[string]*State{}}
		for i := range n {
			s := &State{Name: fmt.Sprint("s", i), Transitions: map[string]*Transition{}}
			for j := range random.IntN(4) {
				action := fmt.Sprint("a", j)
				s.Actions = append(s.Actions, action)
				s.Transitions[action] = &Transition{Action: action, Routes: []Route{{Target: fmt.Sprint("s", random.IntN(n+1))}}}
			}
			d.States[s.Name], d.StateNames = s, append(d.StateNames, s.Name)
		}
		g := newGraph(d)
		known := newDominators(g)
		reached := g.findReachable()
		for target := range n {
			if known.reaches(target) != reached[target] {
				t.Fatalf("graph %d, s%d: reached %v", seed, target, reached[target])
			}
			for through := range n {
				past, _ := g.search(through)
				want := reached[target] && reached[through] && (through == target || !past[target])
				if got := known.dominates(through, target); got != want && reached[target] {
					t.Fatalf("graph %d, s%d dominates s%d: %v, want %v", seed, through, target, got, want)
				}
			}
		}
	}
}
