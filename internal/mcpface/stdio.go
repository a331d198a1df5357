package mcpface

import (
	"bufio"
	"bytes"
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
)

// ServeStdio serves one client over line-delimited JSON-RPC until in ends or ctx
// does. Requests in flight then have a moment to be answered and are cancelled
// after it. The error is nil at the end of in, ctx's error when that ended
// first, else why the connection failed. One process serves one stdio client.
func (f *Face) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	pending := newPending(f.cfg.MaxInFlight)
	answers := &lineWriter{out: out, pending: pending}
	clean, feed := io.Pipe()
	reader := &lineReader{in: bufio.NewReaderSize(in, 64<<10), max: f.cfg.MaxLine, feed: feed, answers: answers, pending: pending}

	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	stdio := server.NewStdioServer(f.server)
	server.WithQueueSize(queueSize)(stdio)
	server.WithWorkerPoolSize(workers)(stdio)
	stdio.SetErrorLogger(slog.NewLogLogger(f.cfg.Logger.Handler(), slog.LevelDebug))

	served := make(chan error, 1)
	go func() { served <- stdio.Listen(serveCtx, clean, answers) }()
	read := make(chan error, 1)
	go func() { read <- reader.run() }() // ends with in; a blocked read ends with the process

	var end error
	select {
	case end = <-read:
	case <-ctx.Done():
		end = ctx.Err()
	case err := <-served:
		return fmt.Errorf("serve stdio: %w", err)
	}
	pending.drain(grace)
	stop()
	_ = feed.Close() // a pipe's Close returns no error
	if err := <-served; err != nil && !errors.Is(err, context.Canceled) && end == nil {
		end = fmt.Errorf("serve stdio: %w", err)
	}
	if answers.failed() != nil && end == nil {
		end = fmt.Errorf("write to the client: %w", answers.failed())
	}
	return end
}

// lineReader passes on the lines that are sound requests and answers the others
// itself.
type lineReader struct {
	in      *bufio.Reader
	max     int
	feed    io.Writer
	answers *lineWriter
	pending *pending
}

// run reads until the end of in. A last line without a newline counts.
func (r *lineReader) run() error {
	for {
		line, tooLong, err := r.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read from the client: %w", err)
		}
		if tooLong > 0 {
			r.answers.refuse(nil, codeInvalidRequest, "too_large",
				fmt.Sprintf("The message has %d bytes; at most %d are taken in one line.", tooLong, r.max), "Send less; keep large content elsewhere and refer to it.")
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			if werr := r.pass(line); werr != nil {
				return nil //nolint:nilerr // the server is ending and reads no more
			}
		}
		if err != nil {
			return nil
		}
	}
}

// next returns one line without its newline, or how long it was when over max:
// then it was skipped, not kept.
func (r *lineReader) next() (line []byte, tooLong int, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if tooLong > 0 || len(line)+len(part) > r.max+1 {
			tooLong += len(line) + len(part)
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

func (r *lineReader) pass(line []byte) error {
	m, bad := examine(line)
	if bad != nil {
		r.answers.refuse(m.id, bad.code, bad.name, bad.message, bad.hint)
		return nil
	}
	switch {
	case m.method == "":
		if m.response {
			return nil // nothing was asked of this client
		}
	case m.method == "notifications/cancelled":
		r.pending.cancel(m.cancels)
	case m.id != nil:
		err := r.pending.add(string(m.id))
		switch {
		case errors.Is(err, errBusy):
			r.answers.refuse(m.id, codeServerBusy, "busy", fmt.Sprintf("%d requests are waiting already.", r.pending.max), "Wait for answers before sending more.")
			return nil
		case errors.Is(err, errSameID):
			r.answers.refuse(m.id, codeInvalidRequest, "invalid_request", "A request with this id is being answered.", "Give every request its own id.")
			return nil
		}
	}
	if bytes.IndexByte(line, '\n') >= 0 || bytes.IndexByte(line, '\r') >= 0 {
		line = bytes.ReplaceAll(bytes.ReplaceAll(line, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
	}
	_, err := r.feed.Write(append(bytes.Clone(line), '\n'))
	return err
}
