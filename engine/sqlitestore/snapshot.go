package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

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
			if inst, digested, err = rows.DecodeSnapshot(doc, contextDoc); err != nil || digested {
				return asCorrupt(err)
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
