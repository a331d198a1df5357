package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/gavel-mcp/gavel/internal/process"
)

// How long gavel waits for a program to end: after closing its input, after SIGTERM, and for child processes that still
// hold its output.
const (
	closeGrace     = 2 * time.Second // as in both official SDKs
	terminateGrace = 2 * time.Second
	pipeGrace      = time.Second
)

// link carries the messages of one session.
type link interface {
	// send sends a message. Responses arrive at the session's receive, over HTTP before send returns. The error is a
	// *linkError, or ctx's.
	send(ctx context.Context, m message) error
	// reply sends the response to a request of the upstream.
	reply(ctx context.Context, line []byte) error
	// gone is closed when no further message can arrive.
	gone() <-chan struct{}
	// cause returns why the link is gone.
	cause() *linkError
	// close ends the session and waits until no process is left.
	close()
}

// linkError explains why a message or a session failed.
type linkError struct {
	code       Code
	text       string // for callers, without values
	mayHaveRun bool
	// forgotten reports that the upstream no longer knows the session, and has not acted on the request.
	forgotten  bool
	retryAfter time.Duration
	err        error
}

func (e *linkError) Error() string { return e.text }

func (e *linkError) Unwrap() error { return e.err }

// receiver receives the messages of an upstream.
type receiver interface {
	receive(f frame)
	// receiveFailure receives the reason why an answer cannot be passed on. id is that of its request, or "".
	receiveFailure(id string, failure *linkError)
}

// stdioLink is a program that speaks MCP over its pipes.
type stdioLink struct {
	cmd    *exec.Cmd
	kill   context.CancelFunc
	in     *os.File
	queue  chan []byte
	ended  <-chan struct{} // closed when the program has ended
	done   chan struct{}   // closed when, in addition, all its output was read
	closed sync.Once
	stderr *tail
}

// startProgram starts a server's program, which runs until the link is closed.
func startProgram(s *server, to receiver) (*stdioLink, error) {
	ctx, kill := context.WithCancel(context.Background())
	l, err := s.startIn(ctx, kill, to)
	if err != nil {
		kill()
		return nil, &linkError{code: CodeUnavailable, text: process.Explain(err), err: err}
	}
	return l, nil
}

func (s *server) startIn(ctx context.Context, kill context.CancelFunc, to receiver) (*stdioLink, error) {
	folder := s.Directory
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(s.dir, folder)
	}
	program := s.Command[0]
	if strings.ContainsRune(filepath.ToSlash(program), '/') && !filepath.IsAbs(program) {
		program = filepath.Join(folder, program)
	}
	cmd, err := process.Command(ctx, program, s.Command, process.Environment(s.Environment, s.Set, s.manager.opts.LookupEnv))
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.WaitDelay = folder, pipeGrace
	var files []*os.File // alternately gavel's end and the program's end
	defer func() {
		for i := 0; i < len(files); i++ {
			if i%2 == 1 || err != nil {
				files[i].Close()
			}
		}
	}()
	for i := range 3 {
		r, w, pipeErr := os.Pipe()
		if err = pipeErr; err != nil {
			return nil, err
		}
		if i == 0 {
			r, w = w, r
		}
		files = append(files, r, w)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[1], files[3], files[5]
	ended, err := process.Start(cmd, s.manager.watcher)
	if err != nil {
		return nil, err
	}
	l := &stdioLink{cmd: cmd, kill: kill, in: files[0], queue: make(chan []byte), ended: ended, done: make(chan struct{}), stderr: &tail{secrets: s.secrets}}
	go l.write()
	go l.read(files[2], files[4], to)
	return l, nil
}

// write is the only writer, so a program that does not read blocks only its own link.
func (l *stdioLink) write() {
	for {
		select {
		case line := <-l.queue:
			if _, err := l.in.Write(append(line, '\n')); err != nil {
				return
			}
		case <-l.ended:
			return
		}
	}
}

// read reads until the program has ended. Its child processes may hold the pipes longer.
func (l *stdioLink) read(out, diagnostics *os.File, to receiver) {
	outDone, errDone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(errDone)
		buf := make([]byte, 4<<10)
		for {
			n, err := diagnostics.Read(buf)
			l.stderr.write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(outDone)
		l.readFrames(out, to)
		select {
		case <-l.ended:
		case <-time.After(closeGrace): // the program has closed its output but keeps running
			l.kill()
		}
	}()
	<-l.ended
	wait := time.After(pipeGrace)
	for _, done := range []chan struct{}{outDone, errDone} {
		select {
		case <-done:
		case <-wait:
		}
	}
	out.Close()
	diagnostics.Close()
	l.in.Close()
	<-outDone
	<-errDone
	close(l.done)
}

func (l *stdioLink) readFrames(out *os.File, to receiver) {
	lines := lineReader{bufio.NewReaderSize(out, 64<<10)}
	var buf []byte
	for {
		line, err := lines.next(buf)
		switch {
		case errors.Is(err, errTooLong):
			to.receiveFailure(guessID(line), errAnswerTooLong)
			continue
		case err != nil:
			return
		}
		if cap(line) <= 1<<20 {
			buf = line
		}
		// A frame must not share memory with the buffer, because its result is passed on.
		if f, err := parseFrame([]byte(string(line))); err == nil {
			to.receive(f)
		} else if id, failure := explainUnreadable(line, err); failure != nil {
			to.receiveFailure(id, failure)
		}
	}
}

func (l *stdioLink) send(ctx context.Context, m message) error { return l.reply(ctx, m.encode()) }

func (l *stdioLink) reply(ctx context.Context, line []byte) error {
	select {
	case l.queue <- line:
		return nil
	case <-l.ended:
		failure := l.cause()
		failure.mayHaveRun = false
		return failure
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *stdioLink) gone() <-chan struct{} { return l.done }

func (l *stdioLink) cause() *linkError {
	return &linkError{code: CodeLost, text: "the server's program has ended", mayHaveRun: true, err: fmt.Errorf("the program ended: %s", l.stderr.text())}
}

// close closes the program's input, asks it to end, and finally kills it with its child processes.
func (l *stdioLink) close() {
	l.closed.Do(func() {
		defer l.kill()
		_ = l.in.Close()
		for _, step := range []struct {
			grace time.Duration
			do    func()
		}{{closeGrace, func() { _ = process.Terminate(l.cmd) }}, {terminateGrace, l.kill}} {
			select {
			case <-l.ended:
				return
			case <-time.After(step.grace):
				step.do()
			}
		}
	})
	<-l.done
}

// tail keeps the last part of a program's standard error.
type tail struct {
	secrets []string

	mu   sync.Mutex
	last []byte
	cut  bool // earlier output was dropped
}

// maxTail limits that part, in bytes.
const maxTail = 8 << 10

func (t *tail) write(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if over := len(t.last) - maxTail; over > 0 {
		t.last, t.cut = append(t.last[:0], t.last[over:]...), true
	}
}

// text returns the kept output without secrets and control characters.
func (t *tail) text() string {
	t.mu.Lock()
	last := t.last
	if t.cut { // the first line may begin inside a secret
		_, last, _ = bytes.Cut(last, []byte("\n"))
	}
	text := strings.ToValidUTF8(string(last), "")
	t.mu.Unlock()
	return maskSecrets(text, t.secrets)
}

// maskSecrets replaces secrets in a text and removes control characters.
func maskSecrets(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u202e' {
			return -1
		}
		return r
	}, text))
}
