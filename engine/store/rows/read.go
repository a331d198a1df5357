package rows

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// TimeOf is the time of nanoseconds since 1970.
func TimeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// NanosOf is a time as it is stored; one that does not fit is the nearest that does.
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

// DecodeEvent reads an event back.
func DecodeEvent(prev, hash, body []byte) (record.Event, error) {
	e, err := record.Decode(body)
	if err != nil {
		return record.Event{}, err //nolint:wrapcheck // it says what is wrong
	}
	e.PrevHash, e.Hash = hex.EncodeToString(prev), hex.EncodeToString(hash)
	return e, nil
}

// CheckFiled fails where an event is not kept under what it says of itself: it would be left out where
// it belongs, and be given where it does not. It means damage.
func CheckFiled(e record.Event, revision int64, kind string, at int64, scope []byte) error {
	own := ""
	if e.Key != nil {
		own = e.Key.Scope
	}
	if revision != e.Revision || kind != string(e.Kind) || at != e.Time.UnixNano() || hex.EncodeToString(scope) != own {
		return fmt.Errorf("%w: event %d of %s is kept under another kind, revision, time or key than its own",
			record.ErrMalformed, e.Seq, e.Instance)
	}
	return nil
}

// PlaceOf is where reviews of a rank stand in lists: the highest rank first.
func PlaceOf(rank int) int { return -rank }

func newReview(r store.Review) (Review, error) {
	body, err := r.Encode()
	if err != nil {
		return Review{}, err //nolint:wrapcheck // it says what is wrong
	}
	row := Review{
		ID: r.ID, Place: PlaceOf(r.Priority.Rank()), Status: string(r.Status),
		Instance: r.Instance, Workflow: r.Workflow, Principal: r.Principal, Body: body,
	}
	if len(r.Data) > 0 {
		row.Data = r.Data
	}
	return row, nil
}

// DecodeReview reads a review back. A row that cannot be read is told of by its id, never left
// out: somebody waits for it. An error means damage.
func DecodeReview(id string, body, data []byte) (store.Review, error) {
	var out store.Review
	if err := json.Unmarshal(body, &out); err != nil {
		return store.Review{}, fmt.Errorf("review %s: %w", id, err)
	}
	if out.ID != id {
		return store.Review{}, fmt.Errorf("review %s: it says that it is %q", id, out.ID)
	}
	out.Data = data
	return out, nil
}

// snapshot is a snapshot at rest, without its context, which is kept next to it, byte for byte.
type snapshot struct {
	// Digest is record.DigestState of the instance with its context.
	Digest   string          `json:"digest"`
	Instance json.RawMessage `json:"instance"`
}

// EncodeSnapshot is an instance as a snapshot, without its context.
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

// DecodeSnapshot returns the instance of a stored snapshot if it is what its digest says. An
// error means damage.
func DecodeSnapshot(doc, contextDoc []byte) (inst record.Instance, err error) {
	var stored snapshot
	if err := json.Unmarshal(doc, &stored); err != nil {
		return inst, fmt.Errorf("a snapshot: %w", err)
	}
	if err := json.Unmarshal(stored.Instance, &inst); err != nil {
		return record.Instance{}, fmt.Errorf("a snapshot: %w", err)
	}
	if inst.Context = contextDoc; record.DigestState(inst) != stored.Digest {
		return record.Instance{}, fmt.Errorf("the snapshot of %s at revision %d is not what its digest says", inst.ID, inst.Revision)
	}
	return inst, nil
}
