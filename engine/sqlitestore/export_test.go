package sqlitestore

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

// WriterConn is the writer's own connection. It may be used while nothing is written.
func (s *Store) WriterConn() *sql.Conn { return s.writer.conn }

// ReaderDB is the pool of readers.
func (s *Store) ReaderDB() *sql.DB { return s.readers }

// BulkDB is the pool of bulk reads.
func (s *Store) BulkDB() *sql.DB { return s.bulk }

// SeesIndex reports whether anything is answered from memory.
func (s *Store) SeesIndex() bool { return s.heads.index != nil }

// HoldReaders takes all connections of the readers, until release.
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

// Queued is how many writes wait behind the one in the writer's hands.
func (s *Store) Queued() int { return len(s.writer.queue) }

// Alone makes callers write themselves, as after a while in which nobody else wrote.
func (s *Store) Alone() { s.writer.lonely.Store(lonelyEnough) }

// WritesItself makes a write that changes nothing, and reports whether the caller did it.
func (s *Store) WritesItself(ctx context.Context) (itself bool, err error) {
	err = s.writer.submit(ctx, 1, func(*statements) error {
		stack := make([]byte, 1<<16)
		itself = bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("WritesItself("))
		return nil
	})
	return itself, err
}

// PanicAlone makes a caller panic while it writes itself.
func (s *Store) PanicAlone(ctx context.Context) {
	s.Alone()
	_ = s.writer.submit(ctx, 1, func(*statements) error { panic("in the middle of a write") })
}

// Writing reports whether somebody has his turn.
func (s *Store) Writing() bool {
	free := s.writer.turn.TryLock()
	if free {
		s.writer.turn.Unlock()
	}
	return !free
}

// Enter begins a call that goes on until leave; write writes within it.
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
	return write, s.inside.Done, nil
}

// OpenOn opens a store as if its directory were on a file system.
func OpenOn(ctx context.Context, cfg Config, fileSystem string) (*Store, error) {
	cfg.fileSystem = func(string) string { return fileSystem }
	return Open(ctx, cfg)
}

// Query is one of the queries of this package with arguments.
type Query struct {
	SQL  string
	Args []any
}

// Queries lists what is read and how rows are found for writing.
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

// ReviewsQuery is the query of a list of reviews.
func ReviewsQuery(q store.ReviewQuery) Query {
	query, args := reviewsQuery(q)
	return Query{query, args}
}

// Naive commits as a program without a writer would: one transaction per write
// on a pool of connections, BEGIN IMMEDIATE and busy_timeout. It is the baseline.
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
		keyTaken: tx.Stmt(n.stmts.keyTaken), moveInstance: tx.Stmt(n.stmts.moveInstance), keepInstance: tx.Stmt(n.stmts.keepInstance),
		setContext: tx.Stmt(n.stmts.setContext), addEvent: tx.Stmt(n.stmts.addEvent), addSnapshot: tx.Stmt(n.stmts.addSnapshot),
	}
	if err := p.apply(&bound); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Close releases the baseline.
func (n *Naive) Close() error { return errors.Join(n.stmts.close(), n.db.Close()) }

// OpenCheckpointing opens a store that folds its log in the background after so many
// pages, or, where inCommit is not 0, in the commit that makes it so long.
func OpenCheckpointing(ctx context.Context, cfg Config, background, inCommit int) (*Store, error) {
	cfg.checkpointEvery, cfg.autocheckpoint = background, inCommit
	return Open(ctx, cfg)
}

// OpenIndexing opens a store each search of which indexes for so long, and one batch at
// the least. Nothing is indexed in the background.
func OpenIndexing(ctx context.Context, cfg Config, indexFor time.Duration) (*Store, error) {
	cfg.indexFor = indexFor
	return Open(ctx, Foreground(cfg))
}

// Foreground is a configuration with which nothing is indexed in the background.
func Foreground(cfg Config) Config {
	cfg.indexPause = -1
	return cfg
}

// IndexOnce indexes a batch or, where all is indexed, counts a block, as the indexer does; what
// happens between reading and writing comes before the latter.
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

// Log returns how many pages the write-ahead log has and how many are folded.
func (s *Store) Log() (pages, folded int, err error) { return runCheckpoint(s.readers, "NOOP") }

// ReplayLog writes what a log holds to a new file.
func ReplayLog(logPath, to string) (*ReplayedLog, error) { return replayLog(logPath, to) }

// DecisionsQuery is the query of a page of decisions, as Decisions chooses it.
func DecisionsQuery(q store.DecisionQuery) Query {
	page, all := pagesOf(q)
	query, args := page(q, all, placed{}, pageSize)
	return Query{query, args}
}

// SpanOf are the positions among which a search looks for indexed decisions.
func SpanOf(ctx context.Context, s *Store, q store.DecisionQuery) [2]int64 {
	_, all := pagesOf(q)
	got, err := s.narrowByTime(ctx, q, all)
	if err != nil {
		panic(err)
	}
	return [2]int64{got.from, got.to}
}

// Fold runs a round of the checkpointer, and reports whether it left the rest, or cutting
// the file, to the writer.
func (s *Store) Fold() (rest, cut bool, err error) {
	f := s.writer.checkpointer
	err = f.foldLog()
	return f.rest.Swap(false), f.cut.Swap(false), err
}

// NeverFold keeps the checkpointer from being woken.
func (s *Store) NeverFold() {
	s.writer.turn.Lock()
	defer s.writer.turn.Unlock()
	s.writer.folded = math.MaxInt
}

// LeaveCut makes the writer cut the log's file after its next transaction.
func (s *Store) LeaveCut() { s.writer.checkpointer.cut.Store(true) }

// LeaveRest makes the writer fold what is left after its next transaction.
func (s *Store) LeaveRest() { s.writer.checkpointer.rest.Store(true) }

// FailedWhileAnsweringQueues has a writer whose file is gone answer one write after the
// other that waits, and queues another one before it takes the second answer. It returns
// the answers, and whether the one that came later was answered too.
func FailedWhileAnsweringQueues(path string) (told []error, later bool) {
	w := &writer{queue: make(chan *request, 4), files: files{path: fileID{}}}
	ask := func() *request { return &request{done: make(chan error)} } // unbuffered: the writer waits to be heard
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

// LogSaved reports whether a log that was deleted is in the database.
func (s *Store) LogSaved() bool {
	s.writer.turn.Lock()
	defer s.writer.turn.Unlock()
	return s.writer.saved
}

// AgeHealth makes the outcome of the last write one of a while ago.
func (s *Store) AgeHealth(by time.Duration) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.at = s.health.at.Add(-by)
}

// FailureClass is what a failure is counted as.
func FailureClass(err error) string { return failureClass(err) }

// KnownCode is the error of this package for a code of SQLite.
func KnownCode(code int) error { return knownCode(code) }

// Watched asks before each step of a restore that changes what is there; an error ends it.
func Watched(req RestoreRequest, before func(step string) error) RestoreRequest {
	req.before = before
	return req
}

// SalvagedTables are the tables that Salvage reads.
var SalvagedTables = salvagedTables
