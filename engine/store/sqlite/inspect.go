package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Contents summarises a store.
type Contents struct {
	Definitions int64 `json:"definitions"` // versions
	Instances   int64 `json:"instances"`
	Events      int64 `json:"events"`
	// Newest is the time of the last event; zero if there are no events.
	Newest time.Time `json:"newestEvent,omitzero"`
	Bytes  int64     `json:"bytes"`
}

// Inspect reads the whole store and returns a summary. It verifies pages, indexes, and the chain of every history up
// to its instance. It changes nothing and works while others write.
//
// Errors: fs.ErrNotExist, ErrNotAStore, store.ErrOtherSchema, ErrCorrupt, and a *record.BrokenError for a history
// that does not verify.
func Inspect(ctx context.Context, path string) (Contents, error) {
	c, err := inspectFile(ctx, path)
	if err != nil {
		return Contents{}, fmt.Errorf("inspect the store %s: %w", path, classifyError(err))
	}
	return c, nil
}

func inspectFile(ctx context.Context, path string) (c Contents, err error) {
	src, err := openSource(ctx, path, isStore)
	if err != nil {
		return Contents{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	tx, err := src.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a consistent state, regardless of concurrent writes
	if err != nil {
		return Contents{}, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	in := inspector{Tx: tx}
	for _, step := range []func(context.Context) error{in.pages, in.count, in.chains} {
		if err := step(ctx); err != nil {
			return Contents{}, err
		}
	}
	in.found.Bytes = fileSize(path)
	return in.found, nil
}

type inspector struct {
	*sql.Tx
	found Contents
}

// pages runs SQLite's integrity check of pages and indexes.
func (in *inspector) pages(ctx context.Context) error {
	said, err := queryAll(ctx, in, scanOne[string], "PRAGMA integrity_check(3)")
	if err != nil {
		return err
	}
	if len(said) != 1 || said[0] != "ok" {
		return fmt.Errorf("%w: %q", ErrCorrupt, said)
	}
	return nil
}

func (in *inspector) count(ctx context.Context) error {
	var newest sql.NullInt64
	err := in.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM definitions), (SELECT count(*) FROM instances),
		(SELECT count(*) FROM events), (SELECT at FROM events ORDER BY pos DESC LIMIT 1)`).
		Scan(&in.found.Definitions, &in.found.Instances, &in.found.Events, &newest)
	if newest.Valid {
		in.found.Newest = rows.TimeOf(newest.Int64)
	}
	return err
}

// chains verifies every history, from its first event or its floor up to the event of its instance.
func (in *inspector) chains(ctx context.Context) (err error) {
	rows, err := in.QueryContext(ctx, `SELECT n, id, seq, head FROM instances ORDER BY n`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var walked int64
	for rows.Next() {
		var n, seq int64
		var id string
		var head []byte
		if err := rows.Scan(&n, &id, &seq, &head); err != nil {
			return err
		}
		chain, events, err := in.chain(ctx, n, id)
		if err != nil {
			return err
		}
		if chain.Seq() != seq || chain.Head() != hex.EncodeToString(head) {
			return &record.BrokenError{Instance: id, Seq: chain.Seq() + 1, How: fmt.Sprintf("the history ends here, but the instance is at event %d", seq)}
		}
		walked += events
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if walked != in.found.Events {
		return fmt.Errorf("%w: %d events belong to no instance", ErrCorrupt, in.found.Events-walked)
	}
	return nil
}

func (in *inspector) chain(ctx context.Context, n int64, id string) (chain record.Chain, events int64, err error) {
	rows, err := in.QueryContext(ctx, `SELECT `+eventColumns+` FROM events e WHERE e.n = ? ORDER BY e.seq`, n)
	if err != nil {
		return chain, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return chain, events, &record.BrokenError{Instance: id, Seq: chain.Seq() + 1, How: err.Error()}
		}
		if events == 0 && e.Seq > 1 {
			floor, err := in.floor(ctx, n)
			if err != nil {
				return chain, events, err
			}
			chain = record.NewChainFrom(floor)
		}
		if err := chain.Add(e); err != nil {
			return chain, events, err
		}
		events++
	}
	if chain.Seq() > 0 && events > 0 {
		return chain, events, rows.Err()
	}
	return chain, events, errors.Join(rows.Err(), &record.BrokenError{Instance: id, Seq: 1, How: "it has no events"})
}

// floor returns the snapshot that represents removed events. It returns the zero Instance if there is none; the chain
// check then reports what is missing.
func (in *inspector) floor(ctx context.Context, n int64) (floor record.Instance, err error) {
	var body []byte
	err = in.QueryRowContext(ctx, `SELECT body FROM events WHERE n = ? AND kind = ? ORDER BY seq DESC LIMIT 1`, n, string(record.Truncated)).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return floor, nil
	}
	if err != nil {
		return floor, err
	}
	cut, err := record.Decode(body)
	if err != nil {
		return floor, err
	}
	var doc, contextDoc []byte
	err = in.QueryRowContext(ctx, `SELECT instance, context FROM snapshots WHERE n = ? AND revision = ?`, n, cut.Truncation.Revision).Scan(&doc, &contextDoc)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return floor, nil
	case err != nil:
		return floor, err
	}
	if floor, err = rows.DecodeSnapshot(doc, contextDoc); err != nil {
		return record.Instance{}, wrapCorrupt(err)
	}
	if t := cut.Truncation; floor.Seq != t.UpTo || floor.Head != t.Hash || t.Floor != record.DigestState(floor) {
		return record.Instance{}, nil // it represents something else
	}
	return floor, nil
}
