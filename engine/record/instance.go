package record

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Status is where an instance is in its life.
type Status string

// The statuses.
const (
	Running   Status = "running"
	Complete  Status = "complete"  // in a final state
	Cancelled Status = "cancelled" // ended by a cancel
)

// Instance is the fold of an instance's events.
type Instance struct {
	ID             string          `json:"id"`
	Workflow       string          `json:"workflow"`
	Version        int             `json:"version"`
	DefinitionHash string          `json:"definitionHash"`
	Owner          string          `json:"owner"` // the principal that started it
	State          string          `json:"state"`
	Status         Status          `json:"status"`
	Context        json.RawMessage `json:"context"`
	// Seq counts all events; Revision counts changes of state or context and is
	// what optimistic concurrency compares. Both start at 1 with the started event.
	Seq      int64          `json:"seq"`
	Revision int64          `json:"revision"`
	Facts    workflow.Facts `json:"facts"`
	// Head is the hash of the last event, hex.
	Head      string    `json:"head"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Clone returns a copy that shares no memory with i.
func (i Instance) Clone() Instance {
	i.Context = bytes.Clone(i.Context)
	i.Facts.Visited = slices.Clone(i.Facts.Visited)
	i.Facts.Frozen = slices.Clone(i.Facts.Frozen)
	i.Facts.Reviews = slices.Clone(i.Facts.Reviews)
	i.Facts.Performed = maps.Clone(i.Facts.Performed)
	for action, who := range i.Facts.Performed {
		i.Facts.Performed[action] = slices.Clone(who)
	}
	return i
}
