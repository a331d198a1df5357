package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// patience limits every wait. A slow machine must not reach it.
const patience = 30 * time.Second

// server serves the api over the network until the test ends.
func (a *api) server() *httptest.Server {
	s := httptest.NewServer(a.http)
	a.t.Cleanup(s.Close)
	return s
}

// sse is one reader of a stream.
type sse struct {
	status int
	header http.Header
	lines  *bufio.Reader
	close  func()
}

// message is one message of a stream: an event, a comment, or only an id.
type message struct{ id, event, data, comment string }

func listenTo(t testing.TB, s *httptest.Server, who engine.Principal, at, last string) *sse {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+at, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+who.ID)
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	return &sse{status: resp.StatusCode, header: resp.Header, lines: bufio.NewReader(resp.Body), close: sync.OnceFunc(func() {
		cancel()
		_ = resp.Body.Close()
	})}
}

// next returns the next message, or io.EOF if the server ended the stream.
func (s *sse) next() (message, error) {
	var m message
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return m, err
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "":
			if strings.HasPrefix(line, ": ") {
				m.comment = value
				continue
			}
			return m, nil
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		}
	}
}

// events reads n events, and returns them with the last id.
func (s *sse) events(t testing.TB, n int) (got []engine.EventView, last string) {
	t.Helper()
	for len(got) < n {
		m, err := s.next()
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(got), n, err)
		}
		if m.id != "" {
			last = m.id
		}
		if m.data == "" {
			continue
		}
		if m.event == "problem" {
			t.Fatalf("after %d of %d events the stream failed: %s", len(got), n, m.data)
		}
		var ev engine.EventView
		if err := json.Unmarshal([]byte(m.data), &ev); err != nil {
			t.Fatal(err)
		}
		if m.id != strconv.FormatInt(ev.Position, 10) || m.event != string(ev.Kind) {
			t.Fatalf("a message %+v of the event %+v", m, ev)
		}
		got = append(got, ev)
	}
	return got, last
}

// TestStream checks that events arrive as they happen, for callers that may see them.
func TestStream(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	first := a.start(agent)
	s := a.server()
	mine := listenTo(t, s, agent, "/v1/events", "")
	defer mine.close()
	if mine.status != http.StatusOK || mine.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", mine.status, mine.header)
	}
	one := listenTo(t, s, agent, "/v1/instances/"+first+"/events?after=0", "")
	defer one.close()
	all := listenTo(t, s, auditor, "/v1/events", "0")
	defer all.close()

	other := a.start(stranger)
	second := a.start(agent)
	a.ask(agent, "POST /v1/instances/"+first+"/advance", `{"action":"submit","data":{"title":"T","secret":"s3cr3t"}}`).is(http.StatusOK)

	got, _ := mine.events(t, 2)
	if got[0].Instance != second || got[1].Instance != first || got[1].Kind != "advanced" || got[1].Decision == nil {
		t.Errorf("the agent's: %+v", got)
	}
	got, _ = one.events(t, 2)
	if got[0].Instance != first || got[0].Kind != "started" || got[1].Instance != first {
		t.Errorf("the instance's: %+v", got)
	}
	got, _ = all.events(t, 4)
	if got[0].Instance != first || got[1].Instance != other || got[2].Instance != second || got[3].Instance != first {
		t.Errorf("all: %+v", got)
	}
	if told, _ := json.Marshal(got); strings.Contains(string(told), "s3cr3t") {
		t.Error("a sensitive value is in a stream")
	}
}

// TestStreamResumes checks that a reader gets every event once and in order, however often the stream breaks.
func TestStreamResumes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := newAPI(t)
		a.define(operator, paper)
		s := httptest.NewServer(a.http)
		defer s.Close()
		breaks := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 6).Draw(rt, "events between breaks")
		total := 1
		for _, n := range breaks {
			total += n
		}
		starts := rapid.SliceOfN(rapid.Bool(), total*2, total*2).Draw(rt, "whose")
		want := make(chan []string, 1)
		go func() { // concurrently with the reader
			var ids []string
			for _, own := range starts {
				p := stranger
				if own {
					p = agent
				}
				r, err := a.engine.Start(context.Background(), p, engine.StartRequest{Type: "paper"})
				if err != nil {
					t.Error(err)
				}
				if own {
					ids = append(ids, r.ID)
				}
			}
			want <- ids
		}()
		var got []string
		last := "0"
		read := func(n int) {
			stream := listenTo(t, s, agent, "/v1/events", last)
			defer stream.close()
			events, at := stream.events(t, n)
			for _, ev := range events {
				got = append(got, ev.Instance)
			}
			last = at
		}
		own := 0
		for _, b := range starts {
			if b {
				own++
			}
		}
		for _, n := range breaks {
			if n = min(n, own-len(got)); n > 0 {
				read(n)
			}
		}
		if rest := own - len(got); rest > 0 {
			read(rest)
		}
		if made := <-want; fmt.Sprint(got) != fmt.Sprint(made) {
			rt.Fatalf("read %v, made %v", got, made)
		}
		// Nothing is repeated after the end.
		page := into[engine.TailResult](a.ask(agent, "GET /v1/events?after="+last, "").is(http.StatusOK))
		if len(page.Events) != 0 {
			rt.Fatalf("%d events after the last one", len(page.Events))
		}
	})
}

// TestStreamHeartbeat checks that a quiet stream sends keep-alive comments with its position.
func TestStreamHeartbeat(t *testing.T) {
	a := newAPI(t, func(c *rest.Config) { c.Heartbeat = time.Millisecond })
	a.define(operator, paper)
	stream := listenTo(t, a.server(), agent, "/v1/events", "")
	defer stream.close()
	for beats := 0; beats < 3; {
		m, err := stream.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.comment != "" && m.id == "" {
			t.Errorf("a heartbeat without a place: %+v", m)
		}
		if m.comment != "" {
			beats++
		}
	}
	// Events that the reader may not see still move its position.
	a.start(stranger)
	for {
		m, err := stream.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.id == "1" {
			return
		}
	}
}

// The listener limits the total number of streams, not this handler.
func TestTotalStreamsAreNotLimited(t *testing.T) {
	const each = 150
	a := newAPI(t, func(c *rest.Config) { c.MaxStreams = each })
	s := a.server()
	for n := range 2 * each {
		stream := listenTo(t, s, []engine.Principal{agent, stranger}[n%2], "/v1/events", "")
		t.Cleanup(stream.close)
		if stream.status != http.StatusOK {
			t.Fatalf("stream %d: %d", n, stream.status)
		}
	}
}

// TestStreamLimits checks the limit of streams. A refusal is sent before anything else.
func TestStreamLimits(t *testing.T) {
	a := newAPI(t, func(c *rest.Config) { c.MaxStreams = 2 })
	a.define(operator, paper)
	left := make(chan struct{}, 1) // signals that an open stream has released its permit
	inner := a.http
	a.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		if w.Header().Get("Content-Type") == "text/event-stream" {
			select {
			case left <- struct{}{}:
			default:
			}
		}
	})
	s := a.server()
	open := func(who engine.Principal) *sse {
		stream := listenTo(t, s, who, "/v1/events", "")
		t.Cleanup(stream.close)
		return stream
	}
	first := open(agent)
	open(agent)
	if third := open(agent); third.status != http.StatusTooManyRequests || third.header.Get("Retry-After") == "" {
		t.Errorf("a third stream: %d", third.status)
	}
	if other := open(stranger); other.status != http.StatusOK {
		t.Errorf("another principal's stream: %d", other.status)
	}
	first.close()
	<-left
	if again := open(agent); again.status != http.StatusOK {
		t.Errorf("a closed stream keeps its place: %d", again.status)
	}
	for what, status := range map[string]int{
		"/v1/instances/wf-none/events": http.StatusNotFound, "/v1/events?limit=3": http.StatusBadRequest, "/v1/events?after=x": http.StatusBadRequest,
	} {
		got := listenTo(t, s, operator, what, "")
		got.close()
		if got.status != status || !strings.HasPrefix(got.header.Get("Content-Type"), rest.ProblemType) {
			t.Errorf("%s: %d %s", what, got.status, got.header.Get("Content-Type"))
		}
	}
}

// TestStreamEnds checks the reasons to end a stream: the server drains, its lifetime is over, or the credential
// expires.
func TestStreamEnds(t *testing.T) {
	t.Run("drain", func(t *testing.T) {
		a := newAPI(t)
		a.define(operator, paper)
		draining := make(chan struct{})
		inner := a.http
		a.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner.ServeHTTP(w, r.WithContext(listen.WithDraining(r.Context(), draining)))
		})
		s := a.server()
		stream := listenTo(t, s, agent, "/v1/events", "")
		defer stream.close()
		id := a.start(agent)
		if got, _ := stream.events(t, 1); got[0].Instance != id {
			t.Errorf("%+v", got)
		}
		close(draining)
		stream.ends(t)
		again := listenTo(t, s, agent, "/v1/events", "")
		defer again.close()
		if again.status != http.StatusServiceUnavailable || again.header.Get("Retry-After") == "" {
			t.Errorf("a stream while the server drains: %d", again.status)
		}
		a.ask(agent, "GET /v1/events", "").is(http.StatusOK) // pages are still served
	})
	t.Run("life", func(t *testing.T) {
		a := newAPI(t, func(c *rest.Config) { c.StreamLife = 20 * time.Millisecond })
		a.define(operator, paper)
		stream := listenTo(t, a.server(), agent, "/v1/events", "")
		defer stream.close()
		stream.ends(t)
	})
	t.Run("credential", func(t *testing.T) {
		a := newAPI(t)
		a.define(operator, paper)
		a.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := auth.Identity{Principal: agent, Expires: time.Now().Add(500 * time.Millisecond)}
			a.handler.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), who)))
		})
		stream := listenTo(t, a.server(), agent, "/v1/events", "")
		defer stream.close()
		stream.ends(t)
	})
}

// ends waits for the end of the stream.
func (s *sse) ends(t testing.TB) {
	t.Helper()
	for {
		if _, err := s.next(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// stuck is a connection whose reader does not read. Each write lasts until its deadline.
type stuck struct {
	http.ResponseWriter
	mu       sync.Mutex
	deadline time.Time
	dropped  bool // a write reached its deadline
}

var errForEver = errors.New("a write without a deadline would last for ever")

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}

func (s *stuck) Write([]byte) (int, error) {
	s.mu.Lock()
	deadline := s.deadline
	s.mu.Unlock()
	if deadline.IsZero() {
		return 0, errForEver
	}
	<-time.After(time.Until(deadline))
	s.dropped = true
	return 0, os.ErrDeadlineExceeded
}

// TestSlowReader checks that a reader that does not read is disconnected and releases its permit.
func TestSlowReader(t *testing.T) {
	a := newAPI(t, func(c *rest.Config) { c.MaxStreams, c.WriteTimeout = 1, 5*time.Millisecond })
	a.define(operator, paper)
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/v1/events?after=0", nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Authorization", "Bearer "+agent.ID)
		w := httptest.NewRecorder()
		reader := &stuck{ResponseWriter: w}
		a.http.ServeHTTP(reader, r) // returns
		if w.Code != http.StatusOK || !reader.dropped {
			t.Errorf("%d, dropped %v: no deadline, or the place of the one before is not free", w.Code, reader.dropped)
		}
	}
}
