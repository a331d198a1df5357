package record

import (
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// IsStop reports whether an event is about an agent's wish to end, and not about an action or a
// call: it was refused, or let through and put to a person.
func (e Event) IsStop() bool {
	return (e.Kind == Refused || e.Kind == Escalated) && e.Action == "" && e.Call == nil
}

// updateStops returns what became of the wishes to end after a refused, escalated or reviewed event.
func updateStops(s workflow.Stops, e Event) workflow.Stops {
	switch {
	case e.Kind == Refused && e.IsStop():
		s.Refused++
	case e.Kind != Reviewed || e.Action != "" || e.Review.Status != ReviewResolved:
	case e.Review.Resolution == judge.Approve:
		s.Accepted = true
	default: // sent back
		s = workflow.Stops{}
	}
	return s
}
