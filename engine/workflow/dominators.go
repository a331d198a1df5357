package workflow

import "slices"

// dominators answers in constant time whether every path from the initial state into
// one state passes through another. Building it is nearly linear in states and edges.
type dominators struct {
	// first and last are, by state, the range of what it dominates in a preorder walk
	// of the dominator tree; first is 0 for unreachable states.
	first, last []int
}

// dominates reports whether every path into target passes through; both must be
// reachable. A state dominates itself.
func (d dominators) dominates(through, target int) bool {
	return d.first[through] != 0 && d.first[through] <= d.first[target] && d.first[target] <= d.last[through]
}

// reaches reports whether a state is reachable.
func (d dominators) reaches(state int) bool { return d.first[state] != 0 }

// newDominators follows Lengauer and Tarjan, "A fast algorithm for finding dominators
// in a flowgraph" (1979), the version with path compression alone. States are numbered
// from 1 in the order of a depth-first search; 0 is none.
func newDominators(g *graph) dominators {
	n := len(g.names)
	d := dominators{first: make([]int, n), last: make([]int, n)}
	if g.initial == nowhere {
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
	// lowestBelow is the state with the least semidominator on the path from v up the
	// linked forest, without the root; it compresses the path.
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

// numberStates numbers the states that the initial one leads to, from 1, in the order of a
// depth-first search: number is by state, states and parent are by number.
func (g *graph) numberStates() (number, states, parent []int) {
	number, states, parent = make([]int, len(g.names)), []int{nowhere}, []int{0}
	enter := func(state, from int) {
		number[state] = len(states)
		states, parent = append(states, state), append(parent, from)
	}
	enter(g.initial, 0)
	passed := make([]int, len(g.names)) // edges out of each state that were followed
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
