package mcpwire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

const (
	// DefaultMaxLine is how long one message may be, in bytes: enough for the largest
	// document the engine takes, and for refusing larger ones politely.
	DefaultMaxLine = 4 << 20
	// DefaultMaxInFlight is how many requests may wait for an answer.
	DefaultMaxInFlight = 2000
	mostInFlight       = 5000
	// mostRunning is how many tools run at once; other calls wait in line.
	mostRunning = 100

	// defaultGrace leaves a client that waits two seconds before it kills time to spare.
	defaultGrace = 700 * time.Millisecond
)

// stdio is the one connection of a process over stdin and stdout.
type stdio struct {
	wire    *Wire
	ctx     context.Context //nolint:containedctx // of the connection: requests end with it
	in      *bufio.Reader
	out     *lineWriter
	session *session
	calls   *calls
	places  chan struct{} // has one element for each tool that runs
}

// ServeStdio serves one client over line-delimited JSON-RPC, on behalf of p, until in ends,
// out fails or ctx ends. Requests in flight then have a moment to be answered and are
// cancelled after it. The error is nil at the end of in, ctx's error when that ended first,
// else why the connection failed.
func (w *Wire) ServeStdio(ctx context.Context, p engine.Principal, in io.Reader, out io.Writer) error {
	if p.ID == "" {
		return errors.New("serve stdio: no principal, which says who the client is")
	}
	serveCtx, stop := context.WithCancel(WithCaller(context.WithoutCancel(ctx), p))
	defer stop()
	answers := &lineWriter{out: out, broken: make(chan struct{})}
	s := &stdio{
		wire: w, ctx: serveCtx, in: bufio.NewReaderSize(in, 64<<10), out: answers,
		session: w.newSession(false, answers.write), calls: newCalls(w.cfg.MaxInFlight), places: make(chan struct{}, mostRunning),
	}
	var background sync.WaitGroup
	background.Go(func() { s.session.watch.run(serveCtx) })
	changed := w.cfg.Tools.Changed(p)
	background.Go(func() { w.announceTools(serveCtx, changed, nil, answers.write) })
	read := make(chan error, 1)
	go func() { read <- s.run() }() // ends with in; a blocked read ends with the process

	var end error
	select {
	case end = <-read:
	case <-ctx.Done():
		end = ctx.Err()
	case <-answers.broken: // nobody reads what is answered
	}
	s.session.asks.end()
	waitFor(w.cfg.Grace, s.calls.idle(false), answers.broken)
	stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		<-s.calls.idle(true)
		background.Wait()
	}()
	if !waitFor(3*w.cfg.Grace, over, nil) && answers.failure() == nil {
		end = errors.Join(end, errors.New("serve stdio: requests in flight ignore that they are cancelled, or the client does not read the answers"))
	}
	if err := answers.failure(); err != nil {
		end = errors.Join(end, fmt.Errorf("write to the client: %w", err))
	}
	return end
}

// waitFor waits for one of two events, and is false if neither came in time.
func waitFor(most time.Duration, event, other <-chan struct{}) bool {
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-event:
	case <-other:
	case <-late.C:
		return false
	}
	return true
}

// run reads until the end of in. A last line without a newline counts.
func (s *stdio) run() error {
	for {
		l, err := s.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read from the client: %w", err)
		}
		if l.tooLong > 0 {
			s.refuse(findID(l.text, l.tail), newError(codeInvalidRequest, "too_large",
				fmt.Sprintf("The message has %d bytes; at most %d are taken in one line.", l.tooLong, s.wire.cfg.MaxLine), "Send less; keep large content elsewhere and refer to it."))
		} else if line := bytes.Trim(l.text, " \t\r\n"); len(line) > 0 {
			s.take(line)
		}
		if err != nil {
			return nil
		}
	}
}

// edge is how much is kept of either end of a line that is too long.
const edge = 1 << 10

// rawLine is one line; of one that is too long only its ends, and its length.
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
		case len(l.text)+len(part) > s.wire.cfg.MaxLine+1:
			whole := append(l.text, part...)
			l = rawLine{text: bytes.Clone(whole[:min(edge, len(whole))]), tail: whole, tooLong: len(whole)}
		default:
			l.text = append(l.text, part...)
		}
		l.tail = l.tail[max(0, len(l.tail)-edge):]
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
}

// take begins to answer one line.
func (s *stdio) take(line []byte) {
	m, err := parseMessage(line)
	switch {
	case err != nil:
		s.refuse(m.id, err)
	case m.response:
		s.session.asks.take(m)
	case m.method == methodCancelled:
		s.calls.cancel(m.cancels)
	case m.id == nil: // no other notification says anything to this server
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
		defer s.calls.close(c)
		if m.method == methodCallTool {
			select {
			case s.places <- struct{}{}:
				defer func() { <-s.places }()
			case <-ctx.Done():
			}
		}
		out := s.wire.answer(&request{session: s.session, ctx: ctx, write: s.out.write}, m)
		if s.calls.answer(c) {
			_ = s.out.write(out.line(m.id, m.method == methodCallTool)) // the connection ends for its failure
		}
	}
	if m.method == methodInitialize { // what follows must find it done
		answer()
		return
	}
	go answer()
}

// refuse answers a message that is none. Its failure ends the connection.
func (s *stdio) refuse(id json.RawMessage, err *Error) { _ = s.out.write(err.line(id)) }

// lineWriter is the one writer of stdout: whole lines, one at a time.
type lineWriter struct {
	out    io.Writer
	mu     sync.Mutex
	broken chan struct{} // closed after the first failure
	err    error         // that failure; read after broken
}

func (w *lineWriter) write(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure() != nil {
		return w.err
	}
	if _, err := w.out.Write(line); err != nil {
		w.err = err
		close(w.broken)
	}
	return w.err
}

// failure is why nothing can be written any more, nil while all is well.
func (w *lineWriter) failure() error {
	select {
	case <-w.broken:
		return w.err
	default:
		return nil
	}
}

// calls are the requests of a connection that are not answered yet, by the key of their id.
type calls struct {
	max int

	mu       sync.Mutex
	inFlight map[string]*call
	open     int    // whose answer is not written yet
	streams  int    // of them, those that last until the client cancels them
	ending   bool   // no call is added any more
	waits    []wait // for the last answer
}

// call is one request in flight.
type call struct {
	key       string
	end       context.CancelFunc
	stream    bool
	cancelled bool // by the client: it is not answered
}

// wait waits until every call is answered; streams count if all is true.
type wait struct {
	all  bool
	over chan struct{}
}

func newCalls(most int) *calls { return &calls{max: most, inFlight: map[string]*call{}} }

// add takes a request in. Pings are taken when other requests no longer are: they ask
// whether the server is alive.
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
		return nil, newError(codeNotNow, "unavailable", "The server is ending.", "Start it again and send the request anew.")
	case c.inFlight[key] != nil:
		return nil, invalidRequest("A request with this id is being answered.", "Give every request its own id.")
	case len(c.inFlight) >= most:
		return nil, newError(codeNotNow, "busy", fmt.Sprintf("%d requests are waiting already.", c.max), "Wait for answers before sending more.")
	}
	one := &call{key: key, end: end, stream: m.method == methodListen}
	c.inFlight[key] = one
	c.open++
	if one.stream {
		c.streams++
	}
	return one, nil
}

// cancel ends a request. By the protocol it should not be answered any more.
func (c *calls) cancel(id json.RawMessage) {
	if id == nil || checkID(id) != nil {
		return // no request has such an id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.inFlight[idKey(id)]; one != nil {
		one.cancelled = true
		one.end()
	}
}

// answer takes a request out whose answer is about to be written: a client that reads it may
// use the id again. It is false for one that is not to be answered.
func (c *calls) answer(one *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inFlight, one.key)
	return !one.cancelled
}

// close is called once the answer is written.
func (c *calls) close(one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if one.stream {
		c.streams--
	}
	c.wake()
}

// idle adds no call any more, and returns a channel that is closed once all are answered.
func (c *calls) idle(all bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	w := wait{all, make(chan struct{})}
	c.waits = append(c.waits, w)
	c.wake()
	return w.over
}

func (c *calls) wake() {
	c.waits = slices.DeleteFunc(c.waits, func(w wait) bool {
		over := c.open == 0 || !w.all && c.open == c.streams
		if over {
			close(w.over)
		}
		return over
	})
}
