package chain

import (
	"cmp"
	"context"
	"database/sql"
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
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // the driver of chains.db

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// version is what runs are recorded under. It is ours and not the binary's hash, which would strand
// every run at an upgrade. An interpreter that gives other commands for the same outcomes needs a
// patch (dbos.Patch), not another version.
const version = "chain-1"

// Names of what DBOS runs.
const (
	runName    = "chain"
	signalName = "signal"
)

// Config are the settings of Runs.
type Config struct {
	// Path is the file of the runs, chains.db next to the store; Database has the runs of many processes
	// instead.
	Path     string
	Database *Database
	// Leases tell the processes over a database which of them still executes runs: those of the store.
	Leases store.Leases
	// Lease is how long a process may be silent before others take up its runs; 0 is DefaultLease.
	Lease time.Duration
	// Grace is how long Close waits for calls that may not run twice; 0 is DefaultGrace.
	Grace time.Duration
	// Unload is how long a run waits in memory before it is suspended; 0 is for ever.
	Unload  time.Duration
	Effects Effects
	// Repeatable says whether the operator declared a tool repeatable; nil is none.
	Repeatable func(server, tool string) bool
	// Writer is the tool that writes the resources of a server; nil is none.
	Writer func(server string) (Writer, bool)
	// Progress gets what happens to steps, also what had happened before a run was taken up again.
	Progress func(run string, p Progress)
	// Asked says what became of a call whose answer was lost, where that is known; nil, or false,
	// waits for Answer. It may be asked again.
	Asked func(c Command) (answer string, known bool)
	// Ledger keeps the record of runs in the store, and asks people; nil keeps none.
	Ledger Ledger
	Logger *slog.Logger // nil discards
}

// Database is a PostgreSQL database in which DBOS keeps runs.
type Database struct {
	// URL may have a password in it, and is not shown.
	URL string
	// Schema is that of the tables of DBOS; "" is DefaultSchema.
	Schema string
	// Proxied reports that a proxy sits in front of the database and shares sessions between clients.
	Proxied bool
}

// What DBOS has in a database.
const (
	// DefaultSchema is that of the tables of runs.
	DefaultSchema = "gavel_chains"
	// VersionTable says of what version the others are.
	VersionTable = "dbos_migrations"
	// OtherDatabase is where DBOS looks which databases there are.
	OtherDatabase = "postgres"
)

// knownVersion is the version of the tables that this DBOS makes.
const knownVersion = 125

// CheckVersion refuses tables of a later version than this program knows; those of an earlier one are brought
// up to date, and 0 is none.
func CheckVersion(version int64) error {
	if version > knownVersion {
		return fmt.Errorf("the tables of runs have the version %d, and this program knows %d", version, knownVersion)
	}
	return nil
}

func (d Database) schema() string { return cmp.Or(d.Schema, DefaultSchema) }

// address is the URL for DBOS: it has at most 10 connections unless the URL says otherwise, and goes to
// the server that takes writes.
func (d Database) address() string {
	at, settings := d.URL, []string{"pool_max_conns=10", "target_session_attrs=read-write"}
	if d.Proxied { // it prepares no statements
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

// Runs runs chains durably: a process that is killed goes on in the step that it was in. One
// process at a time executes the runs of a file, any number those of a database; further ones control
// them (OpenControl).
type Runs struct {
	config  Config
	session atomic.Pointer[session]
	stop    context.CancelFunc // of what looks after the runs
	stopped sync.WaitGroup

	refreshing sync.Mutex // held while the tables are read and what they say is applied
	writing    sync.Mutex // held while boards are written
	mu         sync.Mutex
	control    map[string]*control                   // the runs that execute here
	awaited    map[string]string                     // the runs that wait for a signal or an answer, by its id
	waiters    map[string]map[chan struct{}]struct{} // by run, rung when something became of it
	bounds     map[string]int                        // those that this process gave to queues
	troubled   map[string]int                        // by run: how often it could not go on here
	strays     []string                              // see reclaim
	workflows  map[string]*workflow.Definition       // of chains, by the hash of the chain
	asleep     map[string]*sleeper                   // the suspended runs, as far as this process knows
	boards     chan struct{}                         // has one when boards changed
	// boardsAfter is when publish may write again what is only under way.
	boardsAfter time.Time
}

// control is a run that executes here, and what others say of it.
type control struct {
	cancelled context.CancelFunc
	paused    bool
	questions []*RunQuestion // what it waits for or does
	looked    map[*RunQuestion]bool
	before    []RunQuestion // what it waited for when it was suspended, or its process ended
	board     board
	changed   bool // the board is not written yet
}

// ErrInUse reports that another process has the file of the runs.
var ErrInUse = errors.New("another process runs the chains of this file; stop it first")

// Open opens the file, or the tables in the database, makes them where there are none, and takes up the
// runs that a process left.
func Open(ctx context.Context, c Config) (*Runs, error) {
	return open(ctx, c, true)
}

// OpenControl is Open for a process that executes nothing: what it starts, signals or pauses is done
// by a process that executes the runs, within about a second. The Effects are not used.
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
			return nil, fmt.Errorf("the variable %s is set, which would give runs another version or owner; unset it", name)
		}
	}
	r := &Runs{
		config: c, stop: func() {}, control: map[string]*control{}, asleep: map[string]*sleeper{}, workflows: map[string]*workflow.Definition{}, awaited: map[string]string{}, waiters: map[string]map[chan struct{}]struct{}{},
		bounds: map[string]int{}, boards: make(chan struct{}, 1), troubled: map[string]int{},
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

// openFile opens the file for DBOS. Its own way sets synchronous to NORMAL on one of the connections,
// whatever the address says, and a commit there may be lost with the power.
func openFile(path string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", path, err)
	}
	if err := makeFile(path); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", path, err)
	}
	db, err := sql.Open("sqlite", fileAddress(path, "busy_timeout(5000)", "journal_mode(WAL)", "foreign_keys(ON)", "synchronous(FULL)")+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", path, err)
	}
	// DBOS begins every transaction as a writer, of which SQLite has one. More connections would wait for
	// each other in its busy loop: BenchmarkChainRestart took twice as long with 8.
	db.SetMaxOpenConns(1)
	return db, nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeFile makes a file that nobody else on the machine can read: inputs and outputs are in it. SQLite gives
// the files beside it the same mode.
func makeFile(path string) error {
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

// takeOwnership takes a lock that ends with the process.
func takeOwnership(ctx context.Context, path string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", strings.TrimSuffix(path, "-owner"), err)
	}
	if err := makeFile(path); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", strings.TrimSuffix(path, "-owner"), err)
	}
	db, err := sql.Open("sqlite", fileAddress(path, "locking_mode(EXCLUSIVE)", "busy_timeout(2000)")+"&_txlock=exclusive")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		_, err = tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS owner (process INTEGER)")
		err = errors.Join(err, tx.Commit()) // locking_mode keeps the lock
	}
	if err == nil {
		return db, nil
	}
	_ = db.Close()
	if strings.Contains(err.Error(), "locked") {
		return nil, ErrInUse
	}
	return nil, fmt.Errorf("open the runs in %s: %w", strings.TrimSuffix(path, "-owner"), err)
}

// DefaultGrace is how long Close waits for calls that may not run twice.
const DefaultGrace = 5 * time.Second

// Close stops before the next step of each run. They go on in another process, or when the runs are
// opened again.
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

// callTimeout bounds what is asked of the tables: DBOS would try again until they answer.
const callTimeout = 15 * time.Second

// within is the context of one call to DBOS, which ends with ctx and after callTimeout at most. Nothing
// that is run with it goes on after that.
func (r *Runs) within(ctx context.Context) (dbos.Context, context.CancelFunc) {
	c, cancel := dbos.WithTimeout(r.session.Load().dbos, callTimeout)
	stop := context.AfterFunc(ctx, cancel)
	return c, func() { stop(); cancel() }
}

// listRows lists rows of the tables, without what they began with and what they gave unless options ask for it.
func (r *Runs) listRows(ctx context.Context, options ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	c, done := r.within(ctx)
	defer done()
	return listRows(c, options...)
}

func listRows(c dbos.Context, options ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	return dbos.ListWorkflows(c, append([]dbos.ListWorkflowsOption{dbos.WithFilterLoadInput(false), dbos.WithFilterLoadOutput(false)}, options...)...)
}
