package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
)

// gated is a workflow whose move needs evidence from a source that blocks.
const gated = `{"name":"gated","initialState":"a","states":{
	"a":{"transitions":{"go":{"target":"b","evidence":[{"name":"gate","source":"gate"}]}}},"b":{"final":true}}}`

// shipping is a workflow whose move a person decides.
const shipping = `{"name":"shipping","initialState":"a","states":{
	"a":{"transitions":{"ship":{"target":"b","requireAssurance":"human"}}},"b":{"final":true}}}`

// insiders is the number of moves that a gate blocks: as many concurrent fetches as a server allows one principal.
const insiders = 8

// barrier blocks moves inside a server. Its command signals that it runs and then waits.
type barrier struct {
	t       *testing.T
	in, out *os.File
	args    []string // of the server
}

func newBarrier(t *testing.T) *barrier {
	t.Helper()
	dir := t.TempDir()
	b := &barrier{t: t, args: []string{"--config", filepath.Join(dir, "gavel.yaml")}}
	source := fmt.Sprintf("evidence: {sources: {gate: {timeout: 10m, command: [sh, -c, 'echo inside >%s/in; read open <%s/out; echo fine']}}}\n", dir, dir)
	if err := os.WriteFile(b.args[1], []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]**os.File{"in": &b.in, "out": &b.out} {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0) // as reader and writer, so that neither end waits for the other
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		*file = f
	}
	return b
}

// full waits until all moves are blocked in the server.
func (b *barrier) full() {
	b.t.Helper()
	if err := b.in.SetReadDeadline(time.Now().Add(4 * patience)); err != nil {
		b.t.Fatal(err)
	}
	lines := bufio.NewScanner(b.in)
	for n := range insiders {
		if !lines.Scan() {
			b.t.Fatalf("%d of %d moves came inside: %v", n, insiders, lines.Err())
		}
	}
}

// open releases all of them. Each reads one line of one byte.
func (b *barrier) open() {
	b.t.Helper()
	if _, err := io.WriteString(b.out, strings.Repeat("\n", insiders)); err != nil {
		b.t.Fatal(err)
	}
}

// inside starts moves over every face that the gate blocks. It returns once all are in the server. wait returns
// once all are answered. Faults, including closed connections, fail the test in report.
func (l *load) inside(b *barrier) (all []*loadClient, wait func()) {
	l.t.Helper()
	l.must(l.owner, http.MethodPost, "/v1/definitions", gated)
	var moves sync.WaitGroup
	for n := range insiders {
		c := &loadClient{load: l, face: []string{faceREST, faceModern, faceSession}[n%3]}
		if err := c.prepare(1); err != nil {
			l.report()
			l.t.Fatal(err)
		}
		c.workflow = "gated"
		if err := c.turn(0); err != nil {
			l.report()
			l.t.Fatal(err)
		}
		all = append(all, c)
		moves.Go(func() { _ = c.move() }) // recorded by failed
	}
	b.full()
	return all, moves.Wait
}

// drains waits until the server refuses connections: shutdown has begun.
func (s *served) drains() {
	s.t.Helper()
	s.until("nobody can connect", func() bool {
		conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// moved fails the test unless every instance has the revision from its response, after one move.
func (s *served) moved(all []*loadClient) {
	s.t.Helper()
	for _, c := range all {
		if got := s.revisionOf(c.id); c.revision != 2 || got != 2 {
			s.t.Errorf("%s: a move that was inside has revision %d in its answer, and %d in the store", c.face, c.revision, got)
		}
	}
}

// posting is a response to a POST that is a stream of events.
type posting struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Reader
}

func (c *loadClient) stream(tool, body string) *posting {
	c.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.url+gavel.MCPPath, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + c.agent}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	c.address(r.Header, []string{tool})
	if c.face == faceModern {
		r.Header.Set("Mcp-Method", tool)
		r.Header.Del("Mcp-Name")
	}
	res, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = res.Body.Close() })
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		raw, _ := io.ReadAll(res.Body)
		c.t.Fatalf("%s: no stream of events but %s %s %s", tool, res.Status, kind, raw)
	}
	return &posting{c.t, res.Body, bufio.NewReader(res.Body)}
}

// says reads until a message contains text.
func (p *posting) says(text string) {
	p.t.Helper()
	for {
		line, err := p.lines.ReadString('\n')
		if strings.HasPrefix(line, "data:") && strings.Contains(line, text) {
			return
		}
		if err != nil {
			p.t.Fatalf("no %s: %v", text, err)
		}
	}
}

// rest returns the remainder of the stream, which must end with its last chunk.
func (p *posting) rest() string {
	p.t.Helper()
	raw, err := io.ReadAll(p.lines)
	if err != nil {
		p.t.Errorf("the stream was cut off: %v after %s", err, raw)
	}
	return string(bytes.TrimSpace(raw))
}

// TestDrainAnswersOpenRequests shows that requests received before SIGTERM are answered over every face, however
// long they take. New connections are refused. Streams that answer a POST do not delay the shutdown: a
// subscription ends, and a call that waits for a person is answered, both with complete responses.
func TestDrainAnswersOpenRequests(t *testing.T) {
	t.Parallel()
	b := newBarrier(t)
	l := startLoad(t, append(b.args, "--drain-timeout", "10m", "--elicit")...)
	l.must(l.owner, http.MethodPost, "/v1/definitions", shipping)

	modern := &loadClient{load: l, face: faceModern}
	listening := modern.stream("subscriptions/listen", `{"jsonrpc":"2.0","id":17,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"resourceSubscriptions":["workflow://instances/`+l.begin(l.agent, "shipping")+`"]}}}`)
	listening.says("notifications/subscriptions/acknowledged")

	session := &loadClient{load: l, face: faceSession}
	if _, err := session.send("initialize", http.MethodPost, gavel.MCPPath, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{"elicitation":{}},"clientInfo":{"name":"load","version":"1"}}}`); err != nil {
		t.Fatal(err)
	}
	asking := session.stream("tools/call", `{"jsonrpc":"2.0","id":18,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"`+
		l.begin(l.agent, "shipping")+`","action":"ship"}}}`)
	asking.says("elicitation/create")

	all, wait := l.inside(b)
	l.term()
	l.drains()
	if got := asking.rest(); !strings.Contains(got, `"id":18`) || !strings.Contains(got, "escalate") {
		t.Errorf("a call that waited for a person ends with %.500q", got)
	}
	listening.rest()
	b.open()
	wait()
	l.stop()
	l.report()
	serveAgain(l).moved(all)
}

// serveAgain serves the store of a stopped server.
func serveAgain(l *load) *served {
	l.t.Helper()
	verifies(l.t, l.store)
	after := serveStore(l.t, l.store)
	after.agent = l.agent
	return after
}
