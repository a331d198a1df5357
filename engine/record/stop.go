package record

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// IsStop reports whether an event is about an agent's wish to end, and not about an action or a
// call: it was refused, or let through and put to a person.
func (e Event) IsStop() bool {
	return (e.Kind == Refused || e.Kind == Escalated) && e.Action == "" && e.Call == nil
}

// stopData is what the decision about a stop says of it.
type stopData struct {
	Session string `json:"session"`
}

// NewStopData returns the data of the decision about a stop of a client session.
func NewStopData(session string) json.RawMessage {
	data, _ := json.Marshal(stopData{session}) // a string can be encoded
	return data
}

// stopSession is the session that wanted to end, "" where the event does not say it.
func (e Event) stopSession() string {
	var data stopData
	_ = json.Unmarshal(e.Decision.Data, &data) // NewStopData made it
	return data.Session
}

// updateStops returns what became of the wishes to end after a refused, escalated or reviewed event.
func updateStops(s workflow.Stops, e Event) workflow.Stops {
	switch {
	case e.Kind == Refused && e.IsStop():
		s = s.Refuse(e.stopSession())
	case e.Kind != Reviewed || e.Action != "" || e.Review.Status != ReviewResolved:
	case e.Review.Resolution == judge.Approve:
		s.Accepted = true
	default: // sent back
		s = workflow.Stops{}
	}
	return s
}
