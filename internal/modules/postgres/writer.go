package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Limits of a transaction.
const (
	maxGroup      = 256
	maxGroupBytes = 8 << 20
)

// How long a transaction that was undone or lost waits before it is retried.
const (
	minRetryWait = 2 * time.Millisecond
	maxRetryWait = 500 * time.Millisecond
)

// The states of a request.
const (
	waiting int32 = iota
	claimed
	abandoned
)

// request is a commit that waits for its transaction.
type request struct {
	*member
	err   error
	done  chan error // receives one value when the outcome is certain
	state atomic.Int32
}

// claim claims the request for a transaction; its caller can no longer cancel.
func (r *request) claim() bool { return r.state.CompareAndSwap(waiting, claimed) }

// writer is the only goroutine of a process that commits.
type writer struct {
	s       *Store
	queue   chan *request
	held    *request // postponed because its instance was already in the group
	insert  string   // the statement for a group's events
	stopped chan struct{}
	urgent  chan struct{} // closed when the store is being closed
	groups  atomic.Uint64 // committed transactions
	commits atomic.Uint64 // commits in them
}

func newWriter(s *Store) *writer {
	return &writer{s: s, insert: s.sql(insertEvents), queue: make(chan *request, 4*maxGroup), stopped: make(chan struct{}), urgent: make(chan struct{})}
}

// stop ends the goroutine once the queue is empty. submit must not be called afterwards.
func (w *writer) stop() {
	if w == nil {
		return
	}
	close(w.queue)
	<-w.stopped
}

// submit queues a commit and waits for its outcome. If ctx ends before a transaction has taken the request, it
// withdraws the request.
func (w *writer) submit(ctx context.Context, m *member) error {
	r := &request{member: m, done: make(chan error, 1)}
	select {
	case w.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, abandoned) {
			return ctx.Err()
		}
		return <-r.done
	}
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		first := w.held
		if w.held = nil; first == nil {
			if first = <-w.queue; first == nil { // closed
				return
			}
		}
		group := w.collectGroup(first)
		w.commitGroup(group)
	}
}

// collectGroup takes the queued requests, sorted in the order in which every process locks instances, so that no two
// processes wait for each other. Each instance appears at most once.
func (w *writer) collectGroup(first *request) (group []*request) {
	size, have := 0, map[string]bool{}
	for r := first; r != nil; {
		id := r.instance()
		if have[id] {
			w.held = r
			break
		}
		if r.claim() {
			have[id] = id != ""
			group, size = append(group, r), size+r.Size
		}
		if len(group) >= maxGroup || size >= maxGroupBytes {
			break
		}
		select {
		case r = <-w.queue: // nil once the queue is closed
		default:
			r = nil
		}
	}
	slices.SortStableFunc(group, func(a, b *request) int { return strings.Compare(a.instance(), b.instance()) })
	return group
}

// commitGroup commits requests in one transaction and answers them. If the transaction fails because of a request,
// each request gets its own transaction.
func (w *writer) commitGroup(group []*request) {
	if len(group) == 0 {
		return
	}
	err := w.s.retryTransaction(w.urgent, func(ctx context.Context) error { return w.tryOnce(ctx, &group) })
	if err != nil && len(group) > 1 && !isLost(err) && !isRolledBack(err) {
		for _, r := range group {
			w.commitGroup([]*request{r})
		}
		return
	}
	for _, r := range group {
		if err != nil {
			r.err = err
		}
		r.done <- r.err
	}
}

// tryOnce makes one attempt at a transaction. Requests that it finds already written are answered and removed from the
// group.
func (w *writer) tryOnce(ctx context.Context, group *[]*request) error {
	conn, err := w.s.writes.Acquire(ctx)
	if err != nil {
		return err //nolint:wrapcheck // Commit wraps it
	}
	defer conn.Release()
	sent, err := w.transact(ctx, conn, *group)
	if err == nil {
		return nil
	}
	dropConn(conn, err)
	if !sent || !isLost(err) {
		return err
	}
	// Only the events show whether the transaction was committed.
	if checkErr := w.s.retryTransaction(w.urgent, func(ctx context.Context) error { return w.resolveWritten(ctx, group) }); checkErr != nil {
		return fmt.Errorf("it is unknown whether the commit was written: %w", checkErr)
	}
	if len(*group) == 0 {
		return nil
	}
	return err
}

// transact commits a group in one transaction and stores the refusal of each refused request in it. sent reports
// whether the server was asked to commit.
func (w *writer) transact(ctx context.Context, conn *pgxpool.Conn, group []*request) (sent bool, err error) {
	var begin pgx.Batch
	begin.Queue("BEGIN")
	for _, r := range group {
		r.err = nil
		query, args := r.statement()
		begin.Queue(w.s.sql(query), args...).QueryRow(r.scan)
	}
	if err := conn.SendBatch(ctx, &begin).Close(); err != nil {
		rollBackConn(ctx, conn)
		return false, err //nolint:wrapcheck // Commit wraps it
	}
	var end pgx.Batch
	written := 0
	events := new(eventRows)
	for _, r := range group {
		if r.err = r.refusal(); r.err != nil {
			continue
		}
		written++
		events.add(r.member)
	}
	if err := w.findTaken(ctx, conn, group); err != nil {
		rollBackConn(ctx, conn)
		return false, err
	}
	if written == 0 {
		rollBackConn(ctx, conn)
		return false, nil
	}
	if events.count() > 0 {
		end.Queue(w.insert, events.args()...)
	}
	end.Queue("COMMIT")
	if err := conn.SendBatch(ctx, &end).Close(); err != nil {
		rollBackConn(ctx, conn)
		if isUniqueViolation(err, "events_key") && len(group) == 1 {
			group[0].err = store.ErrKeyTaken // by another process just now
			return false, nil
		}
		return true, err //nolint:wrapcheck // Commit wraps it
	}
	w.groups.Add(1)
	w.commits.Add(uint64(written))
	if events.count() > 0 {
		w.s.waker.requestAnnouncement()
	}
	return true, nil
}

// findTaken replaces the ErrConflict of a request by ErrKeyTaken or ErrSubjectTaken if its key or subject exists
// by now. The commit that caused the conflict may have written it.
func (w *writer) findTaken(ctx context.Context, conn *pgxpool.Conn, group []*request) error {
	for _, r := range group {
		if !errors.Is(r.err, store.ErrConflict) || r.IsLesson() || r.Expect == 0 && r.Next.Subject == "" && len(r.Keys) == 0 {
			continue
		}
		var key, subject bool
		err := conn.QueryRow(ctx, w.s.sql(`SELECT EXISTS (SELECT FROM gavel.events WHERE key_scope = ANY ($1)),
			EXISTS (SELECT FROM gavel.instances WHERE workflow = $2 AND subject = $3)`), r.Keys, r.Next.Workflow, subjectOf(r.Commit)).Scan(&key, &subject)
		switch {
		case err != nil:
			return err //nolint:wrapcheck // Commit wraps it
		case key:
			r.err = store.ErrKeyTaken
		case subject && r.Expect == 0:
			r.err = store.ErrSubjectTaken
		}
	}
	return nil
}

// resolveWritten answers the requests that were committed, and keeps the others in the group.
func (w *writer) resolveWritten(ctx context.Context, group *[]*request) error {
	var left []*request
	for i, r := range *group {
		written, err := r.isWritten(ctx, w.s)
		if err != nil {
			*group = append(left, (*group)[i:]...)
			return err
		}
		if written {
			r.done <- nil
		} else {
			left = append(left, r)
		}
	}
	*group = left
	return nil
}

func rollBackConn(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK") // a connection that cannot is dropped
	}
}

// dropConn closes a connection that is no longer usable; the pool would otherwise hand it out again.
func dropConn(conn *pgxpool.Conn, err error) {
	if isLost(err) || conn.Conn().PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Conn().Close(ctx)
	}
}

// retryTransaction calls do, and retries it within the store's patience if the server undid it or its connection was lost.
// If hurry is closed during a wait, insist tries only once more.
func (s *Store) retryTransaction(hurry <-chan struct{}, do func(ctx context.Context) error) error {
	until := time.Now().Add(s.patience)
	for wait := minRetryWait; ; wait = min(2*wait, maxRetryWait) {
		ctx, cancel := context.WithTimeout(context.Background(), s.patience)
		err := do(ctx)
		cancel()
		if err == nil || !isRolledBack(err) && !isLost(err) || time.Now().After(until) {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) //nolint:gosec // jitter
		select {
		case <-timer.C:
		case <-hurry:
			timer.Stop()
			until, hurry = time.Now(), nil
		}
	}
}

// transact runs a write other than a commit in its own transaction.
func (s *Store) transact(ctx context.Context, what string, do func(ctx context.Context, tx pgx.Tx) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.activeCalls.Done()
	if s.writes == nil {
		return fmt.Errorf("%s: %w", what, ErrReadOnly)
	}
	err := s.retryTransaction(ctx.Done(), func(ctx context.Context) error {
		conn, err := s.writes.Acquire(ctx)
		if err != nil {
			return err //nolint:wrapcheck // below
		}
		defer conn.Release()
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return do(ctx, tx) })
		if err != nil {
			dropConn(conn, err)
		}
		return err //nolint:wrapcheck // below
	})
	if err == nil || isRefusal(err) {
		return err
	}
	return fmt.Errorf("%s: %w", what, s.fail(err))
}
