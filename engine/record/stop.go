package record

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// IsStop reports whether an event is about an agent's attempt to end its session, and not about an action or a call.
// The attempt was refused, or allowed and escalated to a person.
func (e Event) IsStop() bool {
	return (e.Kind == Refused || e.Kind == Escalated) && e.Action == "" && e.Call == nil
}

// stopData is the data of a decision about a stop.
type stopData struct {
	Session string `json:"session"`
}

// NewStopData returns the data of the decision about a stop in a client session.
func NewStopData(session string) json.RawMessage {
	data, _ := json.Marshal(stopData{session}) // a string always encodes
	return data
}

// stopSession returns the session that attempted to end, "" if the event has none.
func (e Event) stopSession() string {
	var data stopData
	_ = json.Unmarshal(e.Decision.Data, &data) // written by NewStopData
	return data.Session
}

// updateStops returns the stops after a refused, escalated or reviewed event.
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
