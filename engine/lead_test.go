package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// lapsing is a store whose last lease can end early, as if its owner had slept.
type lapsing struct {
	*memory.Store
	mu     sync.Mutex
	last   store.Lease
	lapses bool // before the next commits
}

func (s *lapsing) Commit(ctx context.Context, c store.Commit) error {
	if s.lapses {
		_ = s.EndLease(ctx, s.last)
	}
	return s.Store.Commit(ctx, c)
}

func (s *lapsing) TakeLease(ctx context.Context, name, owner string, d time.Duration) (store.Lease, error) {
	l, err := s.Store.TakeLease(ctx, name, owner, d)
	if err == nil {
		s.mu.Lock()
		s.last = l
		s.mu.Unlock()
	}
	return l, err
}

func (s *lapsing) lapse(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.Number == 0 {
		return // no lease is held
	}
	if err := s.EndLease(context.Background(), s.last); err != nil {
		t.Error(err)
	}
}

const job = "a job"

// Only one of two processes does a job at a time; the other one waits as long as it wants.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.New()
		a, b := newBenchOn(t, db), newBenchOn(t, db)
		err := a.Lead(t.Context(), job, 0, func(ctx context.Context) error {
			if l := store.LeaseOf(ctx); l == nil || l.Name != job {
				t.Errorf("the lease of what is done is %+v", l)
			}
			for _, e := range []*bench{a, b} {
				if err := e.Lead(ctx, job, 0, func(context.Context) error { t.Error("done twice"); return nil }); !errors.Is(err, store.ErrLeaseTaken) {
					t.Errorf("the same job: %v", err)
				}
			}
			time.Sleep(10 * time.Minute) //nolint:forbidigo // in synctest time, and far beyond the lease
			if err := b.Lead(ctx, job, time.Second, nil); !errors.Is(err, store.ErrLeaseTaken) {
				t.Errorf("the same job, ten minutes later: %v", err)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		if store.LeaseOf(t.Context()) != nil {
			t.Error("a lease of nothing")
		}
		failed := errors.New("the job failed")
		if err := b.Lead(t.Context(), job, 0, func(context.Context) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("given back: %v", err)
		}

		// After a process is killed, another one waits until the lease ends.
		if _, err := db.TakeLease(t.Context(), job, "killed", 30*time.Second); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := a.Lead(t.Context(), job, time.Minute, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited < 30*time.Second || waited > 31*time.Second {
			t.Errorf("waited %s", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := db.TakeLease(t.Context(), job, "killed", time.Hour); err != nil {
			t.Fatal(err)
		}
		wantCode(t, a.Lead(ctx, job, time.Minute, nil), engine.CodeCancelled)
	})
}

// A process that lost a lease stops, whoever has it now.
func TestLeadEndsWithTheLease(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, s *lapsing){
		"taken by another": func(t *testing.T, s *lapsing) {
			if _, err := s.Store.TakeLease(t.Context(), job, "another", time.Hour); err != nil {
				t.Error(err)
			}
		},
		"taken by nobody": func(*testing.T, *lapsing) {},
		"the store is gone": func(_ *testing.T, s *lapsing) {
			_ = s.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &lapsing{Store: memory.New()}
				err := newBenchOn(t, db).Lead(t.Context(), job, 0, func(ctx context.Context) error {
					db.lapse(t)
					then(t, db)
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Minute):
						t.Error("it goes on")
						return nil
					}
				})
				if !errors.Is(err, store.ErrLeaseLost) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Due work is written by one process, and never by one whose lease has ended.
func TestDueWorkIsDoneByOneProcess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		job  string
		open func(t *testing.T, db store.Store) (*bench, string)
		do   func(b *bench) (int, error)
	}{
		"reviews": {"expire reviews", func(t *testing.T, db store.Store) (*bench, string) {
			b := newReviewBenchOn(t, db, nil)
			b.define(operator, guardedFlow)
			id := b.start(agent, "guarded", `{}`).ID
			b.parked(agent, id, "release", `{"why":"a"}`)
			return b, id
		}, func(b *bench) (int, error) { return b.ExpireReviews(t.Context()) }},
		"calls": {"settle calls", func(t *testing.T, db store.Store) (*bench, string) {
			b := newCallBenchOn(t, db)
			id := b.approved()
			b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
			return b, id
		}, func(b *bench) (int, error) { return b.SettleOverdue(t.Context()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &lapsing{Store: memory.New()}
			b, id := tt.open(t, db)
			if n, err := tt.do(b); n != 0 || err != nil || db.last.Number != 0 {
				t.Errorf("nothing is due: %d, %v, the lease %+v", n, err, db.last)
			}
			b.pass(365 * day)
			before := b.load(id).Seq
			held, err := db.Store.TakeLease(t.Context(), tt.job, "another process", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := tt.do(b); n != 0 || err != nil || b.load(id).Seq != before {
				t.Errorf("while another process does it: %d, %v", n, err)
			}
			if err := db.EndLease(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			db.lapses = true
			if n, err := tt.do(b); n != 0 || err != nil || b.load(id).Seq != before {
				t.Errorf("when its lease has ended: %d, %v, event %d after %d", n, err, b.load(id).Seq, before)
			}
			db.lapses = false
			if n, err := tt.do(b); n != 1 || err != nil || b.load(id).Seq != before+1 {
				t.Errorf("at last: %d, %v, event %d after %d", n, err, b.load(id).Seq, before)
			}
		})
	}
}
