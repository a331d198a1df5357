package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// maxRunning limits concurrent tool calls; further calls wait.
const maxRunning = 100

// stdio is the single connection of a process over stdin and stdout.
type stdio struct {
	wire    *Wire
	ctx     context.Context //nolint:containedctx // of the connection: ending it ends all requests
	in      *bufio.Reader
	out     *lineWriter
	session *session
	calls   *calls
	places  chan struct{} // a semaphore: one element for each running tool call
	// Idle goroutines, whose stacks have already grown, receive requests from jobs. idle holds one element for each
	// of them.
	jobs chan func()
	idle chan struct{}
}

// maxIdle limits the goroutines that wait for another request.
const maxIdle = 8

// ServeStdio serves one client over line-delimited JSON-RPC on behalf of p, until in ends, out fails or ctx ends. If
// in ends, requests in flight are answered and pending changes announced first, limited by LastAnswers. If ctx ends,
// they have Grace. ServeStdio returns nil at the end of in, ctx's error if ctx ended first, and otherwise why the
// connection failed.
func (w *Wire) ServeStdio(ctx context.Context, p engine.Principal, in io.Reader, out io.Writer) error {
	if p.ID == "" {
		return errors.New("serve stdio: no principal for the client")
	}
	serveCtx, stop := context.WithCancel(WithCaller(context.WithoutCancel(ctx), p))
	defer stop()
	hurry, hurryUp := context.WithCancelCause(ctx)
	defer hurryUp(nil)
	answers := &lineWriter{out: out, fail: func(err error) { stop(); hurryUp(err) }} // once out fails, no answer can be read
	s := &stdio{
		wire: w, ctx: serveCtx, in: bufio.NewReaderSize(in, 64<<10), out: answers,
		session: w.newSession(false, answers.write), calls: &calls{max: w.cfg.Limits.MaxInFlight, inFlight: map[string]*call{}}, places: make(chan struct{}, maxRunning),
		jobs: make(chan func()), idle: make(chan struct{}, maxIdle),
	}
	var background sync.WaitGroup
	background.Go(func() { s.session.watch.run(serveCtx) })
	lists := w.changingLists(p, nil)
	background.Go(func() { announceLists(serveCtx, lists, nil, answers.write) })
	read := make(chan error, 1)
	go func() { read <- s.run() }() // ends with in; a blocked read lasts until the process exits

	var end error
	select {
	case end = <-read:
	case <-hurry.Done():
	}
	s.session.requester.end()
	answered, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		s.calls.waitForAnswers()
		if hurry.Err() == nil {
			s.session.watch.finish(serveCtx)
		}
		close(answered)
		<-serveCtx.Done()
		s.calls.streams.Wait()
		background.Wait()
	}()
	waitFor(hurry, answered, w.cfg.Limits.LastAnswers, w.cfg.Limits.Grace)
	stop()
	ended := waitFor(hurry, over, 3*w.cfg.Limits.Grace, 3*w.cfg.Limits.Grace)
	switch err := context.Cause(hurry); {
	case ctx.Err() != nil:
		end = ctx.Err()
	case err != nil:
		return errors.Join(end, fmt.Errorf("write to the client: %w", err))
	}
	if !ended {
		end = errors.Join(end, errors.New("serve stdio: requests in flight ignore their cancellation, or the client does not read the answers"))
	}
	return end
}

// waitFor reports whether event occurs within most. If hurry ends first, event must occur within grace after that.
func waitFor(hurry context.Context, event <-chan struct{}, most, grace time.Duration) bool {
	late := time.NewTimer(most)
	defer late.Stop()
	for hurried := hurry.Done(); ; {
		select {
		case <-event:
			return true
		case <-hurried:
			late.Reset(grace)
			hurried = nil
		case <-late.C:
			return false
		}
	}
}

// run reads messages until in ends. A final line without a newline is processed too.
func (s *stdio) run() error {
	for {
		l, err := s.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read from the client: %w", err)
		}
		if l.tooLong > 0 {
			s.refuse(findID(l.text, l.tail), newError(codeInvalidRequest, "too_large",
				fmt.Sprintf("The message has %d bytes; the limit for one line is %d.", l.tooLong, s.wire.cfg.Limits.MaxLine), "Send less; keep large content elsewhere and refer to it."))
		} else if line := bytes.Trim(l.text, " \t\r\n"); len(line) > 0 {
			s.handleLine(line)
		}
		if err != nil {
			return nil
		}
	}
}

// keptBytes is how many bytes are kept from each end of a line that is too long.
const keptBytes = 1 << 10

// rawLine is one line. For a line that is too long, it holds both ends and the total length.
type rawLine struct {
	text, tail []byte
	tooLong    int
}

func (s *stdio) readLine() (rawLine, error) {
	var l rawLine
	for {
		part, err := s.in.ReadSlice('\n')
		switch {
		case l.tooLong > 0:
			l.tooLong += len(part)
			l.tail = append(l.tail, part...)
		case len(l.text)+len(part) > s.wire.cfg.Limits.MaxLine+1:
			whole := append(l.text, part...)
			l = rawLine{text: bytes.Clone(whole[:min(keptBytes, len(whole))]), tail: whole, tooLong: len(whole)}
		default:
			l.text = append(l.text, part...)
		}
		l.tail = l.tail[max(0, len(l.tail)-keptBytes):]
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
}

func (s *stdio) handleLine(line []byte) {
	m, err := parseMessage(line)
	switch {
	case err != nil:
		s.refuse(m.id, err)
	case m.response:
		s.session.requester.deliver(m)
	case m.method == methodCancelled:
		s.calls.cancel(m.cancels)
	case m.id == nil: // the server acts on no other notification
	default:
		s.begin(m)
	}
}

func (s *stdio) begin(m message) {
	ctx, end := context.WithCancel(s.ctx)
	c, err := s.calls.add(m, end)
	if err != nil {
		end()
		s.refuse(m.id, err)
		return
	}
	answer := func() {
		defer end()
		defer c.group.Done()
		if m.method == methodCallTool {
			select {
			case s.places <- struct{}{}:
				defer func() { <-s.places }()
			case <-ctx.Done():
			}
		}
		out := s.wire.answer(&request{session: s.session, ctx: ctx, write: s.out.write}, m)
		if s.calls.remove(c) {
			_ = s.out.write(out.line(m.id, m.method == methodCallTool)) // a failed write ends the connection
		}
	}
	if m.method == methodInitialize { // later requests depend on it, so answer it synchronously
		answer()
		return
	}
	s.dispatch(answer)
}

// dispatch runs a job on an idle goroutine, or on a new one.
func (s *stdio) dispatch(job func()) {
	select {
	case s.jobs <- job:
	default:
		go s.runJobs(job)
	}
}

// runJobs runs a job and then waits for more. It returns if enough goroutines are idle or the connection ends.
func (s *stdio) runJobs(job func()) {
	for {
		job()
		job = nil // release the message that it holds
		select {
		case s.idle <- struct{}{}:
		default:
			return
		}
		select {
		case job = <-s.jobs:
			<-s.idle
		case <-s.ctx.Done():
			return
		}
	}
}

// refuse answers an invalid message. A failed write ends the connection.
func (s *stdio) refuse(id json.RawMessage, err *Error) { _ = s.out.write(err.line(id)) }

// lineWriter is the only writer to stdout. It writes whole lines, one at a time.
type lineWriter struct {
	out  io.Writer
	fail func(error) // called with the first failure

	mu  sync.Mutex
	err error // the first failure; later writes return it
}

func (w *lineWriter) write(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if _, err := w.out.Write(line); err != nil {
		w.err = err
		w.fail(err)
	}
	return w.err
}

// calls holds a connection's unanswered requests by id key.
type calls struct {
	max int
	// answers counts requests that are not answered yet; streams counts those that last until the client cancels
	// them.
	answers, streams sync.WaitGroup

	mu       sync.Mutex
	inFlight map[string]*call
	ending   bool // no further requests are accepted
}

type call struct {
	key       string
	end       context.CancelFunc
	group     *sync.WaitGroup
	cancelled bool // by the client, so it gets no answer
}

// add registers a request. Pings are still accepted when other requests no longer are, because they check whether the
// server is alive.
func (c *calls) add(m message, end context.CancelFunc) (*call, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.max
	if m.method == methodPing {
		most *= 2
	}
	key := idKey(m.id)
	switch {
	case c.ending:
		return nil, newError(codeNotNow, "unavailable", "The server is shutting down.", "Restart it and send the request again.")
	case c.inFlight[key] != nil:
		return nil, invalidRequest("A request with this id is being answered.", "Give every request its own id.")
	case len(c.inFlight) >= most:
		return nil, newError(codeNotNow, "busy", fmt.Sprintf("%d requests are already waiting.", c.max), "Wait for answers before sending more.")
	}
	one := &call{key: key, end: end, group: &c.answers}
	if m.method == methodListen {
		one.group = &c.streams
	}
	one.group.Add(1)
	c.inFlight[key] = one
	return one, nil
}

// cancel ends a request. The protocol requires that it is then not answered.
func (c *calls) cancel(id json.RawMessage) {
	if id == nil || checkID(id) != nil {
		return // no request has this id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.inFlight[idKey(id)]; one != nil {
		one.cancelled = true
		one.end()
	}
}

// remove removes a request just before its answer is written, because a client that reads the answer may reuse the
// id. It reports whether the request must be answered.
func (c *calls) remove(one *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inFlight, one.key)
	return !one.cancelled
}

// waitForAnswers stops accepting requests and waits until all are answered, except streams.
func (c *calls) waitForAnswers() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.answers.Wait()
}
