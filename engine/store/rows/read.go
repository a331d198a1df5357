package rows

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// TimeOf returns the UTC time for nanoseconds since 1970.
func TimeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// NanosOf returns a time as stored, in nanoseconds since 1970. Times out of range become the nearest valid one.
func NanosOf(t time.Time) int64 {
	const most = 1<<63 - 1
	switch {
	case t.Before(time.Unix(0, -most)):
		return -most
	case t.After(time.Unix(0, most)):
		return most
	}
	return t.UnixNano()
}

// DecodeEvent decodes a stored event.
func DecodeEvent(prev, hash, body []byte) (record.Event, error) {
	e, err := record.Decode(body)
	if err != nil {
		return record.Event{}, err //nolint:wrapcheck // the error is already specific
	}
	e.PrevHash, e.Hash = hex.EncodeToString(prev), hex.EncodeToString(hash)
	return e, nil
}

// CheckColumns returns an error, which means damage, if the columns of an event do not match its body. Queries would
// miss such an event, or return it in the wrong place.
func CheckColumns(e record.Event, revision int64, kind string, at int64, scope []byte) error {
	own := ""
	if e.Key != nil {
		own = e.Key.Scope
	}
	if revision != e.Revision || kind != string(e.Kind) || at != e.Time.UnixNano() || hex.EncodeToString(scope) != own {
		return fmt.Errorf("%w: event %d of %s is stored under a kind, revision, time or key that is not its own",
			record.ErrMalformed, e.Seq, e.Instance)
	}
	return nil
}

// SortKeyOf returns the sort key of reviews with a rank: the highest rank comes first.
func SortKeyOf(rank int) int { return -rank }

func newReview(r store.Review) (Review, error) {
	body, err := r.Encode()
	if err != nil {
		return Review{}, err //nolint:wrapcheck // the error is already specific
	}
	row := Review{
		ID: r.ID, SortKey: SortKeyOf(r.Priority.Rank()), Status: string(r.Status),
		Instance: r.Instance, Workflow: r.Workflow, Principal: r.Principal, Body: body,
	}
	if len(r.Data) > 0 {
		row.Data = r.Data
	}
	return row, nil
}

// DecodeReview decodes a stored review. An error means damage and names the review's id. Callers must report an
// unreadable row and never skip it, because a client waits for that review.
func DecodeReview(id string, body, data []byte) (store.Review, error) {
	var out store.Review
	if err := json.Unmarshal(body, &out); err != nil {
		return store.Review{}, fmt.Errorf("review %s: %w", id, err)
	}
	if out.ID != id {
		return store.Review{}, fmt.Errorf("review %s: its id is %q", id, out.ID)
	}
	out.Data = data
	return out, nil
}

// snapshot is a stored snapshot. Its context is stored separately, byte for byte.
type snapshot struct {
	// Digest is record.DigestState of the instance, including its context.
	Digest   string          `json:"digest"`
	Instance json.RawMessage `json:"instance"`
}

// EncodeSnapshot encodes an instance as a snapshot without its context.
func EncodeSnapshot(inst record.Instance) ([]byte, error) {
	digest := record.DigestState(inst)
	inst.Context = nil
	bare, err := json.Marshal(inst)
	if err == nil {
		bare, err = json.Marshal(snapshot{digest, bare})
	}
	if err != nil {
		return nil, fmt.Errorf("encode the snapshot: %w", err)
	}
	return bare, nil
}

// DecodeSnapshot returns the instance of a stored snapshot after checking its digest. An error means damage.
func DecodeSnapshot(doc, contextDoc []byte) (inst record.Instance, err error) {
	var stored snapshot
	if err := json.Unmarshal(doc, &stored); err != nil {
		return inst, fmt.Errorf("a snapshot: %w", err)
	}
	if err := json.Unmarshal(stored.Instance, &inst); err != nil {
		return record.Instance{}, fmt.Errorf("a snapshot: %w", err)
	}
	if inst.Context = contextDoc; record.DigestState(inst) != stored.Digest {
		return record.Instance{}, fmt.Errorf("the snapshot of %s at revision %d does not match its digest", inst.ID, inst.Revision)
	}
	return inst, nil
}
