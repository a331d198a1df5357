package chain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // the driver of chains.db
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
	// Path is the file of the runs, chains.db next to the store.
	Path    string
	Effects Effects
	// Repeatable says whether the operator declared a tool repeatable; nil is none.
	Repeatable func(server, tool string) bool
	// Progress gets what happens to steps, also what had happened before a run was taken up again.
	Progress func(run string, p Progress)
	// Asked says what became of a call whose answer was lost, where that is known; nil, or false,
	// waits for Answer. It may be asked again.
	Asked func(c Command) (answer string, known bool)
	// Ledger keeps the record of runs in the store, and asks people; nil keeps none.
	Ledger Ledger
	Logger *slog.Logger // nil drops
}

// Runs runs chains durably: a process that is killed goes on in the step that it was in. One
// process at a time executes the runs of a file; others control them (OpenControl).
type Runs struct {
	config  Config
	session atomic.Pointer[session]
	stop    context.CancelFunc // of what looks after the runs
	stopped sync.WaitGroup

	refreshing sync.Mutex // held while the tables are read and what they say is applied
	mu         sync.Mutex
	control    map[string]*control                   // the runs that execute here
	awaited    map[string]string                     // the runs that wait for a signal or an answer, by its id
	waiters    map[string]map[chan struct{}]struct{} // by run, rung when something became of it
	queues     map[string]bool                       // that are registered
	boards     chan struct{}                         // has one when boards changed
}

// session is a connection to the tables of DBOS, under the id of one executor.
type session struct {
	dbos dbos.Context
	// executor is its id; "" executes nothing.
	executor string
	close    func()
}

// control is a run that executes here, and what others say of it.
type control struct {
	cancelled context.CancelFunc
	paused    bool
	board     board
	changed   bool // the board is not written yet
}

// ErrInUse reports that another process has the file of the runs.
var ErrInUse = errors.New("another process runs the chains of this file; stop it first")

// Open opens the file, makes it where there is none, and takes up the runs that a process left.
func Open(ctx context.Context, c Config) (*Runs, error) {
	return open(ctx, c, true)
}

// OpenControl is Open for a process that executes nothing: what it starts, signals or pauses is done
// by the process that executes the runs of the file, within about a second. The Effects are not used.
func OpenControl(ctx context.Context, c Config) (*Runs, error) {
	return open(ctx, c, false)
}

func open(ctx context.Context, c Config, executes bool) (*Runs, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, name := range []string{"DBOS__APPVERSION", "DBOS__VMID"} {
		if os.Getenv(name) != "" {
			return nil, fmt.Errorf("the variable %s is set, which would give runs another version or owner; unset it", name)
		}
	}
	r := &Runs{config: c, control: map[string]*control{}, awaited: map[string]string{}, waiters: map[string]map[chan struct{}]struct{}{}, queues: map[string]bool{}, boards: make(chan struct{}, 1), stop: func() {}}
	s, err := r.connect(ctx, executes)
	if err != nil {
		return nil, err
	}
	r.session.Store(s)
	if executes {
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		r.stop = stop
		r.stopped.Go(func() { r.watch(watching) })
	}
	return r, nil
}

// connect opens the file; the session executes runs as soon as it is returned.
func (r *Runs) connect(ctx context.Context, executes bool) (_ *session, err error) {
	if err := checkFile(ctx, r.config.Path); err != nil {
		return nil, err
	}
	var opened []func()
	undo := func() {
		for i := range opened {
			opened[len(opened)-1-i]()
		}
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	s := &session{}
	if executes {
		owner, err := takeOwnership(ctx, r.config.Path+"-owner")
		if err != nil {
			return nil, err
		}
		s.executor, opened = "gavel", append(opened, func() { _ = owner.Close() })
	}
	file, err := openFile(r.config.Path)
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() { _ = file.Close() })
	// A context that ends cancels its runs for good in DBOS. They end with Close, and go on later.
	s.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{
		AppName: "gavel", SQLiteSystemDB: file, ApplicationVersion: version, ExecutorID: s.executor, EnablePatching: true, Logger: r.config.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", r.config.Path, err)
	}
	opened = append(opened, func() { _ = dbos.Shutdown(s.dbos, closeTimeout) })
	s.close = undo
	if !executes {
		return s, nil
	}
	dbos.RegisterWorkflow(s.dbos, r.interpret, dbos.WithWorkflowName(runName), dbos.WithMaxRecoveryAttempts(math.MaxInt32))
	dbos.RegisterWorkflow(s.dbos, keepSignal, dbos.WithWorkflowName(signalName))
	r.session.Store(s) // what is taken up begins at once
	if err := dbos.Launch(s.dbos); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", r.config.Path, err)
	}
	if err := r.registerQueue(queueName); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", r.config.Path, err)
	}
	return s, nil
}

// openFile opens the file for DBOS. Its own way sets synchronous to NORMAL on one of the connections,
// whatever the address says, and a commit there may be lost with the power.
func openFile(path string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", path, err)
	}
	db, err := sql.Open("sqlite", fileAddress(path, "busy_timeout(5000)", "journal_mode(WAL)", "foreign_keys(ON)", "synchronous(FULL)")+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open the runs in %s: %w", path, err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(4)
	return db, nil
}

func fileAddress(path string, pragmas ...string) string {
	return "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + url.Values{"_pragma": pragmas}.Encode()
}

// checkFile refuses a file that holds something else: DBOS would add its tables to any database.
func checkFile(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder; name a file in it", path)
	}
	db, err := sql.Open("sqlite", fileAddress(path, "query_only(1)", "busy_timeout(2000)"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var tables, ours int
	err = db.QueryRowContext(ctx, "SELECT count(*), count(CASE WHEN name = 'workflow_status' THEN 1 END) FROM sqlite_master WHERE type = 'table'").Scan(&tables, &ours)
	switch {
	case err != nil && strings.Contains(err.Error(), "not a database"):
		return fmt.Errorf("%s does not hold runs of chains: it is no database; name another file", path)
	case err != nil:
		return fmt.Errorf("open the runs in %s: %w", path, err)
	case tables > 0 && ours == 0:
		return fmt.Errorf("%s does not hold runs of chains: it is another database; name another file", path)
	}
	return nil
}

// takeOwnership takes a lock that ends with the process.
func takeOwnership(ctx context.Context, path string) (*sql.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
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

// closeTimeout is how long Close waits for steps under way.
const closeTimeout = 5 * time.Second

// Close stops before the next step of each run. They go on when the file is opened again.
func (r *Runs) Close() {
	r.stop()
	r.stopped.Wait()
	r.session.Load().close()
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
