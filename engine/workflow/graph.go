package workflow

import (
	"fmt"
	"slices"
	"strings"
)

type edge struct {
	from, action, to string
	condition        string // "" for a plain target
}

func (d *Definition) listEdges() []edge {
	var out []edge
	d.visitTransitions(func(s *State, t *Transition) {
		for _, r := range t.Routes {
			out = append(out, edge{from: s.Name, action: t.Action, to: r.Target, condition: r.Condition})
		}
	})
	return out
}

func (d *Definition) visitTransitions(visit func(*State, *Transition)) {
	for _, name := range d.StateNames {
		s := d.States[name]
		if s == nil {
			continue
		}
		for _, action := range s.Actions {
			if t := s.Transitions[action]; t != nil {
				visit(s, t)
			}
		}
	}
}

// graph is the state machine with numbered states, so that searches are cheap for definitions of
// any shape: one search is linear in states and edges.
type graph struct {
	names   []string
	index   map[string]int
	initial int // -1 when unknown
	edges   []edge
	out, in [][]int // by state: indices of edges between known states
}

// noNode means no state or no edge.
const noNode = -1

func newGraph(d *Definition) *graph {
	g := &graph{names: d.StateNames, index: make(map[string]int, len(d.StateNames)), edges: d.listEdges()}
	for i, name := range g.names {
		g.index[name] = i
	}
	g.initial = g.findState(d.InitialState)
	g.out, g.in = make([][]int, len(g.names)), make([][]int, len(g.names))
	for i, e := range g.edges {
		if to := g.findState(e.to); to != noNode {
			from := g.index[e.from]
			g.out[from] = append(g.out[from], i)
			g.in[to] = append(g.in[to], i)
		}
	}
	return g
}

func (g *graph) findState(name string) int {
	if i, ok := g.index[name]; ok {
		return i
	}
	return noNode
}

// searchFrom walks breadth-first from the initial state. For every state it returns whether it was
// reached and through which edge first (nowhere for the initial one). The state avoid is entered
// but not left.
func (g *graph) searchFrom(avoid int) (reached []bool, by []int) {
	reached, by = make([]bool, len(g.names)), make([]int, len(g.names))
	if g.initial == noNode {
		return reached, by
	}
	reached[g.initial], by[g.initial] = true, noNode
	queue := append(make([]int, 0, len(g.names)), g.initial)
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == avoid {
			continue
		}
		for _, e := range g.out[at] {
			if to := g.index[g.edges[e].to]; !reached[to] {
				reached[to], by[to] = true, e
				queue = append(queue, to)
			}
		}
	}
	return reached, by
}

func (g *graph) findReachable() []bool {
	reached, _ := g.searchFrom(noNode)
	return reached
}

// findStatesLeadingTo marks the states from which a goal is reachable, goals included.
func (g *graph) findStatesLeadingTo(goals []int) []bool {
	leads := make([]bool, len(g.names))
	for _, s := range goals {
		leads[s] = true
	}
	queue := slices.Clone(goals)
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range g.in[at] {
			if from := g.index[g.edges[e].from]; !leads[from] {
				leads[from] = true
				queue = append(queue, from)
			}
		}
	}
	return leads
}

// findBypass describes a shortest path into target that does not visit through first;
// ok is false if there is none.
func (g *graph) findBypass(target, through int) (way string, ok bool) {
	if g.initial == target {
		return "start -> " + quoteName(g.names[target]), true
	}
	// The search stops at through, even if that is the initial state. If target must pass through
	// itself, any path to it is a bypass: its own entry does not count.
	reached, by := g.searchFrom(through)
	if !reached[target] {
		return "", false
	}
	var steps []string
	for at := target; at != g.initial; {
		e := g.edges[by[at]]
		steps = append(steps, fmt.Sprintf(" -(%s)-> %s", e.action, quoteName(e.to)))
		at = g.index[e.from]
	}
	slices.Reverse(steps)
	if len(steps) > maxList {
		steps = append(steps[:maxList/2], append([]string{" ..."}, steps[len(steps)-maxList/2:]...)...)
	}
	return quoteName(g.names[g.initial]) + strings.Join(steps, ""), true
}

// dominators answers in constant time whether every path from the initial state to one state
// passes through another. Building it is nearly linear in states and edges.
type dominators struct {
	// first and last are, by state, the range of states that it dominates in a preorder walk
	// of the dominator tree; first is 0 for unreachable states.
	first, last []int
}

// dominates reports whether every path to target passes through the state through. Both must be
// reachable. A state dominates itself.
func (d dominators) dominates(through, target int) bool {
	return d.first[through] != 0 && d.first[through] <= d.first[target] && d.first[target] <= d.last[through]
}

func (d dominators) reaches(state int) bool { return d.first[state] != 0 }

// newDominators implements Lengauer and Tarjan, "A fast algorithm for finding dominators in a
// flowgraph" (1979), in the version with path compression only. States are numbered from 1 in the
// order of a depth-first search; 0 means none.
func newDominators(g *graph) dominators {
	n := len(g.names)
	d := dominators{first: make([]int, n), last: make([]int, n)}
	if g.initial == noNode {
		return d
	}
	number, states, parent := g.numberStates()
	count := len(states) - 1
	var (
		semi, idom       = make([]int, count+1), make([]int, count+1)
		ancestor, lowest = make([]int, count+1), make([]int, count+1)
		bucket           = make([][]int, count+1)
	)
	for v := range semi {
		semi[v], lowest[v] = v, v
	}
	// lowestBelow returns the state with the least semidominator on the path from v up the
	// linked forest, without the root, and compresses the path.
	lowestBelow := func(v int) int {
		var way []int
		for at := v; ancestor[at] != 0; at = ancestor[at] {
			way = append(way, at)
		}
		for _, at := range slices.Backward(way) {
			if up := ancestor[at]; ancestor[up] != 0 {
				if semi[lowest[up]] < semi[lowest[at]] {
					lowest[at] = lowest[up]
				}
				ancestor[at] = ancestor[up]
			}
		}
		return lowest[v]
	}
	for v := count; v > 1; v-- {
		for _, e := range g.in[states[v]] {
			if from := number[g.index[g.edges[e].from]]; from != 0 {
				semi[v] = min(semi[v], semi[lowestBelow(from)])
			}
		}
		bucket[semi[v]] = append(bucket[semi[v]], v)
		ancestor[v] = parent[v]
		for _, w := range bucket[parent[v]] {
			if u := lowestBelow(w); semi[u] < semi[w] {
				idom[w] = u
			} else {
				idom[w] = parent[v]
			}
		}
		bucket[parent[v]] = nil
	}
	size, next := make([]int, count+1), make([]int, count+1)
	for v := 2; v <= count; v++ {
		if idom[v] != semi[v] {
			idom[v] = idom[idom[v]]
		}
	}
	for v := count; v > 0; v-- {
		size[v]++
		size[idom[v]] += size[v]
	}
	next[0] = 1
	for v := 1; v <= count; v++ {
		at := next[idom[v]]
		next[idom[v]] += size[v]
		next[v] = at + 1
		d.first[states[v]], d.last[states[v]] = at, at+size[v]-1
	}
	return d
}

// numberStates numbers the states reachable from the initial one, starting at 1, in the order of a
// depth-first search: number is indexed by state, states and parent by number.
func (g *graph) numberStates() (number, states, parent []int) {
	number, states, parent = make([]int, len(g.names)), []int{noNode}, []int{0}
	enter := func(state, from int) {
		number[state] = len(states)
		states, parent = append(states, state), append(parent, from)
	}
	enter(g.initial, 0)
	passed := make([]int, len(g.names)) // number of edges followed out of each state
	for at := 1; at != 0; {
		s := states[at]
		if passed[s] == len(g.out[s]) {
			at = parent[at]
			continue
		}
		to := g.index[g.edges[g.out[s][passed[s]]].to]
		passed[s]++
		if number[to] == 0 {
			enter(to, at)
			at = number[to]
		}
	}
	return number, states, parent
}
