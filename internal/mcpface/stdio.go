package mcpface

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/mark3labs/mcp-go/server"
)

const (
	// DefaultMaxLine is how long one message on stdin may be, in bytes: room for
	// the largest document the engine takes, and for refusing larger ones politely.
	DefaultMaxLine = 4 << 20
	// DefaultMaxInFlight is how many requests may wait for an answer.
	DefaultMaxInFlight = 2000
	// mostInFlight stays below the queue of mcp-go: a call that finds the queue
	// full runs on its read loop, which then reads nothing more (measured: 106
	// waiting calls at its defaults stop the server for good).
	mostInFlight = queueSize / 2
	queueSize    = 10000 // the most that mcp-go takes
	workers      = 100   // likewise

	// grace is how long requests in flight may still be answered after the client
	// closed stdin or the program was told to stop.
	grace = 700 * time.Millisecond
	// linger is how long cancelled requests may take to end after it.
	linger = 150 * time.Millisecond
)

// ServeStdio serves one client over line-delimited JSON-RPC until in ends, out
// fails or ctx ends. Requests in flight then have a moment to be answered and are
// cancelled after it: ServeStdio returns within a second, whatever they do. The
// error is nil at the end of in, ctx's error when that ended first, else why the
// connection failed. One process serves one stdio client.
func (f *Face) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	if f.cfg.Principal.ID == "" {
		return errors.New("serve stdio: mcpface: config has no Principal, which says who the client is")
	}
	serveCtx, stop := context.WithCancel(withCaller(context.WithoutCancel(ctx), f.cfg.Principal))
	defer stop()
	pending := newPending(f.cfg.MaxInFlight)
	answers := newLineWriter(out, pending)
	client := &session{asks: newAsker(answers.write), watch: newWatch(f, answers.write)}
	clean, feed := io.Pipe()
	reader := &lineReader{
		in: bufio.NewReaderSize(in, 64<<10), max: f.cfg.MaxLine, feed: feed,
		answers: answers, pending: pending, asks: client.asks, ended: serveCtx.Done(),
		tools: f.tools, role: f.cfg.Principal.Role,
	}
	stdio := server.NewStdioServer(f.server)
	server.WithQueueSize(queueSize)(stdio)
	server.WithWorkerPoolSize(workers)(stdio)
	stdio.SetContextFunc(f.join(client))
	stdio.SetErrorLogger(slog.NewLogLogger(f.cfg.Logger.Handler(), slog.LevelDebug))

	served := make(chan error, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		client.watch.run(serveCtx)
	}()
	go func() {
		err := stdio.Listen(serveCtx, clean, answers)
		stop()
		<-watched
		served <- err
	}()
	read := make(chan error, 1)
	go func() { read <- reader.run() }() // ends with in; a blocked read ends with the process

	var end error
	select {
	case end = <-read:
		client.asks.end()
		pending.drain(f.grace)
	case <-ctx.Done():
		end = ctx.Err()
		client.asks.end()
		pending.drain(f.grace)
	case <-answers.broken: // nobody hears what is answered
	case err := <-served:
		return fmt.Errorf("serve stdio: %w", err)
	}
	stop()
	_ = feed.Close() // a pipe's Close returns no error
	return errors.Join(end, lastWords(served, answers, f.linger))
}

// lastWords waits a moment for the server's end and tells what went wrong in it.
func lastWords(served <-chan error, answers *lineWriter, patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-served:
		if failed := answers.failure(); failed != nil {
			return fmt.Errorf("write to the client: %w", failed)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("serve stdio: %w", err)
		}
		return nil
	case <-late.C:
		if failed := answers.failure(); failed != nil {
			return fmt.Errorf("write to the client: %w", failed)
		}
		return fmt.Errorf("serve stdio: %w", errLate)
	}
}

// errLate says that a request did not end when it was cancelled, or that the
// client does not read the answers.
var errLate = errors.New("requests in flight did not end")
