package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Sizes of the console's figures. make bench-console sets more.
var (
	consoleInstances = flag.Int("console.instances", 0, "measure the first page of the console with so many instances (make bench-console)")
	consolePages     = flag.Int("console.pages", 0, "measure an advance with so many open pages of the console (make bench-console)")
)

// Bounds of the first page.
const (
	maxFirstPage     = 100_000 // bytes
	maxFirstPageTime = 50 * time.Millisecond
	// mostSlower is how much slower an advance may be with the open pages than without.
	mostSlower = 1.1
	// pagesEach is the number of event streams that a principal may have.
	pagesEach = 8
)

// parking is a workflow whose action "ask" waits for a person, and whose action "say" may lack its field.
const parking = `{"name":"parking","initialState":"a","judgeConfig":{"review":{"expiresAfter":"never"}},"states":{
	"a":{"transitions":{"go":"b","say":{"target":"b","requiredFields":["words"]},"ask":{"target":"b","requireAssurance":"human"}}},
	"b":{"transitions":{"back":"a","stop":"end"}},"end":{"final":true}}}`

// fillStore writes a store with n instances of many principals. Of a hundred, 50 have moved, 10 were refused, and one waits.
func fillStore(t *testing.T, path string, n int) {
	t.Helper()
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sys.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := sys.Engine.Define(t.Context(), gavel.Operator, engine.DefineRequest{Document: []byte(parking)}); err != nil {
		t.Fatal(err)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(256, n) { // fills a batch of the store
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := fillInstance(t.Context(), sys.Engine, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func fillInstance(ctx context.Context, e *gavel.Engine, i int) error {
	asks := i%100 == 0
	who := engine.Principal{ID: fmt.Sprint("token:agent-", i%1000), Role: engine.RoleAgent}
	if asks {
		who.ID = fmt.Sprint("token:asker-", i/2000) // who may have 20 open reviews
	}
	started, err := e.Start(ctx, who, engine.StartRequest{Type: "parking", Context: json.RawMessage(fmt.Sprintf(`{"title":"a document","n":%d}`, i))})
	action := ""
	switch {
	case err != nil:
		return err
	case asks:
		action = "ask"
	case i%10 == 1:
		action = "say"
	case i%2 == 0:
		action = "go"
	default:
		return nil
	}
	_, err = e.Advance(ctx, who, engine.AdvanceRequest{ID: started.ID, Action: action, Data: document.ReadTrusted([]byte(`{}`))})
	return err
}

// visitor is a browser with a session on the console of a server.
type visitor struct {
	s    *served
	http *http.Client
}

func (s *served) visit(token string) *visitor {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	v := &visitor{s, &http.Client{Jar: jar, Transport: s.client.Transport}}
	resp, err := v.http.PostForm(s.url+"/console/sign-in", url.Values{"token": {token}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Request.URL.Path != "/console/" {
		s.t.Fatalf("signing in leads to %s", resp.Request.URL)
	}
	return v
}

func (v *visitor) show(path string) string {
	v.s.t.Helper()
	resp, err := v.http.Get(v.s.url + path)
	if err != nil {
		v.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		v.s.t.Fatalf("%s: %s %v", path, resp.Status, err)
	}
	return string(page)
}

var livePosition = regexp.MustCompile(`data-live="([^"]*)" data-after="(\d+)"`)

// keepOpen opens a page and its live updates. updates counts them; leave closes the page.
func (v *visitor) keepOpen(path string, updates *atomic.Int64) (leave func()) {
	v.s.t.Helper()
	live := livePosition.FindStringSubmatch(v.show(path))
	if live == nil {
		v.s.t.Fatalf("%s has no live updates", path)
	}
	ctx, cancel := context.WithCancel(v.s.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.s.url+strings.TrimSuffix(live[1], "?")+"?after="+live[2], nil)
	if err != nil {
		v.s.t.Fatal(err)
	}
	resp, err := (&http.Client{Jar: v.http.Jar, Transport: &http.Transport{}}).Do(req) //nolint:bodyclose // the returned function closes it
	if err != nil || resp.StatusCode != http.StatusOK {
		v.s.t.Fatalf("%s: %v %v", req.URL, err, resp)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 64<<10)
		for {
			n, err := resp.Body.Read(buffer)
			updates.Add(int64(strings.Count(string(buffer[:n]), "event: region")))
			if err != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		resp.Body.Close()
		<-ended
	}
}

// TestConsoleFirstPage bounds the size of the first page. With -console.instances it also compares its time with that of the
// same queries over REST.
func TestConsoleFirstPage(t *testing.T) {
	t.Parallel()
	measured := *consoleInstances > 0
	n := max(*consoleInstances, 3000) // fills every part of the page
	store, start := storeIn(t), time.Now()
	fillStore(t, store, n)
	filled := time.Since(start)
	s := serveStore(t, store, "--rate", "0")
	s.untilReady()
	v := s.visit(s.owner)
	page := v.show("/console/")
	if len(page) > maxFirstPage {
		t.Errorf("the first page has %d bytes, more than %d", len(page), maxFirstPage)
	}
	for part, want := range map[string]int{`<li id="rev-`: 20, `<li id="refused-`: 15, `<li id="wf-`: 25} {
		if got := strings.Count(page, part); got != want {
			t.Errorf("the page has %d of %s, want %d", got, part, want)
		}
	}
	if !measured {
		return
	}
	since := url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	queries := []string{"/v1/reviews?limit=20", "/v1/decisions?outcome=reject&limit=15&since=" + since, "/v1/instances?status=running&limit=25"}
	var pages, rest []time.Duration
	for i := range 220 {
		begun := time.Now()
		v.show("/console/")
		shown := time.Now()
		for _, q := range queries {
			s.must(s.owner, http.MethodGet, q, "")
		}
		if i >= 20 { // warm
			pages, rest = append(pages, shown.Sub(begun)), append(rest, time.Since(shown))
		}
	}
	slices.Sort(pages)
	t.Logf("%d instances, written in %s: the first page has %d KB; p50 %s, p99 %s; the same queries over REST p50 %s", n, filled.Round(time.Second), len(page)>>10,
		median(pages).Round(100*time.Microsecond), pages[len(pages)*99/100].Round(100*time.Microsecond), median(rest).Round(100*time.Microsecond))
	if p50 := median(pages); p50 > maxFirstPageTime {
		t.Errorf("the first page takes %s, more than %s", p50, maxFirstPageTime)
	}
}

// TestConsoleOpenPages advances an instance while pages of the console are open. Each gets updates. With -console.pages it also
// bounds how much slower they make an advance.
func TestConsoleOpenPages(t *testing.T) {
	t.Parallel()
	open := max(*consolePages, 2*pagesEach)
	s := serveGavel(t, "--rate", "0", "--quota-bytes", "0")
	s.untilReady()
	s.must(s.owner, http.MethodPost, "/v1/definitions", pingPong)
	id := s.begin(s.agent, "ping-pong")
	advance := func(i int) time.Duration {
		begun := time.Now()
		s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", fmt.Sprintf(`{"action":%q}`, []string{"go", "back"}[i%2]))
		return time.Since(begun)
	}
	var visitors []*visitor
	for i := range open / pagesEach {
		visitors = append(visitors, s.visit(s.token(fmt.Sprint("visitor-", i), "--role", "reviewer")))
	}
	rounds, moves := 1, 20
	if *consolePages > 0 {
		rounds, moves = 7, 400
	}
	var alone, watched []time.Duration
	var updates atomic.Int64
	for range rounds { // in turns, because the machine has other work
		for i := range moves {
			alone = append(alone, advance(i))
		}
		var leave []func()
		for _, v := range visitors {
			for range pagesEach {
				leave = append(leave, v.keepOpen("/console/", &updates))
			}
		}
		before := updates.Load()
		for i := range moves {
			watched = append(watched, advance(i))
		}
		s.until("every page has an update", func() bool { return updates.Load() >= before+int64(len(leave)) })
		for _, f := range leave {
			f()
		}
	}
	if *consolePages == 0 {
		return
	}
	a, w := median(alone), median(watched)
	t.Logf("an advance: p50 %s alone, %s with %d open pages of %d visitors: %.2f times; %d updates", a.Round(time.Microsecond), w.Round(time.Microsecond), open, len(visitors), float64(w)/float64(a), updates.Load())
	if float64(w) > mostSlower*float64(a) {
		t.Errorf("an advance is %.2f times slower with open pages, more than %.1f", float64(w)/float64(a), mostSlower)
	}
}
