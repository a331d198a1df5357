package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Truncate implements store.Store.
func (s *Store) Truncate(ctx context.Context, c store.Commit, upTo int64, floor record.Instance) error {
	if err := record.CheckTruncation(c.Events, floor); err != nil {
		return err
	}
	if upTo != floor.Seq {
		return fmt.Errorf("%w: events up to %d are to go, the floor is event %d", record.ErrIllegalStep, upTo, floor.Seq)
	}
	p, err := checkedCommit(c)
	if err != nil {
		return err
	}
	snapshot, err := encodeSnapshot(floor)
	if err != nil {
		return err
	}
	return s.write(ctx, p.size+len(floor.Context), "remove the beginning of a history", func(st *statements) error {
		if c.Unanchored {
			if err := st.checkUnanchored(); err != nil {
				return err
			}
		}
		if err := p.apply(st); err != nil {
			return err
		}
		if err := st.exec(st.cutEvents, floor.ID, floor.Seq); err != nil {
			return err
		}
		if err := st.exec(st.cutSnapshots, floor.ID, floor.Revision); err != nil {
			return err
		}
		return st.exec(st.addSnapshot, floor.Revision, snapshot, orEmpty(floor.Context), floor.ID)
	})
}

// checkUnanchored refuses where there is an anchor.
func (st *statements) checkUnanchored() error {
	var one int
	err := st.anyAnchor.QueryRowContext(context.Background()).Scan(&one)
	switch {
	case err == nil:
		return fmt.Errorf("%w: there is an anchor", store.ErrConflict)
	case errors.Is(err, sql.ErrNoRows):
		return nil
	}
	return err
}
