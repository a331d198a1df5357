package chain

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // the SQLite driver for chains.db

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// version is the application version under which runs are recorded. A hash of the binary would strand every
// run at an upgrade. If a change makes the interpreter produce different commands for the same outcomes,
// use a patch (dbos.Patch), not a new version.
const version = "chain-1"

// Names of the DBOS workflows.
const (
	runName    = "chain"
	signalName = "signal"
)

// Config configures Runs.
type Config struct {
	// Path is the file of the runs, usually chains.db next to the store. If Database is set, it is used
	// instead, and many processes can share the runs.
	Path     string
	Database *Database
	// Leases are the store's leases. They show which of the processes that share a database are still alive.
	Leases store.Leases
	// Lease is how long a process may be silent before others take over its runs; 0 means DefaultLease.
	Lease time.Duration
	// Grace is how long Close waits for non-repeatable calls; 0 means DefaultGrace.
	Grace time.Duration
	// Unload is how long a run waits in memory before it is suspended; 0 means forever.
	Unload  time.Duration
	Effects Effects
	// Repeatable reports whether the operator declared a tool repeatable; nil means no tool.
	Repeatable func(server, tool string) bool
	// Writer returns the tool that writes the resources of a server; nil means there are none.
	Writer func(server string) (Writer, bool)
	// Progress receives the events of steps. When a run is taken up again, earlier events are repeated.
	Progress func(run string, p Progress)
	// Asked returns what happened to a call whose answer was lost, if that is known. If Asked is nil or known
	// is false, the run waits for Answer. It may be called repeatedly.
	Asked func(c Command) (answer string, known bool)
	// Ledger records runs in the store and asks people; nil disables both.
	Ledger Ledger
	Logger *slog.Logger // nil discards
}

// Database is a PostgreSQL database in which DBOS stores runs.
type Database struct {
	// URL may contain a password, and must not be shown.
	URL string
	// Schema is the schema of the DBOS tables; "" means DefaultSchema.
	Schema string
	// Proxied reports that a proxy in front of the database shares sessions between clients.
	Proxied bool
}

// Names that DBOS uses in a database.
const (
	// DefaultSchema is the schema of the tables of runs.
	DefaultSchema = "gavel_chains"
	// VersionTable holds the version of the tables.
	VersionTable = "dbos_migrations"
	// OtherDatabase is the database that DBOS connects to when it looks up databases.
	OtherDatabase = "postgres"
)

// knownVersion is the version of the tables that this DBOS creates.
const knownVersion = 125

// CheckVersion rejects tables of a later version than this program knows. Tables of an earlier version are
// upgraded; version 0 means that there are no tables.
func CheckVersion(version int64) error {
	if version > knownVersion {
		return fmt.Errorf("the tables of runs have version %d, but this program supports %d", version, knownVersion)
	}
	return nil
}

func (d Database) schema() string { return cmp.Or(d.Schema, DefaultSchema) }

// address returns the URL for DBOS. Unless the URL sets these options itself, it limits the pool to 10
// connections and requires a server that accepts writes.
func (d Database) address() string {
	at, settings := d.URL, []string{"pool_max_conns=10", "target_session_attrs=read-write"}
	if d.Proxied { // avoids prepared statements
		settings = append(settings, "default_query_exec_mode=cache_describe")
	}
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, "=")
		if _, settings, has := strings.Cut(at, "?"); !has {
			at += "?" + setting
		} else if !strings.Contains("&"+settings, "&"+name+"=") {
			at += "&" + setting
		}
	}
	return at
}

// Runs executes chains durably: after a kill, a run continues in the step it was in. One process at a time
// executes the runs of a file; any number may execute those of a database. Other processes can control them
// (OpenControl).
type Runs struct {
	config  Config
	session atomic.Pointer[session]
	stop    context.CancelFunc // stops the background work
	stopped sync.WaitGroup

	refreshing   sync.Mutex // held while the tables are read and applied
	writing      sync.Mutex // held while live states are written
	mu           sync.Mutex
	control      map[string]*control                   // runs that execute here
	awaited      map[string]string                     // runs that wait for a signal or an answer, by its id
	waiters      map[string]map[chan struct{}]struct{} // by run; notified when the run changes
	failures     map[string]int                        // by run: how often it could not continue here
	strays       []string                              // see requeueStrays
	workflows    map[string]*workflow.Definition       // workflows of chains, by the hash of the chain
	suspended    map[string]*suspendedRun              // suspended runs that this process knows of
	stateChanges chan struct{}                         // holds a value when live states have changed
	// publishAfter is when publish may next write changes that concern only commands in progress.
	publishAfter time.Time
}

// control is a run that executes here, with what other processes requested for it.
type control struct {
	cancelled context.CancelFunc
	paused    bool
	questions []*question   // what it waits for or does
	before    []RunQuestion // what it waited for when it was suspended or its process ended
	state     liveState
	changed   bool // the live state has not been written yet
}

// ErrInUse reports that another process owns the file of the runs.
var ErrInUse = errors.New("another process runs the chains of this file; stop it first")

// Open opens the file or the tables in the database, and creates them if necessary. It takes up the runs
// left by a process that has ended.
func Open(ctx context.Context, c Config) (*Runs, error) {
	return open(ctx, c, true)
}

// OpenControl is like Open, but for a process that executes no runs. Runs that it starts, signals or pauses
// are handled by an executing process within about a second. The Effects are not used.
func OpenControl(ctx context.Context, c Config) (*Runs, error) {
	return open(ctx, c, false)
}

func open(ctx context.Context, c Config, executes bool) (*Runs, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Lease, c.Grace = cmp.Or(c.Lease, DefaultLease), cmp.Or(c.Grace, DefaultGrace)
	for _, name := range []string{"DBOS__APPVERSION", "DBOS__VMID"} {
		if os.Getenv(name) != "" {
			return nil, fmt.Errorf("unset the variable %s: it would change the version or owner of runs", name)
		}
	}
	r := &Runs{
		config: c, stop: func() {}, control: map[string]*control{}, suspended: map[string]*suspendedRun{}, workflows: map[string]*workflow.Definition{}, awaited: map[string]string{}, waiters: map[string]map[chan struct{}]struct{}{},
		stateChanges: make(chan struct{}, 1), failures: map[string]int{},
	}
	if err := r.connect(ctx, executes); err != nil {
		return nil, err
	}
	if executes {
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		r.stop = stop
		r.stopped.Go(func() { r.watch(watching) })
		r.stopped.Go(func() { r.wakeRuns(watching) })
	}
	return r, nil
}

// openFile opens the file for DBOS. DBOS's own function sets synchronous to NORMAL on one of the
// connections regardless of the address, so a commit could be lost in a power failure.
func openFile(path string) (*sql.DB, error) {
	if err := makeFile(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", fileAddress(path, "busy_timeout(5000)", "journal_mode(WAL)", "foreign_keys(ON)", "synchronous(FULL)")+"&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	// DBOS begins every transaction as a writer, and SQLite allows one writer. More connections would wait
	// for each other in SQLite's busy loop: BenchmarkChainRestart took twice as long with 8.
	db.SetMaxOpenConns(1)
	return db, nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeFile creates a file that only its owner can read, because it holds inputs and outputs. SQLite gives
// its companion files the same mode.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func fileAddress(path string, pragmas ...string) string {
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + url.Values{"_pragma": pragmas}.Encode()
}

func openReadOnly(path string) (*sql.DB, error) {
	return sql.Open("sqlite", fileAddress(path, "query_only(1)", "busy_timeout(2000)"))
}

// takeOwnership acquires a lock that is released when the process ends.
func takeOwnership(ctx context.Context, path string) (*sql.DB, error) {
	if err := makeFile(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", fileAddress(path, "locking_mode(EXCLUSIVE)", "busy_timeout(2000)")+"&_txlock=exclusive")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		_, err = tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS owner (process INTEGER)")
		err = errors.Join(err, tx.Commit()) // locking_mode keeps the lock after the commit
	}
	if err == nil {
		return db, nil
	}
	_ = db.Close()
	if strings.Contains(err.Error(), "locked") {
		return nil, ErrInUse
	}
	return nil, err
}

// DefaultGrace is how long Close waits for non-repeatable calls.
const DefaultGrace = 5 * time.Second

// Close stops each run before its next step. The runs continue in another process, or when they are opened
// again.
func (r *Runs) Close() {
	r.stop()
	r.stopped.Wait()
	s := r.session.Load()
	s.drain(r.config.Grace)
	under := r.countUnderWay() > 0
	s.shut()
	if under {
		r.handOver(s)
	}
	s.release()
}

// callTimeout limits each query of the tables. Without a limit, DBOS would retry until they answer.
const callTimeout = 15 * time.Second

// within returns the context for one call to DBOS. The context, and anything started with it, ends with
// ctx, or after callTimeout at the latest.
func (r *Runs) within(ctx context.Context) (dbos.Context, context.CancelFunc) {
	return r.session.Load().within(ctx)
}

func (s *session) within(ctx context.Context) (dbos.Context, context.CancelFunc) {
	c, cancel := dbos.WithTimeout(s.dbos, callTimeout)
	stop := context.AfterFunc(ctx, cancel)
	return c, func() { stop(); cancel() }
}

// listRows lists rows of the tables. It omits inputs and outputs unless options request them.
func (r *Runs) listRows(ctx context.Context, options ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	c, done := r.within(ctx)
	defer done()
	return listRows(c, options...)
}

func listRows(c dbos.Context, options ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	return dbos.ListWorkflows(c, append([]dbos.ListWorkflowsOption{dbos.WithFilterLoadInput(false), dbos.WithFilterLoadOutput(false)}, options...)...)
}

// findRow returns a row of the tables. The error is ErrUnknownRun if there is none.
func (r *Runs) findRow(ctx context.Context, id string, options ...dbos.ListWorkflowsOption) (dbos.WorkflowStatus, error) {
	list, err := r.listRows(ctx, append(options, dbos.WithFilterWorkflowIDs(id))...)
	switch {
	case err != nil:
		return dbos.WorkflowStatus{}, fmt.Errorf("read the run %s: %w", id, err)
	case len(list) == 0:
		return dbos.WorkflowStatus{}, ErrUnknownRun
	}
	return list[0], nil
}

// readSteps returns a page of the records of a run.
func (r *Runs) readSteps(ctx context.Context, run string, offset, limit int, outputs bool) ([]dbos.StepInfo, error) {
	c, done := r.within(ctx)
	defer done()
	page, err := dbos.GetWorkflowSteps(c, run, dbos.WithStepsLoadOutput(outputs), dbos.WithStepsOffset(offset), dbos.WithStepsLimit(limit))
	if err != nil {
		return nil, fmt.Errorf("read the steps of the run %s: %w", run, err)
	}
	return page, nil
}

// decodeAttribute decodes an attribute of a row. An invalid one counts as missing.
func decodeAttribute(w dbos.WorkflowStatus, name string, into any) {
	if raw, err := json.Marshal(w.Attributes[name]); err == nil {
		_ = json.Unmarshal(raw, into)
	}
}
