package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// WriterConn returns the writer's connection. It may be used while no writes are in progress.
func (s *Store) WriterConn() *sql.Conn { return s.writer.conn }

// ReaderDB returns the pool of readers.
func (s *Store) ReaderDB() *sql.DB { return s.readers }

// BulkDB returns the pool of bulk reads.
func (s *Store) BulkDB() *sql.DB { return s.bulk }

// SeesIndex reports whether the cache of heads works here.
func (s *Store) SeesIndex() bool { return s.heads.index != nil }

// HoldReaders takes all connections of the readers until release is called.
func (s *Store) HoldReaders(tb testing.TB) (release func()) {
	tb.Helper()
	var all []*sql.Conn
	for range s.readers.Stats().MaxOpenConnections {
		c, err := s.readers.Conn(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// Queued returns how many writes are waiting in the queue.
func (s *Store) Queued() int { return len(s.writer.queue) }

// Alone makes callers write directly, as after a time without other writers.
func (s *Store) Alone() { s.writer.singleWrites.Store(directWriteAfter) }

// WritesItself makes a write that changes nothing, and reports whether it ran on the caller's goroutine.
func (s *Store) WritesItself(ctx context.Context) (itself bool, err error) {
	err = s.writer.submit(ctx, 1, func(*statements) error {
		stack := make([]byte, 1<<16)
		itself = bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("WritesItself("))
		return nil
	})
	return itself, err
}

// PanicAlone makes a caller panic during a direct write.
func (s *Store) PanicAlone(ctx context.Context) {
	s.Alone()
	_ = s.writer.submit(ctx, 1, func(*statements) error { panic("in the middle of a write") })
}

// Writing reports whether a write is in progress.
func (s *Store) Writing() bool {
	free := s.writer.mu.TryLock()
	if free {
		s.writer.mu.Unlock()
	}
	return !free
}

// Enter begins a call that lasts until leave is called; write writes within it.
func (s *Store) Enter(ctx context.Context) (write func(store.Commit) error, leave func(), err error) {
	if err := s.enter(ctx); err != nil {
		return nil, nil, err
	}
	write = func(c store.Commit) error {
		p, err := prepareCommit(c)
		if err != nil {
			return err
		}
		return s.writer.submit(ctx, p.Size, p.apply)
	}
	return write, s.activeCalls.Done, nil
}

// OpenOn opens a store as if its directory were on the given file system.
func OpenOn(ctx context.Context, cfg Config, fileSystem string) (*Store, error) {
	cfg.fileSystem = func(string) string { return fileSystem }
	return Open(ctx, cfg)
}

// Query is a query of this package with its arguments.
type Query struct {
	SQL  string
	Args []any
}

// Queries lists the queries for reading, and those that find rows for writing.
func (s *Store) Queries() []Query {
	out := []Query{
		{s.stmts.all()[&s.stmts.load], []any{"id"}},
		{s.stmts.all()[&s.stmts.byKey], []any{[]byte("scope")}},
		{s.stmts.all()[&s.stmts.snapshot], []any{"id", 1}},
	}
	add := func(query string, args []any) { out = append(out, Query{query, args}) }
	for _, q := range []store.EventQuery{
		{Instance: "id"},
		{Instance: "id", AfterSeq: 3, MaxRevision: 4, Limit: 5},
		{Instance: "id", Kinds: []record.Kind{record.Checkpointed, record.Refused}},
	} {
		add(eventsPage(q, nil, pageSize))
	}
	for _, q := range []store.InstanceQuery{
		{},
		{BeforeID: "id"},
		{Workflow: "w"},
		{Workflow: "w", BeforeID: "id"},
		{Owner: "o", BeforeID: "id"},
		{Workflow: "w", Owner: "o", State: "s", Status: record.Running, BeforeID: "id"},
		{Workflow: "w", State: "s"},
		{Status: record.Complete},
		{State: "s", BeforeID: "id"},
	} {
		for _, x := range append(listIndexes(q), listIndex{}) {
			if x.name != "" || len(listIndexes(q)) == 0 {
				add(instancesPage(q, x.name, nil, pageSize))
			}
		}
	}
	add(tailPage(store.TailQuery{After: 7}, pageSize))
	add(tailPage(store.TailQuery{After: 7, UpTo: 9, Owner: "o", Workflow: "w"}, pageSize))
	add(tailPage(store.TailQuery{After: 7, UpTo: 9, Instance: "id", Owner: "o"}, pageSize))
	add(instancesPage(store.InstanceQuery{Owner: "o", Status: record.Running, Heads: true}, "instances_owner", nil, pageSize))
	for _, q := range []store.ReviewQuery{{}, {ID: "id"}, {Workflow: "w"}, {Limit: 5, After: &store.ReviewCursor{Rank: 1, ID: "id"}}} {
		out = append(out, ReviewsQuery(q))
	}
	return out
}

// ReviewsQuery returns the query for a list of reviews.
func ReviewsQuery(q store.ReviewQuery) Query {
	query, args := reviewsQuery(q)
	return Query{query, args}
}

// Naive is the baseline. It commits as a program without a writer goroutine would: one transaction per write on a
// pool of connections, with BEGIN IMMEDIATE and busy_timeout.
type Naive struct {
	db    *sql.DB
	stmts statements
}

// NewNaive opens the baseline on a store's file.
func NewNaive(ctx context.Context, path string) (*Naive, error) {
	db, err := sql.Open(driverName, dataSourceName(path, "busy_timeout(10000)", "synchronous(FULL)", "wal_autocheckpoint(4000)",
		"cache_size(-32000)", "temp_store(memory)")+"&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	n := &Naive{db: db}
	for stmt, query := range n.stmts.all() {
		if stmt == &n.stmts.begin || stmt == &n.stmts.commit || stmt == &n.stmts.rollback {
			continue
		}
		if *stmt, err = db.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Commit writes c in its own transaction.
func (n *Naive) Commit(ctx context.Context, c store.Commit) error {
	p, err := prepareCommit(c)
	if err != nil {
		return err
	}
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	bound := statements{
		keyTaken: tx.Stmt(n.stmts.keyTaken), moveInstance: tx.Stmt(n.stmts.moveInstance), updateInstance: tx.Stmt(n.stmts.updateInstance),
		setContext: tx.Stmt(n.stmts.setContext), addEvent: tx.Stmt(n.stmts.addEvent), addSnapshot: tx.Stmt(n.stmts.addSnapshot),
	}
	if err := p.apply(&bound); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close releases the baseline.
func (n *Naive) Close() error { return errors.Join(n.stmts.close(), n.db.Close()) }

// OpenCheckpointing opens a store that checkpoints its log in the background after this many pages. If inCommit is
// not 0, the commit that brings the log to that length checkpoints it.
func OpenCheckpointing(ctx context.Context, cfg Config, background, inCommit int) (*Store, error) {
	cfg.checkpointEvery, cfg.autocheckpoint = background, inCommit
	return Open(ctx, cfg)
}

// OpenIndexing opens a store whose searches index for this long, and at least one batch. Nothing is indexed in the
// background.
func OpenIndexing(ctx context.Context, cfg Config, indexFor time.Duration) (*Store, error) {
	cfg.indexTimeLimit = indexFor
	return Open(ctx, Foreground(cfg))
}

// Foreground returns a configuration without background indexing.
func Foreground(cfg Config) Config {
	cfg.indexPause = -1
	return cfg
}

// IndexOnce indexes a batch, or counts a block if everything is indexed, as the indexer does. It calls between after
// reading and before writing.
func (s *Store) IndexOnce(ctx context.Context, between func()) (more bool, err error) {
	reached, last, err := s.indexPosition(ctx)
	if err != nil {
		return false, err
	}
	step, err := s.nextStep(ctx, reached, last)
	if err != nil || step == nil {
		return false, err
	}
	between()
	return true, s.applyStep(ctx, step)
}

// Log returns how many pages the write-ahead log has and how many are checkpointed.
func (s *Store) Log() (pages, folded int, err error) { return runCheckpoint(s.readers, "NOOP") }

// ReplayLog writes the contents of a log to a new file.
func ReplayLog(logPath, to string) (*ReplayedLog, error) { return replayLog(logPath, to) }

// DecisionsQuery returns the query for a page of decisions, as Decisions chooses it.
func DecisionsQuery(q store.DecisionQuery) Query {
	page, all := choosePages(q)
	query, args := page(q, all, scannedEvent{}, pageSize)
	return Query{query, args}
}

// SpanOf returns the positions within which a search looks for indexed decisions.
func SpanOf(ctx context.Context, s *Store, q store.DecisionQuery) [2]int64 {
	_, all := choosePages(q)
	got, err := s.narrowByTime(ctx, q, all)
	if err != nil {
		panic(err)
	}
	return [2]int64{got.from, got.to}
}

// Fold runs the checkpointer once, and reports whether it left the rest or the truncation of the file to the writer.
func (s *Store) Fold() (rest, cut bool, err error) {
	f := s.writer.checkpointer
	err = f.checkpointLog()
	return f.mustCheckpoint.Swap(false), f.mustTruncate.Swap(false), err
}

// NeverFold keeps the checkpointer from being woken.
func (s *Store) NeverFold() {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	s.writer.checkpointWoken = math.MaxInt
}

// LeaveCut makes the writer truncate the log file after its next transaction.
func (s *Store) LeaveCut() { s.writer.checkpointer.mustTruncate.Store(true) }

// LeaveRest makes the writer checkpoint the rest after its next transaction.
func (s *Store) LeaveRest() { s.writer.checkpointer.mustCheckpoint.Store(true) }

// FailedWhileAnsweringQueues makes a writer whose file is gone fail the queued writes, and queues another one before
// the second result is taken. It returns the results, and whether the later write also received one.
func FailedWhileAnsweringQueues(path string) (told []error, later bool) {
	w := &writer{queue: make(chan *request, 4), files: files{path: fileID{}}}
	ask := func() *request { return &request{done: make(chan error)} } // unbuffered: the writer blocks until the result is received
	first, second := ask(), ask()
	w.queue <- second
	go func() {
		defer close(first.done)
		w.transact(first)
	}()
	told = append(told, <-first.done)
	third := &request{done: make(chan error, 1)}
	w.queue <- third
	told = append(told, <-second.done)
	<-first.done // transact has ended
	return told, third.state.Load() != waiting
}

// LogSaved reports whether the contents of a deleted log are in the database.
func (s *Store) LogSaved() bool {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return s.writer.isLogSaved
}

// AgeHealth makes the result of the last write older.
func (s *Store) AgeHealth(by time.Duration) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.at = s.health.at.Add(-by)
}

// FailureClass returns the class of a failure.
func FailureClass(err error) string { return failureClass(err) }

// KnownCode returns this package's error for a SQLite error code.
func KnownCode(code int) error { return knownCode(code) }

// Watched calls before ahead of each step of a restore that changes the target; an error aborts the restore.
func Watched(req RestoreRequest, before func(step string) error) RestoreRequest {
	req.before = before
	return req
}

// SalvagedTables are the tables that Salvage reads.
var SalvagedTables = salvagedTables
