package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Status is the stage of an instance's life.
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
	// Seq counts all events. Revision counts changes of state or context, and is compared for optimistic
	// concurrency. Both start at 1 with the started event.
	Seq      int64          `json:"seq"`
	Revision int64          `json:"revision"`
	Facts    workflow.Facts `json:"facts"`
	// Subject is the subject of the instance, "" for none. No other live instance of the workflow may
	// have the same one.
	Subject string `json:"subject,omitempty"`
	// Head is the hash of the last event, hex.
	Head      string    `json:"head"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`

	// storedContext is the stored context if Context was opened, nil otherwise.
	storedContext json.RawMessage
	destroyed     bool
}

// WithPlainContext returns i with its context as people and judges see it: sealed values are replaced by their
// plain values. destroyed reports that some can never be opened again. Seal and Fold still use the
// stored context.
func (i Instance) WithPlainContext(context json.RawMessage, destroyed bool) Instance {
	i = i.StoredForm()
	i.Context, i.storedContext, i.destroyed = context, i.Context, destroyed
	return i
}

// WithPlainContextOf returns i opened as prev was, if both have the same stored context; it returns false if
// they do not.
func (i Instance) WithPlainContextOf(prev Instance) (Instance, bool) {
	if prev.storedContext == nil || !sharesMemory(prev.storedContext, i.Context) {
		return i, false
	}
	return i.WithPlainContext(prev.Context, prev.destroyed), true
}

// StoredForm returns i in its stored form, in which the values that WithPlainContext opened are still sealed.
func (i Instance) StoredForm() Instance {
	if i.storedContext != nil {
		i.Context, i.storedContext, i.destroyed = i.storedContext, nil, false
	}
	return i
}

// IsDestroyed reports whether the context contains values whose key was destroyed.
func (i Instance) IsDestroyed() bool { return i.destroyed }

// Clone returns a copy that shares no memory with i.
func (i Instance) Clone() Instance {
	i.Context, i.storedContext = bytes.Clone(i.Context), bytes.Clone(i.storedContext)
	i.Facts.Visited = slices.Clone(i.Facts.Visited)
	i.Facts.Frozen = slices.Clone(i.Facts.Frozen)
	i.Facts.Reviews = slices.Clone(i.Facts.Reviews)
	i.Facts.Calls = slices.Clone(i.Facts.Calls)
	i.Facts.Called = maps.Clone(i.Facts.Called)
	i.Facts.Grants = slices.Clone(i.Facts.Grants)
	i.Facts.Stops.Sessions = maps.Clone(i.Facts.Stops.Sessions)
	i.Facts.Performed = maps.Clone(i.Facts.Performed)
	for action, who := range i.Facts.Performed {
		i.Facts.Performed[action] = slices.Clone(who)
	}
	return i
}

const stateDomain = "gavel/state/v1\x00"

// DigestState returns the hex SHA-256 of an instance's whole state. A truncated event records it to
// identify the state that the removed events led to.
func DigestState(i Instance) string {
	i = i.StoredForm()
	facts, err := json.Marshal(i.Facts)
	if err != nil { // strings and numbers always encode
		facts = []byte(err.Error())
	}
	h := sha256.New()
	h.Write([]byte(stateDomain))
	number := func(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
	fields := [][]byte{
		[]byte(i.ID), []byte(i.Workflow), number(int64(i.Version)), []byte(i.DefinitionHash), []byte(i.Owner),
		[]byte(i.State), []byte(i.Status), i.Context, number(i.Seq), number(i.Revision), facts, []byte(i.Head),
		number(i.CreatedAt.UnixNano()), number(i.UpdatedAt.UnixNano()), []byte(i.Subject),
	}
	for _, field := range fields {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		h.Write(field)
	}
	return hex.EncodeToString(h.Sum(nil))
}
