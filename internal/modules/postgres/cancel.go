package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// cancelDelay is the time that a server has to end a statement that it was asked to cancel.
	cancelDelay = time.Second
	// signalDelay is the time for the server's signal to reach the session. The next statement there must not receive it.
	signalDelay = 100 * time.Millisecond
)

// cancelOnServer makes the server cancel a statement at its deadline, and waits for the server's response. A server
// that waits for a lock does not notice that its client has left, and by default pgx sends the cancel request only in
// the background. The server could then still commit a write that was reported as failed.
func cancelOnServer(cfg *pgxpool.Config) *pgxpool.Config {
	cfg = cfg.Copy()
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &canceller{conn: conn}
	}
	return cfg
}

// canceller sends the cancel request of a statement. Unlike pgconn.CancelRequestContextWatcherHandler, it never
// closes the request's connection before the server does. PgBouncer 1.18 ends with a fatal error if a client
// leaves while its cancel request is being forwarded. Every other user of that proxy would then be disconnected.
type canceller struct {
	conn *pgconn.PgConn
	done chan struct{}
}

// HandleCancel sends the request in the background.
func (c *canceller) HandleCancel(canceled context.Context) {
	deadline := time.Now().Add(cancelDelay)
	_ = c.conn.Conn().SetDeadline(deadline)
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		ctx, stop := context.WithDeadline(context.WithoutCancel(canceled), deadline)
		defer stop()
		_ = c.conn.CancelRequest(ctx) // if it fails, the deadline ends the statement
		<-time.After(signalDelay)     // the server does not report that the session received the signal
	}()
}

// HandleUnwatchAfterCancel waits for the end of the request.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.done
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
