package sqlite

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context, id string, revision int64) (inst record.Instance, err error) {
	err = s.read(ctx, fmt.Sprintf("snapshot of %s at revision %d", id, revision), func(ctx context.Context) error {
		var doc, contextDoc []byte
		if err := s.stmts.snapshot.QueryRowContext(ctx, id, revision).Scan(&doc, &contextDoc); err != nil {
			return err
		}
		inst, err = rows.DecodeSnapshot(doc, contextDoc)
		return wrapCorrupt(err)
	})
	return inst, err
}
