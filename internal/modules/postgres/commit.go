package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// member is an encoded commit with the result of its statement. The caller's goroutine prepares it to save work for
// the writer.
type member struct {
	*rows.Commit
	terms []string // the terms of each event, separated by spaces

	n                                       *int64 // the number of its instance; nil if the commit was refused
	keyTaken, leaseLost, anchored, hasOther bool
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, c store.Commit) error {
	if err := c.Check(); err != nil {
		return err //nolint:wrapcheck // an error of the interface
	}
	encoded, err := rows.NewCommit(c)
	if err != nil {
		return err //nolint:wrapcheck // the error is already specific
	}
	m := newMember(encoded)
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.activeCalls.Done()
	if s.writer == nil {
		return fmt.Errorf("commit: %w", ErrReadOnly)
	}
	switch err := s.writer.submit(ctx, m); {
	case err == nil, isRefusal(err), errors.Is(err, ctx.Err()):
		return err
	default:
		return fmt.Errorf("commit: %w", s.fail(err))
	}
}

func newMember(encoded *rows.Commit) *member {
	m := &member{Commit: encoded}
	for _, e := range encoded.Events {
		m.terms = append(m.terms, strings.Join(eventTerms(e, encoded.Next.Owner), " "))
	}
	return m
}

// instance returns the id of the written instance; "" for a lesson alone.
func (m *member) instance() string { return m.Next.ID }

// scan reads the result of the statement.
func (m *member) scan(row pgx.Row) error {
	return row.Scan(&m.n, &m.keyTaken, &m.leaseLost, &m.anchored, &m.hasOther) //nolint:wrapcheck // Commit wraps it
}

// refusal returns why the commit was not written, or nil if it was.
func (m *member) refusal() error {
	switch {
	case m.n != nil:
		return nil
	case m.keyTaken:
		return store.ErrKeyTaken
	case m.leaseLost:
		return fmt.Errorf("%w: %s, number %d", store.ErrLeaseLost, m.Lease.Name, m.Lease.Number)
	case m.anchored:
		return fmt.Errorf("%w: there is an anchor", store.ErrConflict)
	case m.hasOther:
		return store.ErrSubjectTaken
	}
	return m.ConflictError()
}

// isWritten reports whether the commit is in the store, after a connection was lost during it. A lesson alone cannot
// be recognised, so it is written again and counts twice at worst.
func (m *member) isWritten(ctx context.Context, s *Store) (bool, error) {
	if m.IsLesson() {
		return false, nil
	}
	var same bool
	err := s.writes.QueryRow(ctx, s.sql(`SELECT e.hash = $3 FROM gavel.events e
		WHERE e.n = (SELECT n FROM gavel.instances WHERE id = $1) AND e.seq = $2`), m.Next.ID, m.Next.Seq, m.Head).Scan(&same)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return same, err //nolint:wrapcheck // Commit wraps it
}

// builder collects the parts of a statement and its values.
type builder struct {
	parts []string
	args  []any
}

// value adds a value and returns its placeholder.
func (b *builder) value(v any) string {
	b.args = append(b.args, v)
	return "$" + strconv.Itoa(len(b.args))
}

func (b *builder) values(all ...any) string {
	places := make([]string, len(all))
	for i, v := range all {
		places[i] = b.value(v)
	}
	return strings.Join(places, ", ")
}

// with adds a named part.
func (b *builder) with(name, query string) { b.parts = append(b.parts, name+" AS ("+query+")") }

// statement returns a single statement that writes all of a commit except its events, or writes nothing. It writes
// only if the instance's row can be written: every other part depends on that row.
func (m *member) statement() (string, []any) {
	var b builder
	free := ""
	taken, lost, anchored, other := "false", "false", "false", "false"
	if m.Lease != nil {
		b.with("held", leaseHeld(b.value([]byte(m.Lease.Name)), b.value(m.Lease.Number)))
		lost, free = "NOT EXISTS (SELECT FROM held)", " AND EXISTS (SELECT FROM held)"
	}
	if m.IsLesson() {
		b.with("moved", `SELECT 0::int8 AS n WHERE true`+free)
		m.addLesson(&b)
		return b.end(`SELECT (SELECT n FROM moved), false, ` + lost + `, false, false`)
	}
	if len(m.Keys) > 0 {
		b.with("taken", `SELECT FROM gavel.events WHERE key_scope = ANY (`+b.value(m.Keys)+`)`)
		taken, free = "EXISTS (SELECT FROM taken)", free+" AND NOT EXISTS (SELECT FROM taken)"
	}
	if m.Floor != nil && m.Unanchored {
		b.with("alone", `SELECT pg_advisory_xact_lock(`+strconv.Itoa(anchorLock)+`)`)
		b.with("anchored", `SELECT FROM gavel.anchors, alone LIMIT 1`)
		anchored, free = "EXISTS (SELECT FROM anchored)", free+" AND NOT EXISTS (SELECT FROM anchored)"
	}
	if m.Expect == 0 {
		if m.Next.Subject != "" {
			b.with("other", `SELECT FROM gavel.instances WHERE workflow = `+b.value(m.Next.Workflow)+` AND subject = `+b.value([]byte(m.Next.Subject)))
			other, free = "EXISTS (SELECT FROM other)", free+" AND NOT EXISTS (SELECT FROM other)"
		}
		m.create(&b, free)
	} else {
		m.move(&b, free)
	}
	for i, r := range m.ReviewRows {
		if slices.ContainsFunc(m.ReviewRows[i+1:], func(later rows.Review) bool { return later.ID == r.ID }) {
			continue // a statement may write a row only once
		}
		b.with("review"+strconv.Itoa(i), `INSERT INTO gavel.reviews (id, place, status, instance, workflow, principal, body, data) SELECT `+
			b.values(r.ID, r.SortKey, r.Status, r.Instance, r.Workflow, []byte(r.Principal), r.Body, bytesOrNull(r.Data))+` FROM moved
			ON CONFLICT (id) DO UPDATE SET place = excluded.place, status = excluded.status, instance = excluded.instance,
				workflow = excluded.workflow, principal = excluded.principal, body = excluded.body, data = excluded.data`)
	}
	m.addLesson(&b)
	m.keepSnapshots(&b)
	return b.end(`SELECT (SELECT n FROM moved), ` + taken + `, ` + lost + `, ` + anchored + `, ` + other)
}

func (b *builder) end(query string) (string, []any) {
	return "WITH " + strings.Join(b.parts, ",\n") + "\n" + query, b.args
}

func (m *member) create(b *builder, free string) {
	i := &m.Next
	b.with("moved", `INSERT INTO gavel.instances (id, workflow, version, definition_hash, owner, created_at, updated_at,
		seq, revision, state, status, head, facts, calls, subject) SELECT `+
		b.values(i.ID, i.Workflow, i.Version, i.DefinitionHash, []byte(i.Owner), i.CreatedAt.UnixNano(), i.UpdatedAt.UnixNano(),
			i.Seq, i.Revision, i.State, string(i.Status), m.Head, m.Facts, len(i.Facts.Calls), subjectOf(m.Commit))+
		` WHERE true`+free+` ON CONFLICT DO NOTHING RETURNING n`)
	b.with("context", `INSERT INTO gavel.contexts (n, context) SELECT n, `+b.value(rows.OrEmpty(i.Context))+` FROM moved`)
}

func (m *member) move(b *builder, free string) {
	i := &m.Next
	set := []string{}
	for _, c := range []struct {
		column string
		value  any
	}{
		{"version", i.Version},
		{"definition_hash", i.DefinitionHash},
		{"updated_at", i.UpdatedAt.UnixNano()},
		{"seq", i.Seq},
		{"revision", i.Revision},
		{"state", i.State},
		{"status", string(i.Status)},
		{"head", m.Head},
		{"facts", m.Facts},
		{"calls", len(i.Facts.Calls)},
		{"subject", subjectOf(m.Commit)},
	} {
		set = append(set, c.column+" = "+b.value(c.value))
	}
	b.with("moved", `UPDATE gavel.instances SET `+strings.Join(set, ", ")+` WHERE id = `+b.value(i.ID)+
		` AND seq = `+b.value(m.Expect)+` AND head = `+b.value(m.From)+free+` RETURNING n`)
	if m.Context != nil {
		b.with("context", `UPDATE gavel.contexts c SET context = `+b.value(m.Context)+` FROM moved WHERE c.n = moved.n`)
	}
}

func subjectOf(c *rows.Commit) any {
	if c.Next.Subject == "" {
		return nil
	}
	return []byte(c.Next.Subject)
}

// bytesOrNull returns NULL for nil.
func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// keepSnapshots adds the parts that write snapshots and remove the beginning of a history.
func (m *member) keepSnapshots(b *builder) {
	keep := func(name string, revision int64, doc, context []byte) {
		b.with(name, `INSERT INTO gavel.snapshots (n, revision, instance, context) SELECT n, `+b.values(revision, doc, rows.OrEmpty(context))+
			` FROM moved ON CONFLICT (n, revision) DO UPDATE SET instance = excluded.instance, context = excluded.context`)
	}
	if m.Snapshot != nil && (m.Floor == nil || m.Floor.Revision != m.Next.Revision) {
		keep("snapshot", m.Next.Revision, m.Snapshot, m.Next.Context)
	}
	if m.FloorSnapshot == nil {
		return
	}
	b.with("cut_events", `DELETE FROM gavel.events e USING moved WHERE e.n = moved.n AND e.seq <= `+b.value(m.Floor.Seq)+` RETURNING e.pos`)
	b.with("uncounted", `INSERT INTO gavel.figures (block, removed) SELECT DISTINCT pos >> 13, 1 FROM cut_events
		ON CONFLICT (block) DO UPDATE SET removed = figures.removed + 1, body = NULL`)
	b.with("cut_snapshots", `DELETE FROM gavel.snapshots p USING moved WHERE p.n = moved.n AND p.revision < `+b.value(m.Floor.Revision))
	keep("floor", m.Floor.Revision, m.FloorSnapshot, m.Floor.Context)
}

// blockBits is the number of position bits within a block.
const blockBits = 13

// insertEvents assigns positions to the events of a group. A transaction locks the counter's row last, so that
// positions are in commit order.
const insertEvents = `WITH counted AS (UPDATE gavel.counter SET last = last + $1 RETURNING last - $1 AS base),
	e AS (SELECT counted.base + e.place AS pos, e.* FROM counted, unnest($2::int8[], $3::int8[], $4::int8[], $5::text[], $6::int8[], $7::bytea[],
		$8::bytea[], $9::bytea[], $10::bytea[], $11::text[]) WITH ORDINALITY AS e (n, seq, revision, kind, at, key_scope, prev_hash, hash, body, terms, place)),
	timed AS (INSERT INTO gavel.blocks (block, first, last) SELECT pos >> 13, min(at), max(at) FROM e GROUP BY 1
		ON CONFLICT (block) DO UPDATE SET first = least(blocks.first, excluded.first), last = greatest(blocks.last, excluded.last))
	INSERT INTO gavel.events (pos, n, seq, revision, kind, at, key_scope, prev_hash, hash, body, terms)
	SELECT pos, n, seq, revision, kind, at, key_scope, prev_hash, hash, body, string_to_array(terms, ' ') FROM e`

// eventRows holds the event rows of a group, by column.
type eventRows struct {
	n, seq, revision, at      []int64
	kind, terms               []string
	scope, prev, hash, bodies [][]byte
}

func (e *eventRows) count() int64 { return int64(len(e.n)) }

func (e *eventRows) add(m *member) {
	for i, row := range m.Rows {
		e.n, e.seq, e.revision, e.at = append(e.n, *m.n), append(e.seq, row.Seq), append(e.revision, row.Revision), append(e.at, row.At)
		e.kind, e.terms = append(e.kind, row.Kind), append(e.terms, m.terms[i])
		e.scope, e.prev, e.hash, e.bodies = append(e.scope, row.Scope), append(e.prev, row.Prev), append(e.hash, row.Hash), append(e.bodies, row.Body)
	}
}

func (e *eventRows) args() []any {
	return []any{e.count(), e.n, e.seq, e.revision, e.kind, e.at, e.scope, e.prev, e.hash, e.bodies, e.terms}
}
