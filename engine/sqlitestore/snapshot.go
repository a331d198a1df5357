package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
)

// storedSnapshot is a snapshot at rest, without its context, which is kept next to it, byte
// for byte.
type storedSnapshot struct {
	// Digest is record.DigestState of the instance with its context.
	Digest   string          `json:"digest"`
	Instance json.RawMessage `json:"instance"`
}

func encodeSnapshot(inst record.Instance) ([]byte, error) {
	digest := record.DigestState(inst)
	inst.Context = nil
	bare, err := json.Marshal(inst)
	if err == nil {
		bare, err = json.Marshal(storedSnapshot{digest, bare})
	}
	if err != nil {
		return nil, fmt.Errorf("encode the snapshot: %w", err)
	}
	return bare, nil
}

// decodeSnapshot returns the instance of a stored snapshot if it is what its digest says.
// Snapshots of earlier versions have none: digested is false then, and only the events
// can say whether it is right.
func decodeSnapshot(doc, contextDoc []byte) (inst record.Instance, digested bool, err error) {
	var stored storedSnapshot
	if err := json.Unmarshal(doc, &stored); err != nil {
		return inst, false, fmt.Errorf("%w: a snapshot: %w", ErrCorrupt, err)
	}
	if stored.Instance == nil {
		stored.Instance = doc
	} else {
		digested = true
	}
	if err := json.Unmarshal(stored.Instance, &inst); err != nil {
		return record.Instance{}, digested, fmt.Errorf("%w: a snapshot: %w", ErrCorrupt, err)
	}
	inst.Context = contextDoc
	switch {
	case inst.ID == "":
		return record.Instance{}, digested, fmt.Errorf("%w: a snapshot of nothing", ErrCorrupt)
	case digested && record.DigestState(inst) != stored.Digest:
		return record.Instance{}, true, fmt.Errorf("%w: the snapshot of %s at revision %d is not what its digest says", ErrCorrupt, inst.ID, inst.Revision)
	}
	return inst, digested, nil
}

// Snapshot implements store.Store. A snapshot without a digest counts only where the events
// before it were removed; elsewhere they say the same, and prove it.
func (s *Store) Snapshot(ctx context.Context, id string, revision int64) (inst record.Instance, err error) {
	err = s.read(ctx, fmt.Sprintf("snapshot of %s at revision %d", id, revision), func(ctx context.Context) error {
		for below := revision; ; below = inst.Revision - 1 {
			var doc, contextDoc []byte
			if err := s.stmts.snapshot.QueryRowContext(ctx, id, below).Scan(&doc, &contextDoc); err != nil {
				return err
			}
			var digested bool
			if inst, digested, err = decodeSnapshot(doc, contextDoc); err != nil || digested {
				return err
			}
			var earlier int
			switch err := s.stmts.earlierEvent.QueryRowContext(ctx, id, inst.Seq).Scan(&earlier); {
			case errors.Is(err, sql.ErrNoRows):
				return nil
			case err != nil:
				return err
			}
		}
	})
	if err != nil {
		return record.Instance{}, err
	}
	return inst, nil
}
