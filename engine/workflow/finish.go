package workflow

import (
	"math"
	"slices"
)

// FindStep returns the action that is the next step on a shortest path from state to a goal; on a tie, the
// first in the given order. It returns "" if no action leads to a goal.
func (d *Definition) FindStep(state string, actions, goals []string) string {
	distance := d.countStepsTo(goals)
	best, least := "", math.MaxInt
	for _, action := range actions {
		for _, target := range d.States[state].Transitions[action].Targets() {
			if n, ok := distance[target]; ok && n < least {
				best, least = action, n
			}
		}
	}
	return best
}

// countStepsTo counts the transitions from each state to the nearest goal. States that lead to no goal
// are absent.
func (d *Definition) countStepsTo(goals []string) map[string]int {
	sources := map[string][]string{}
	for _, e := range d.listEdges() {
		sources[e.to] = append(sources[e.to], e.from)
	}
	distance := map[string]int{}
	for _, name := range goals {
		distance[name] = 0
	}
	for queue := slices.Clone(goals); len(queue) > 0; queue = queue[1:] {
		for _, from := range sources[queue[0]] {
			if _, known := distance[from]; !known {
				distance[from] = distance[queue[0]] + 1
				queue = append(queue, from)
			}
		}
	}
	return distance
}
