package console

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/module"
)

// liveStream reads the updates of a page.
type liveStream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

// follow opens the stream of a page after a position; -1 is the position of the page.
func (v *visitor) follow(path string, after int64) *liveStream {
	v.kit.t.Helper()
	t, _ := v.kit.t.(*testing.T)
	path, query, _ := strings.Cut(path, "?")
	if after < 0 {
		_, rest, _ := strings.Cut(v.show(path), `data-after="`)
		number, _, _ := strings.Cut(rest, `"`)
		after, _ = strconv.ParseInt(number, 10, 64)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.kit.url+at(path, "live")+"?"+query+"&after="+strconv.FormatInt(after, 10), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := v.http.Do(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the stream of %s: %v, %v", path, res, err)
	}
	t.Cleanup(func() { cancel(); _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	return &liveStream{t, lines, cancel}
}

// next returns the next event, and for a region its content.
func (s *liveStream) next() (event string, u update) {
	s.t.Helper()
	for s.lines.Scan() {
		switch line := s.lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			if event == "region" {
				if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &u); err != nil {
					s.t.Fatal(err)
				}
			}
			return event, u
		}
	}
	return "end", u
}

// waitFor reads until a region shows a text.
func (s *liveStream) waitFor(id, text string) {
	s.t.Helper()
	for {
		event, u := s.next()
		if event == "position" {
			continue
		}
		if event != "region" {
			s.t.Fatalf("got %q while waiting for %q in %s", event, text, id)
		}
		if u.ID == id && strings.Contains(textOf(string(u.HTML)), text) {
			return
		}
	}
}

func TestPagesFollowEvents(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	v := k.signIn(auditor)
	s := v.follow("", -1)
	id := k.start(agent, "paper", `{}`)
	s.waitFor("working", "draft")
	k.advance(agent, id, "submit", `{}`)
	s.waitFor("attention", "title")
	k.advance(agent, id, "submit", `{"title":"On moves"}`)
	k.park(agent, id, "publish", `{}`)
	s.waitFor("attention", "publish")
	s.close()

	// A page that slept gets what it missed, whether others look at it or not.
	v.follow("", 0).waitFor("attention", "publish")
	other := k.signIn(auditor)
	awake := other.follow("", -1)
	v.follow("", 0).waitFor("attention", "publish")
	k.start(agent, "paper", `{}`)
	awake.waitFor("working", "2")
}

// Visitors with equal rights share renderings, but no token.
func TestStreamsHaveTheTokenOfTheirSession(t *testing.T) {
	k, _ := newProbeKit(t)
	k.define(operator, paper)
	a, b := k.signIn(operator), k.signIn(operator)
	tokens := map[string]bool{}
	sa, sb := a.follow("probe", -1), b.follow("probe", -1)
	k.start(agent, "paper", `{}`)
	for v, s := range map[*visitor]*liveStream{a: sa, b: sb} {
		_, u := s.next()
		got := csrfField.FindStringSubmatch(string(u.HTML))
		if got == nil || !strings.Contains(v.show("probe"), got[1]) || got[1] == k.csrf {
			t.Fatalf("the update has the token %q", got)
		}
		tokens[got[1]] = true
	}
	k.topics.mu.Lock()
	defer k.topics.mu.Unlock()
	if len(tokens) != 2 || len(k.topics.open) != 1 {
		t.Errorf("%d tokens and %d topics for two visitors of one page", len(tokens), len(k.topics.open))
	}
}

// A form in an update leads back to its page, like the form of the page itself.
func TestUpdatesHaveTheAddressOfTheirPage(t *testing.T) {
	k, _ := newProbeKit(t)
	k.define(operator, paper)
	v := k.signIn(operator)
	for _, query := range []string{"", "?a=1"} {
		_, rest, _ := strings.Cut(v.show("probe"+query), `name="from" value="`)
		want, _, _ := strings.Cut(rest, `"`)
		s := v.follow("probe"+query, -1)
		k.start(agent, "paper", `{}`)
		_, u := s.next()
		_, rest, _ = strings.Cut(string(u.HTML), `name="from" value="`)
		if got, _, _ := strings.Cut(rest, `"`); got != want || got != base+"probe"+query {
			t.Errorf("the form of an update of %q leads to %q, that of the page to %q", query, got, want)
		}
		s.close()
	}
	r := httptest.NewRequest(http.MethodGet, base+"-/live?after=0", nil)
	if got := pageOf(r); got != base {
		t.Errorf("the first page is %q", got)
	}
}

// Credentials that cannot be checked for a while end no session.
func TestStreamOutlastsAnOutageOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBubble(t)
		var away atomic.Bool
		k.host.Gate = auth.NewGate(authenticate(func() (auth.Identity, error) {
			if away.Load() {
				return auth.Identity{}, auth.ErrUnavailable
			}
			return auth.Identity{Principal: operator}, nil
		}), auth.Options{Logger: k.host.Log})
		sent, stop := bubbleStream(t, k.console, k.sessions.begin(auth.Identity{Principal: operator}, "x"), "")
		defer stop()
		away.Store(true)
		wait(3 * sessionInterval)
		if strings.Contains(sent(), "ended") {
			t.Error("the stream ended")
		}
	})
}

// bubbleStream runs the stream of a page inside a bubble of synctest, and returns what it has sent so far.
func bubbleStream(t *testing.T, k *console, s *session, path string) (sent func() string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithValue(auth.NewContext(t.Context(), s.identity), sessionKey{}, s))
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, at(path, "live")+"?after=0", nil)
	w := &recorder{ResponseRecorder: httptest.NewRecorder()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.mux.ServeHTTP(w, r)
	}()
	return func() string { return w.text() }, func() { cancel(); <-ended }
}

type recorder struct {
	*httptest.ResponseRecorder

	sent atomic.Pointer[string]
}

func (r *recorder) Write(b []byte) (int, error) {
	text := r.text() + string(b)
	r.sent.Store(&text)
	return len(b), nil
}

func (r *recorder) text() string {
	if p := r.sent.Load(); p != nil {
		return *p
	}
	return ""
}

// However many events there are, a page is rendered at most once per interval.
func TestPagesAreRenderedAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := 0
		page := module.Page{
			Path: "counted", Title: "Counted", Templates: `{{define "counted"}}{{.Data}}{{end}}`, Regions: []string{"counted"},
			Load: func(context.Context, module.Visit) (any, error) { loads++; return loads, nil },
		}
		k := newBubble(t, page)
		_, stop := bubbleStream(t, k.console, k.sessions.begin(auth.Identity{Principal: operator}, operator.ID), "counted")
		for range 200 { // two seconds
			k.start(agent, "paper", `{}`)
			wait(10 * time.Millisecond)
		}
		stop()
		if most := int(2*time.Second/renderInterval) + 1; loads < 2 || loads > most {
			t.Errorf("%d renderings in two seconds, want at most %d", loads, most)
		}
	})
}

func TestStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBubble(t)
		s := k.sessions.begin(auth.Identity{Principal: operator}, operator.ID)
		sent, stop := bubbleStream(t, k.console, s, "")
		defer stop()
		wait(2 * sessionInterval)
		if strings.Contains(sent(), "ended") {
			t.Fatal("ended too early")
		}
		k.revoke(operator)
		wait(sessionInterval)
		if !strings.Contains(sent(), "event: ended") {
			t.Errorf("the stream goes on after its token was revoked: %q", sent())
		}
	})
}

// Open pages do not keep a session alive.
func TestStreamIsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBubble(t)
		s := k.sessions.begin(auth.Identity{Principal: operator}, operator.ID)
		sent, stop := bubbleStream(t, k.console, s, "")
		defer stop()
		wait(maxIdle + sessionInterval)
		if !strings.Contains(sent(), "event: ended") {
			t.Error("a page that is only open keeps its session alive")
		}
	})
}

// newBubble is a kit without a listener, for synctest.
func newBubble(t *testing.T, pages ...module.Page) *kit {
	t.Helper()
	k := newKit(t, func(s *setup) {
		s.host.Pages = pages
		s.engine = append(s.engine, func(cfg *engine.Config) { cfg.FeedPoll = 100 * time.Millisecond })
	})
	k.define(operator, paper)
	return k
}

func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's clock
	synctest.Wait()
}

func TestStreamsAreLimited(t *testing.T) {
	k := newKit(t, func(s *setup) {
		s.host.AcquireStream = func(string) (func(), bool) { return nil, false }
	})
	v := k.signIn(operator)
	if got := v.get("-/live?after=0"); got.status != http.StatusTooManyRequests {
		t.Errorf("got %d", got.status)
	}
	if got := v.get("-/live"); got.status != http.StatusBadRequest {
		t.Errorf("without a position: %d", got.status)
	}
}
