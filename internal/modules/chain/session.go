package chain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/google/uuid"

	"github.com/gavel-mcp/gavel/engine/store"
)

// session is a connection to the DBOS tables under one executor id. A process that loses its lease
// continues with a new session.
type session struct {
	dbos dbos.Context
	// executor is its id; "" means that it executes nothing.
	executor string
	lease    *executorLease // nil for a file
	unlease  context.CancelFunc
	owner    *sql.DB // the lock of a file; nil for a database
	file     *sql.DB
	workflow dbos.Workflow[string, string]
	shutting atomic.Bool

	calls    sync.WaitGroup // non-repeatable calls in progress
	mu       sync.Mutex
	draining bool // no step may begin
}

// The timeouts of DBOS.
const (
	startTimeout    = 20 * time.Second // to connect and to upgrade its tables
	shutdownTimeout = 5 * time.Second  // for each of its components to stop
)

// connect opens the runs. If executes, the session starts executing them.
func (r *Runs) connect(ctx context.Context, executes bool) (err error) {
	s := &session{unlease: func() {}}
	isNew := r.config.Database == nil && !fileExists(r.config.Path)
	defer func() {
		if err != nil {
			s.shut()
			s.release()
			if isNew { // removes the new file, so that the next start finds the same situation
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
		if s.owner, err = takeOwnership(ctx, r.config.Path+"-owner"); errors.Is(err, ErrInUse) {
			return err
		} else if err != nil {
			return r.failOpen(err)
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
	if s.owner != nil { // left by the file's previous owner; for a database, adopt takes them up
		for n := adoptPage; n == adoptPage; {
			if n, err = r.requeueFrom(ctx, s, s.executor, true); err != nil {
				return r.failOpen(err)
			}
		}
	}
	if s.lease != nil {
		keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
		s.unlease = stop
		go s.lease.keep(keeping)
	}
	return r.failOpen(dbos.Launch(s.dbos))
}

// openTables connects DBOS, which creates or upgrades its tables.
func (r *Runs) openTables(ctx context.Context, s *session) (err error) {
	c := dbos.Config{
		AppName: "gavel", ApplicationVersion: version, ExecutorID: s.executor, EnablePatching: true, SystemDBStartupTimeout: startTimeout,
		SystemDBIdleTransactionTimeout: r.config.Lease, // limits how long a process that is suspended in a transaction can block a run
		Logger:                         slog.New(quietHandler{r.config.Logger.Handler(), &s.shutting}),
	}
	if d := r.config.Database; d != nil {
		c.DatabaseURL, c.DatabaseSchema = d.address(), d.schema()
	} else {
		if s.file, err = openFile(r.config.Path); err != nil {
			return r.failOpen(err)
		}
		c.SQLiteSystemDB = s.file
	}
	// When its context ends, DBOS cancels the runs permanently. Close stops them instead, and they continue
	// later.
	s.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), c)
	if err == nil && s.file != nil && s.executor != "" {
		_, err = s.file.ExecContext(ctx, indexes)
	}
	return r.failOpen(err)
}

func (r *Runs) failOpen(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("open the runs in %s: %w", r.where(), err)
}

// quietHandler passes on only errors of DBOS. Its other messages contain the address and settings of the
// database, which may include a password, and repeat what gavel reports itself.
type quietHandler struct {
	slog.Handler
	shutting *atomic.Bool
}

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && !h.shutting.Load() && h.Handler.Enabled(ctx, level)
}

// Handle drops errors that were caused by a cancelled context.
func (h quietHandler) Handle(ctx context.Context, record slog.Record) error {
	ends := false
	record.Attrs(func(a slog.Attr) bool {
		err, isError := a.Value.Any().(error)
		ends = ends || isError && errors.Is(err, context.Canceled)
		return !ends
	})
	if ends {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs), h.shutting}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.shutting}
}

// enter registers a non-repeatable call until calls.Done is called. It returns false if no step may begin.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.calls.Add(1)
	}
	return !s.draining
}

func (s *session) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// drain prevents further steps from beginning, and waits up to grace for non-repeatable calls.
func (s *session) drain(grace time.Duration) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(idle)
	}()
	_, _ = pause(context.Background(), idle, grace)
}

// shut stops all executions where they are. It does not cancel their runs.
func (s *session) shut() {
	s.shutting.Store(true)
	if s.dbos != nil {
		_ = dbos.Shutdown(s.dbos, shutdownTimeout) // anything still running has lost its connection
	}
	if s.file != nil {
		_ = s.file.Close()
	}
}

// release gives up ownership of the runs.
func (s *session) release() {
	s.unlease()
	s.lease.end()
	if s.owner != nil {
		_ = s.owner.Close()
	}
}

// handOver re-enqueues the runs of a session that was shut, for other processes or the next one that opens
// the file. They then need not wait until the lease expires, and this does not count as a crash.
func (r *Runs) handOver(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var again session
	defer again.shut()
	err := r.openTables(ctx, &again)
	for n := adoptPage; err == nil && n == adoptPage; {
		n, err = r.requeueFrom(ctx, &again, s.executor, false)
	}
	if err != nil {
		r.config.Logger.Warn("cannot hand the runs over to another process; they wait until the lease of this process ends", "error", err)
	}
}

// replace opens a new session after the lease was lost and others have taken over the runs.
func (r *Runs) replace(ctx context.Context, s *session) {
	s.shut()
	s.release()
	for ctx.Err() == nil {
		err := r.connect(ctx, true)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "cannot run chains; trying again", "error", err)
		}
		_, _ = pause(ctx, nil, jobPoll)
	}
}

// countUnderWay returns how many runs execute here.
func (r *Runs) countUnderWay() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.control)
}

// confirm returns nil if this execution may begin a step or record an outcome. If another process may have
// taken over, it waits until the session ends.
func (x *execution) confirm(ctx context.Context) error {
	_, err := x.session.lease.confirm(ctx)
	if errors.Is(err, errLeaseLost) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// fence returns the context with which this execution writes to the store; the store then checks the lease
// again.
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
