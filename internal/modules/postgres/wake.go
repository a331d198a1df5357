package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// The pause between two announcements of commits, and before a lost connection is dialled again.
const (
	announceInterval = 10 * time.Millisecond
	listenRetryDelay = time.Second
)

// waker announces the commits of this process and receives the announcements of others. These are hints: commits
// neither wait for them nor fail because of them.
type waker struct {
	s       *Store
	channel string
	// listen configures the listening connection. It is nil if nothing can be received, as behind a proxy that shares
	// sessions.
	listen *pgx.ConnConfig

	ctx       context.Context //nolint:containedctx // of its goroutines, from Open to Close
	end       context.CancelFunc
	committed chan struct{} // capacity 1
	running   sync.WaitGroup

	mu        sync.Mutex
	listeners map[chan struct{}]bool
	unheard   context.CancelFunc // ends the connection; nil while there are no listeners
}

// startWaker starts announcing commits.
func (s *Store) startWaker(listen *pgx.ConnConfig) {
	sum := sha256.Sum256([]byte(s.schema)) // channel names must be short
	w := &waker{
		s: s, channel: pgx.Identifier{"gavel_" + hex.EncodeToString(sum[:8])}.Sanitize(), listen: listen,
		committed: make(chan struct{}, 1), listeners: map[chan struct{}]bool{},
	}
	w.ctx, w.end = context.WithCancel(context.Background())
	s.waker = w
	w.running.Go(w.announce)
}

// stop ends all goroutines of the waker.
func (w *waker) stop() {
	if w != nil {
		w.end()
		w.running.Wait()
	}
}

// requestAnnouncement requests an announcement of a commit.
func (w *waker) requestAnnouncement() {
	select {
	case w.committed <- struct{}{}:
	default: // the pending announcement covers all commits
	}
}

// announce announces commits to the other processes, many at a time. Commits do not notify themselves: NOTIFY holds a
// server-wide lock until the commit is on disk, and fails if a listener sleeps for long.
func (w *waker) announce() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.committed:
		}
		if err := w.notify(); err != nil && w.ctx.Err() == nil {
			w.s.log.Debug("cannot announce commits; other processes see them when they poll", "cause", classify(err))
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(announceInterval):
		}
	}
}

func (w *waker) notify() error {
	ctx, cancel := context.WithTimeout(w.ctx, readTimeout)
	defer cancel()
	conn, err := w.s.writes.Acquire(ctx)
	if err != nil {
		return err //nolint:wrapcheck // logged
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, `BEGIN; SET LOCAL synchronous_commit TO off; NOTIFY `+w.channel+`; COMMIT`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		dropConn(conn, err)
	}
	return err //nolint:wrapcheck // logged
}

// Subscribe implements store.Waker. Behind a proxy the channel never receives a value.
func (s *Store) Subscribe(ctx context.Context) (wake <-chan struct{}, stop func()) {
	c, w := make(chan struct{}, 1), s.waker
	if w == nil || w.listen == nil {
		return c, func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[c] = true
	if w.unheard == nil && w.ctx.Err() == nil {
		var listening context.Context
		listening, w.unheard = context.WithCancel(w.ctx)
		w.running.Go(func() { w.receive(listening) })
	}
	leave := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.listeners, c); len(w.listeners) == 0 && w.unheard != nil {
			w.unheard()
			w.unheard = nil
		}
	}
	forget := context.AfterFunc(ctx, leave)
	return c, func() { forget(); leave() }
}

// receive wakes the listeners until ctx ends.
func (w *waker) receive(ctx context.Context) {
	for {
		if err := w.receiveOnce(ctx); ctx.Err() == nil {
			w.s.log.Debug("lost the connection that listens for commits; connecting again", "cause", classify(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenRetryDelay/2 + rand.N(listenRetryDelay)): //nolint:gosec // jitter
		}
	}
}

// receiveOnce wakes the listeners until the connection ends.
func (w *waker) receiveOnce(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, w.listen)
	if err != nil {
		return err //nolint:wrapcheck // logged
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // nothing depends on it
	}()
	if _, err := conn.Exec(ctx, `LISTEN `+w.channel); err != nil {
		return err //nolint:wrapcheck // logged
	}
	for {
		w.wakeAll() // first for earlier commits
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err //nolint:wrapcheck // logged
		}
	}
}

func (w *waker) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
