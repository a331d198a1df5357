package workflow

import (
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// EntryCandidate returns what entering a state requires: its validators of the context,
// and the states that mustPassThrough finds missing in the facts.
func (d *Definition) EntryCandidate(state string, facts Facts) judge.Candidate {
	return d.buildCandidate(state, facts, "")
}

// BlockedStates returns the states ahead of one that an instance with these facts can
// never enter: mustPassThrough requires a state that was not visited and is no longer
// reachable. They come in the order of the document.
func (d *Definition) BlockedStates(state string, facts Facts) []string {
	ahead := map[string]bool{}
	ways := map[string][]string{}
	for _, e := range d.listEdges() {
		ways[e.from] = append(ways[e.from], e.to)
	}
	for next := ways[state]; len(next) > 0; {
		at := next[0]
		next = next[1:]
		if !ahead[at] {
			ahead[at] = true
			next = slices.Concat(next, ways[at])
		}
	}
	var out []string
	for _, name := range d.StateNames {
		barred := func(before string) bool {
			return before != state && !ahead[before] && !slices.Contains(facts.Visited, before)
		}
		if ahead[name] && slices.ContainsFunc(d.MustPassThrough[name], barred) {
			out = append(out, name)
		}
	}
	return out
}
