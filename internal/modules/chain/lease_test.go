package chain

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// fakeLeases holds a single lease, with the rules of a store.
type fakeLeases struct {
	mu    sync.Mutex
	lease store.Lease
	away  error
}

func (f *fakeLeases) TakeLease(_ context.Context, name, owner string, d time.Duration) (store.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := !time.Now().Before(f.lease.Ends)
	switch {
	case f.away != nil && owner == "a":
		return store.Lease{}, f.away
	case !ended && f.lease.Owner != owner:
		return f.lease, store.ErrLeaseTaken
	case f.lease.Number == 0:
		f.lease.Number = time.Now().UnixNano()
	case ended:
		f.lease.Number++
	}
	f.lease = store.Lease{Name: name, Owner: owner, Number: f.lease.Number, Ends: time.Now().Add(d)}
	return f.lease, nil
}

func (f *fakeLeases) EndLease(_ context.Context, l store.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Number == f.lease.Number {
		f.lease.Ends = time.Time{}
	}
	return nil
}

func (f *fakeLeases) DropLeases(_ context.Context, prefix string, ago time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasPrefix(f.lease.Name, prefix) && f.lease.Ends.Before(time.Now().Add(-ago)) {
		f.lease = store.Lease{}
	}
	return nil
}

func (f *fakeLeases) setAway(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = err
}

// TestExecutorLease: once the lease may have ended, nothing continues until it is known whether another
// process held it.
func TestExecutorLease(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(f *fakeLeases)
		want      error
	}{
		"nobody took it":     {func(*fakeLeases) {}, nil},
		"another one has it": {func(f *fakeLeases) { _, _ = f.TakeLease(t.Context(), "x", "b", time.Hour) }, errLeaseLost},
		"another one had it": {func(f *fakeLeases) {
			l, _ := f.TakeLease(t.Context(), "x", "b", time.Hour)
			_ = f.EndLease(t.Context(), l)
		}, errLeaseLost},
		"another one had it, and it was forgotten": {func(f *fakeLeases) {
			l, _ := f.TakeLease(t.Context(), "x", "b", time.Hour)
			_ = f.EndLease(t.Context(), l)
			_ = f.DropLeases(t.Context(), "x", 0)
		}, errLeaseLost},
		"another one let it run out": {func(f *fakeLeases) { _, _ = f.TakeLease(t.Context(), "x", "b", time.Millisecond) }, errLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeLeases{}
				l, err := takeExecutorLease(t.Context(), f, "a", 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go l.keep(ctx)
				f.setAway(errors.New("away"))
				time.Sleep(8 * time.Second) //nolint:forbidigo // the fake clock of synctest
				if lease, err := l.confirm(ctx); err != nil || lease.Number != l.lease.Number {
					t.Errorf("within its time: %+v, %v", lease, err)
				}
				time.Sleep(3 * time.Second) //nolint:forbidigo // the fake clock of synctest
				tc.meanwhile(f)
				done := make(chan error, 1)
				go func() { _, err := l.confirm(ctx); done <- err }()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("it is not known who has it, and it said %v", err)
				default:
				}
				time.Sleep(time.Second) //nolint:forbidigo // the fake clock of synctest
				f.setAway(nil)
				if err := <-done; !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}

// TestNoLease: the owner of a file can always continue.
func TestNoLease(t *testing.T) {
	var l *executorLease
	if _, err := l.confirm(t.Context()); err != nil {
		t.Error(err)
	}
	l.end()
}
