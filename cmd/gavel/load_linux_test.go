package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
)

// Amount of load: a sample in ordinary tests. make load sets more.
var (
	loadClients = flag.Int("load.clients", 25, "clients at once in the tests of load")
	loadTime    = flag.Duration("load.time", 500*time.Millisecond, "how long the tests of load go on")
)

// Limits for a server with a thousand clients. Each client has a connection and an instance; a third have a
// session.
const (
	maxLoadMemory = 600 << 20
	maxLoadFiles  = 64 // for the store's connections, the sandbox's pipes and files opened earlier
	loadStreams   = 16
	movesEach     = 100 // per instance, before a client ends it and starts another
)

// load is a server and the observations of its clients.
type load struct {
	*served
	http *http.Client

	answered atomic.Int64
	streamed atomic.Int64 // events
	streams  []net.Conn
	lag      float64     // the maximum lag of a stream, in seconds
	over     atomic.Bool // SIGTERM was sent: connections may now be closed

	mu    sync.Mutex
	times map[string][]time.Duration // by face and operation
	wrong []string
}

func startLoad(t *testing.T, args ...string) *load {
	t.Helper()
	s := serveGavel(t, append([]string{"--rate", "0", "--quota-bytes", "0", "--quota-instances", "0", "--quota-definitions", "0"}, args...)...)
	s.must(s.owner, http.MethodPost, "/v1/definitions", pingPong)
	s.untilReady()
	l := &load{served: s, times: map[string][]time.Duration{}}
	l.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * *loadClients}, Timeout: 6 * patience} // some requests are blocked
	t.Cleanup(l.http.CloseIdleConnections)
	return l
}

// failed records a fault.
func (l *load) failed(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// Faces used by clients.
const (
	faceREST    = "REST"
	faceModern  = "MCP 2026-07-28"
	faceSession = "MCP session"
)

// loadClient makes sequential requests. It belongs to one goroutine.
type loadClient struct {
	*load
	face, session, workflow string
	id                      string
	revision                int
	unsure                  bool // a move got no answer
	last                    []*loadClient
}

var errOver = errors.New("the server takes no more requests")

// run loads the server until ctx or the server ends.
func (c *loadClient) run(ctx context.Context, number int) {
	if err := c.prepare(number); err != nil {
		return
	}
	for turn := 0; turn == 0 || ctx.Err() == nil; turn++ {
		if c.turn(turn) != nil {
			return
		}
	}
}

// prepare opens a session if the face has one, and selects a workflow. Every tenth client defines its own.
func (c *loadClient) prepare(number int) error {
	if c.face == faceSession {
		if _, err := c.send("initialize", http.MethodPost, gavel.MCPPath, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`); err != nil {
			return err
		}
	}
	c.workflow = "ping-pong"
	if number%10 == 0 {
		c.workflow = fmt.Sprintf("load-%d", number)
		document := strings.Replace(pingPong, "ping-pong", c.workflow, 1)
		_, err := c.do("define", http.MethodPost, "/v1/definitions", document, "workflow.define", document)
		return err
	}
	return nil
}

// turn starts or moves an instance, and sometimes reads.
func (c *loadClient) turn(turn int) error {
	if c.id == "" {
		body := fmt.Sprintf(`{"type":%q}`, c.workflow)
		answer, err := c.do("start", http.MethodPost, "/v1/instances", body, "workflow.start", body)
		if err != nil {
			return err
		}
		c.id, _ = answer["id"].(string)
		c.revision = 1
		return nil
	}
	if turn%4 == 3 {
		if _, err := c.do("read", http.MethodGet, "/v1/instances/"+c.id, "", "workflow.status", fmt.Sprintf(`{"id":%q}`, c.id)); err != nil {
			return err
		}
	}
	if turn%4 == 1 && c.face == faceREST {
		if _, err := c.send("decide", http.MethodPost, "/v1/decide", fmt.Sprintf(`{"workflow":%q,"state":"a","action":"go","data":{"n":1}}`, c.workflow)); err != nil {
			return err
		}
	}
	return c.move()
}

func (c *loadClient) move() error {
	action := []string{"back", "go"}[c.revision%2]
	if c.revision >= movesEach && action == "back" {
		action = "stop"
	}
	rest := fmt.Sprintf(`{"action":%q,"data":{"n":%d}}`, action, c.revision)
	_, err := c.do("advance", http.MethodPost, "/v1/instances/"+c.id+"/advance", rest,
		"workflow.advance", fmt.Sprintf(`{"id":%q,%s`, c.id, rest[1:]))
	if errors.Is(err, errOver) {
		c.unsure = true
	}
	if err != nil {
		return err
	}
	c.revision++
	if action == "stop" {
		c.last = append(c.last, &loadClient{id: c.id, revision: c.revision})
		c.id = ""
	}
	return nil
}

// do sends a request over the client's face and returns the response in REST form.
func (c *loadClient) do(kind, method, path, body, tool, arguments string) (object, error) {
	if c.face == faceREST {
		return c.send(kind, method, path, body)
	}
	meta := ""
	if c.face == faceModern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	answer, err := c.send(kind, http.MethodPost, gavel.MCPPath, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, tool, arguments, meta), tool)
	if err != nil {
		return nil, err
	}
	result, _ := answer["result"].(object)
	content := answerOf(result)
	if isError, _ := result["isError"].(bool); isError || content == nil {
		c.failed("%s %s: %v", c.face, kind, answer)
		return nil, errors.New("refused")
	}
	return content, nil
}

// send sends one request and counts its response.
func (c *loadClient) send(kind, method, path, body string, tool ...string) (object, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, c.url+path, strings.NewReader(body)) // started requests are not cancelled
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Authorization": {"Bearer " + c.agent}, "Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if path == gavel.MCPPath {
		r.Header.Set("Accept", "application/json, text/event-stream")
		c.address(r.Header, tool)
	}
	began := time.Now()
	res, err := c.http.Do(r)
	if err != nil {
		if c.over.Load() && closedCleanly(err) {
			return nil, errOver
		}
		c.failed("%s %s: %v", c.face, kind, err)
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		c.failed("%s %s: the receiver answered with status cut off: %v", c.face, kind, err)
		return nil, err
	}
	if res.StatusCode == http.StatusServiceUnavailable && c.over.Load() {
		return nil, errOver
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	return c.count(kind, time.Since(began), res, raw)
}

// address sets the headers for the protocol version of an MCP request.
func (c *loadClient) address(h http.Header, tool []string) {
	if c.face == faceModern {
		h["Mcp-Protocol-Version"], h["Mcp-Method"], h["Mcp-Name"] = []string{"2026-07-28"}, []string{"tools/call"}, tool
	} else if c.session != "" {
		h["Mcp-Protocol-Version"], h["Mcp-Session-Id"] = []string{"2025-11-25"}, []string{c.session}
	}
}

func (c *loadClient) count(kind string, took time.Duration, res *http.Response, raw []byte) (object, error) {
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		raw = raw[bytes.LastIndex(raw, []byte("data:"))+len("data:"):]
	}
	var answer object
	if err := json.Unmarshal(raw, &answer); err != nil || res.StatusCode/100 != 2 {
		c.failed("%s %s: %s %.300q %v", c.face, kind, res.Status, raw, err)
		return nil, errors.New(res.Status)
	}
	c.answered.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[c.face+" "+kind] = append(c.times[c.face+" "+kind], took)
	return answer, nil
}

// closedCleanly reports whether a connection was refused, or closed before the first byte of a response. Clients
// with persistent connections must expect this when any server stops.
func closedCleanly(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || strings.Contains(err.Error(), "server closed idle connection")
}

// clients starts the clients. wait returns when all have ended.
func (l *load) clients(ctx context.Context) (each []*loadClient, wait func()) {
	var all sync.WaitGroup
	for n := range *loadClients {
		c := &loadClient{load: l, face: []string{faceREST, faceModern, faceSession}[n%3]}
		each = append(each, c)
		all.Go(func() { c.run(ctx, n) })
	}
	streams := make([]net.Conn, loadStreams)
	for i := range streams {
		stream := l.connect("GET /v1/events HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\nAuthorization: Bearer " + l.agent + "\r\n\r\n")
		streams[i] = stream
		go func() { // until the stream ends, with the server or in hangUpAll
			for lines := bufio.NewScanner(stream); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data:") {
					l.streamed.Add(1)
				}
			}
		}()
	}
	l.streams = append(l.streams, streams...)
	return each, all.Wait
}

// report fails the test for recorded faults and logs response times.
func (l *load) report() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range l.wrong[:min(len(l.wrong), 10)] {
		l.t.Error(what)
	}
	l.t.Logf("%d clients, %d answers, %d errors; %d events in %d streams, at most %.2f s late", *loadClients, l.answered.Load(), len(l.wrong), l.streamed.Load(), loadStreams, l.lag)
	for _, kind := range slices.Sorted(maps.Keys(l.times)) {
		all := l.times[kind]
		slices.Sort(all)
		l.t.Logf("%-26s %7d   p50 %8v   p99 %8v", kind, len(all), all[len(all)/2].Round(100*time.Microsecond), all[len(all)*99/100].Round(100*time.Microsecond))
	}
}

func (l *load) files() int {
	l.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", l.cmd.Process.Pid))
	if err != nil {
		l.t.Fatal(err)
	}
	return len(all)
}

// round runs clients for a time and waits until they are gone. peak is the maximum resident memory.
func (l *load) round(lasts time.Duration) (peak int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), lasts)
	defer cancel()
	before := l.streamed.Load()
	_, wait := l.clients(ctx)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			peak = max(peak, resident(l.t, l.cmd.Process.Pid))
			l.lag = max(l.lag, l.readLag())
		case <-ctx.Done():
		}
	}
	wait()
	peak = max(peak, resident(l.t, l.cmd.Process.Pid))
	l.until("the streams tell of it", func() bool { return l.streamed.Load() > before })
	l.hangUpAll()
	return peak
}

// readLag returns the lag of the slowest stream, in seconds.
func (l *load) readLag() (seconds float64) {
	l.t.Helper()
	_, text := l.figures(l.owner)
	_, text, _ = strings.Cut(text, "\ngavel_stream_lag_seconds ")
	if _, err := fmt.Sscan(text, &seconds); err != nil {
		l.t.Errorf("the lag of the streams: %v", err)
	}
	return seconds
}

// hangUpAll closes the clients' connections.
func (l *load) hangUpAll() {
	for _, stream := range l.streams {
		_ = stream.Close() // closed again at the end of the test
	}
	l.streams = nil
	l.http.CloseIdleConnections()
}

// TestLoad lets many clients define, start, move and read concurrently over every face. Each request is answered,
// and the server's memory and files stay within limits. After the clients are gone, little remains. Further
// clients add only their sessions, which no one ends. make load runs a thousand clients for a minute.
func TestLoad(t *testing.T) {
	t.Parallel()
	l := startLoad(t)
	start, files := resident(t, l.cmd.Process.Pid), l.files()
	idle := l.settled(nothing)
	peak := l.round(*loadTime)
	l.until("files are closed", func() bool { return l.files() <= files+maxLoadFiles })
	once := l.settled(idle.and(keptOnce, keptOfClient))
	l.report()
	end := resident(t, l.cmd.Process.Pid)
	peak = max(peak, l.round(*loadTime))
	twice := l.settled(once.and(keptAgain, keptOfClient))
	l.report()
	t.Logf("resident: %d MB at the start, %d MB at most, %d MB when the clients were gone; files: %d, %d at the end", start>>20, peak>>20, end>>20, files, l.files())
	t.Logf("heap when idle: %v at the start, %v after a round, %v after another", idle, once, twice)
	if peak > maxLoadMemory {
		t.Error("the server holds too much memory")
	}
	if l.answered.Load() < int64(*loadClients) {
		t.Error("not even one answer for each client")
	}
}

// TestTermUnderLoad stops a server under this load:
//   - acknowledged moves are in the store
//   - unacknowledged moves are there at most once
//   - no response is cut off
//   - new connections are refused
//
// Requests known to be in the server at that moment are all answered.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	gate := newBarrier(t)
	l := startLoad(t, append(gate.args, "--drain-timeout", "10m")...)
	strict := &load{served: l.served, http: l.http, times: map[string][]time.Duration{}}
	within, answered := strict.inside(gate)
	all, wait := l.clients(t.Context())
	l.until("five answers for each client", func() bool { return l.answered.Load() > int64(5**loadClients) })
	l.over.Store(true)
	began := time.Now()
	l.term()
	l.drains()
	gate.open()
	answered()
	wait()
	l.stop()
	t.Logf("ended %v after SIGTERM", time.Since(began).Round(time.Millisecond))
	l.report()
	strict.report()
	if _, _, err := l.try(l.agent, http.MethodGet, "/healthz", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("somebody still listens: %v", err)
	}
	after := serveAgain(l)
	after.moved(within)
	moves := 0
	for _, c := range all {
		for _, m := range append(c.last, c) {
			if m.id == "" {
				continue
			}
			moves += m.revision - 1
			if got := after.revisionOf(m.id); got != m.revision && !(m.unsure && got == m.revision+1) {
				t.Errorf("%s is at revision %d; %d was acknowledged (unsure: %v)", m.id, got, m.revision, m.unsure)
			}
		}
	}
	t.Logf("%d acknowledged moves, all in the store", moves)
}

func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[len(sorted)*percent/100].Round(100 * time.Microsecond)
}
