package chain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/google/uuid"

	"github.com/gavel-mcp/gavel/engine/store"
)

// session is a connection to the tables of DBOS, under the id of one executor. A process whose lease was
// lost goes on with another one.
type session struct {
	dbos dbos.Context
	// executor is its id; "" executes nothing.
	executor string
	lease    *executorLease // nil for a file
	unlease  context.CancelFunc
	owner    *sql.DB // the lock of a file; nil for a database
	file     *sql.DB
	workflow dbos.Workflow[string, string]
	shutting atomic.Bool

	mu       sync.Mutex
	calls    int           // under way, that may not run twice
	draining bool          // no step begins
	idle     chan struct{} // closed when draining and no call is under way
}

// The times of DBOS itself.
const (
	startTimeout    = 20 * time.Second // to connect and to bring its tables up to date
	shutdownTimeout = 5 * time.Second  // for each of its parts to end
)

// connect opens the runs. A session that executes does so from then on.
func (r *Runs) connect(ctx context.Context, executes bool) (err error) {
	s := &session{unlease: func() {}}
	isNew := r.config.Database == nil && !fileExists(r.config.Path)
	defer func() {
		if err != nil {
			s.shut()
			s.release()
			if isNew { // what was missing is missing at the next start, too
				for _, end := range []string{"", "-wal", "-shm"} {
					_ = os.Remove(r.config.Path + end)
				}
			}
		}
	}()
	if r.config.Database == nil {
		if err := checkFile(ctx, r.config.Path); err != nil {
			return err
		}
	}
	switch {
	case !executes:
	case r.config.Database == nil:
		if s.owner, err = takeOwnership(ctx, r.config.Path+"-owner"); err != nil {
			return err
		}
		s.executor = "gavel"
	default:
		s.executor = "gavel-" + uuid.NewString()
		if s.lease, err = takeExecutorLease(ctx, r.config.Leases, s.executor, r.config.Lease); err != nil {
			return err
		}
	}
	blank := r.isBlank()
	if err := r.openTables(ctx, s); err != nil {
		return err
	}
	if err := r.claim(ctx, s, blank); err != nil {
		return err
	}
	previous := r.session.Swap(s)
	defer func() {
		if err != nil {
			r.session.Store(previous)
		}
	}()
	if !executes {
		return nil
	}
	s.workflow = func(ctx dbos.Context, raw string) (string, error) { return r.interpret(ctx, s, raw) }
	dbos.RegisterWorkflow(s.dbos, s.workflow, dbos.WithWorkflowName(runName), dbos.WithMaxRecoveryAttempts(math.MaxInt32))
	dbos.RegisterWorkflow(s.dbos, keepSignal, dbos.WithWorkflowName(signalName))
	dbos.RegisterWorkflow(s.dbos, keepStore, dbos.WithWorkflowName(storeName))
	if err := r.registerQueue(queueName); err != nil {
		return r.failOpen(err)
	}
	if s.owner != nil { // what the last owner of the file left; of a database adopt takes up the runs
		for n := adoptPage; n == adoptPage; {
			if n, err = r.takeUp(ctx, s, s.executor, true); err != nil {
				return r.failOpen(err)
			}
		}
	}
	if s.lease != nil {
		keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
		s.unlease = stop
		go s.lease.keep(keeping)
	}
	if err := r.noteOwners(ctx); err != nil {
		return r.failOpen(err)
	}
	return r.failOpen(dbos.Launch(s.dbos))
}

// openTables connects to DBOS, which makes its tables or brings them up to date.
func (r *Runs) openTables(ctx context.Context, s *session) (err error) {
	c := dbos.Config{
		AppName: "gavel", ApplicationVersion: version, ExecutorID: s.executor, EnablePatching: true, SystemDBStartupTimeout: startTimeout,
		Logger: slog.New(quietHandler{r.config.Logger.Handler(), &s.shutting, r.isCancelled}),
	}
	if d := r.config.Database; d != nil {
		c.DatabaseURL, c.DatabaseSchema = d.address(), d.schema()
	} else {
		if s.file, err = openFile(r.config.Path); err != nil {
			return err
		}
		c.SQLiteSystemDB = s.file
	}
	// A context that ends cancels its runs for good in DBOS. They end with Close, and go on later.
	s.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), c)
	if err == nil && s.file != nil && s.executor != "" {
		_, err = s.file.ExecContext(ctx, indexes)
	}
	return r.failOpen(err)
}

func (r *Runs) failOpen(err error) error {
	switch {
	case err == nil:
		return nil
	case r.config.Database != nil:
		return fmt.Errorf("open the runs in the schema %q of the database: %w", r.config.Database.schema(), err)
	}
	return fmt.Errorf("open the runs in %s: %w", r.config.Path, err)
}

// quietHandler drops what DBOS says when all is well; that names the database with its settings, which may
// hold a password.
type quietHandler struct {
	slog.Handler
	shutting *atomic.Bool
	// isCancelled reports whether somebody cancelled a run.
	isCancelled func(ctx context.Context, run string) bool
}

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Handle also drops that something was not done because the session ends, what is said each time that a queue
// is looked into, that an execution has no outcome because its run was cancelled, and that errFailed is recorded
// as text: each run that fails ends with it, and its output has the result.
func (h quietHandler) Handle(ctx context.Context, record slog.Record) error {
	ends := strings.HasPrefix(record.Message, "Total pending workflows on queue exceeds") // a bound was lowered
	unowned := strings.HasPrefix(record.Message, "Workflow outcome was not recorded")
	asText := strings.HasPrefix(record.Message, "workflow error type cannot be gob-encoded")
	record.Attrs(func(a slog.Attr) bool {
		ends = ends || unowned && a.Key == "workflow_id" && h.isCancelled(ctx, a.Value.String())
		err, isError := a.Value.Any().(error)
		ends = ends || asText && isError && errors.Is(err, errFailed)
		ends = ends || isError && (errors.Is(err, context.Canceled) || strings.Contains(err.Error(), context.Canceled.Error()) ||
			h.shutting.Load() && strings.Contains(err.Error(), "closed")) // the file, or the connections of the database
		return !ends
	})
	if ends {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs), h.shutting, h.isCancelled}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.shutting, h.isCancelled}
}

// enter notes a call that may not run twice; false where no step may begin any more.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.calls++
	}
	return !s.draining
}

// leave notes that the outcome of such a call is recorded.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

func (s *session) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// drain lets no step begin from now on, and waits for the calls that may not run twice.
func (s *session) drain(grace time.Duration) {
	s.mu.Lock()
	s.draining = true
	idle := make(chan struct{})
	if s.calls == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	s.mu.Unlock()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// shut ends all executions where they are. It does not cancel their runs.
func (s *session) shut() {
	s.shutting.Store(true)
	if s.dbos != nil {
		_ = dbos.Shutdown(s.dbos, shutdownTimeout) // what does not end has no connection any more
	}
	if s.file != nil {
		_ = s.file.Close()
	}
}

// release gives the runs to others.
func (s *session) release() {
	s.unlease()
	s.lease.end()
	if s.owner != nil {
		_ = s.owner.Close()
	}
}

// handOver leaves the runs of a session that was shut to others, or to the next process that opens the file: so
// they need not wait for the end of its lease, and it does not count as a failure of the runs.
func (r *Runs) handOver(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var again session
	defer again.shut()
	err := r.openTables(ctx, &again)
	for n := adoptPage; err == nil && n == adoptPage; {
		n, err = r.takeUp(ctx, &again, s.executor, false)
	}
	if err != nil {
		r.config.Logger.Warn("cannot leave the runs to another process; they wait until the lease of this one ends", "error", err)
	}
}

// replace goes on with another session: the runs of this one are others' where its lease is lost, and else
// left to whoever is first.
func (r *Runs) replace(ctx context.Context, s *session, lost bool) {
	if !lost {
		s.drain(r.config.Grace)
	}
	s.shut()
	if !lost {
		r.handOver(s)
	}
	s.release()
	r.mu.Lock()
	clear(r.conflicts)
	r.mu.Unlock()
	for ctx.Err() == nil {
		err := r.connect(ctx, true)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "cannot run chains; trying again", "error", err)
		}
		_, _ = pause(ctx, nil, lookEvery)
	}
}

// countUnderWay says how many runs execute here.
func (r *Runs) countUnderWay() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.control)
}

// confirm returns nil while this execution may go on: begin a step, record what came of one. Where others may
// have taken it up, it waits for the end of the session.
func (x *execution) confirm(ctx context.Context) error {
	_, err := x.session.lease.confirm(ctx)
	if errors.Is(err, errLeaseLost) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// fence returns the context in which this execution writes to the store, which checks the lease once more.
func (x *execution) fence(ctx context.Context) (context.Context, error) {
	lease, err := x.session.lease.confirm(ctx)
	switch {
	case err != nil:
		return ctx, x.confirm(ctx)
	case lease == nil:
		return ctx, nil
	}
	return store.UnderLease(ctx, *lease), nil
}
