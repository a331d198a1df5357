package workflow

import "fmt"

// Bounds limit definitions that do not come from operators; zero is no limit.
type Bounds struct {
	States      int
	Transitions int // with each route of a list counted
	SchemaBytes int // of all schemas together
}

// CheckBounds reports the bounds that a definition exceeds.
func (d *Definition) CheckBounds(b Bounds) []Issue {
	var out []Issue
	refuse := func(most, n int, path, what string) {
		if most > 0 && n > most {
			out = append(out, Issue{
				Rule: "size", Severity: SeverityError, Path: path, Line: d.findLine(path),
				Message: fmt.Sprintf("the definition has %d %s; at most %d are allowed", n, what, most),
			})
		}
	}
	routes, schemas := 0, len(d.InputSchema)
	d.visitTransitions(func(_ *State, t *Transition) {
		routes += max(1, len(t.Routes))
		schemas += len(t.Schema)
	})
	for _, v := range d.StateValidators {
		schemas += len(v.Schema)
	}
	refuse(b.States, len(d.States), "/states", "states")
	refuse(b.Transitions, routes, "/states", "transitions and routes")
	refuse(b.SchemaBytes, schemas, "", "bytes of schemas")
	return out
}

// What the parts of a definition take in memory beside their texts, on a 64-bit machine.
// Short texts take a multiple of what they take in the document.
const (
	stateBytes      = 400
	transitionBytes = 600
	perByte         = 9
)

// Size is about what the definition takes in memory, in bytes, and not less.
func (d *Definition) Size() int {
	size := 4<<10 + perByte*len(d.Document) + stateBytes*len(d.States)
	d.visitTransitions(func(*State, *Transition) { size += transitionBytes })
	return size
}

// WithoutLines is the definition without what Lint alone needs, which takes as much
// memory as the rest.
func (d *Definition) WithoutLines() *Definition {
	out := *d
	out.lines = nil
	return &out
}
