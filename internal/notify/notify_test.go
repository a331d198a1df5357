package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is an event that opens a review, with words of others in every place.
func opened(id string) record.Event {
	return record.Event{
		Kind: record.Escalated, Instance: "wf-1", Workflow: "release", Version: 2, From: "ready", To: "ready", Action: "ship", Principal: "agent:ada", Time: time.Unix(1, 0).UTC(),
		Patch:    json.RawMessage(`{"password":"hunter2"}`),
		Decision: &record.Decision{Verdict: judge.Verdict{Code: "assurance_too_low", Reasoning: "hunter2"}, Data: json.RawMessage(`{"password":"hunter2"}`)},
		Review:   &record.Review{ID: id, Status: record.ReviewOpen, RequestedBy: "agent:ada", Priority: record.PriorityHigh, Digest: "hunter2", ExpiresAt: time.Unix(9, 0).UTC()},
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	reviewed := func(status record.ReviewStatus, priority record.Priority) record.Event {
		ev := opened("rev-1")
		ev.Kind, ev.Decision, ev.Principal = record.Reviewed, nil, "gavel"
		ev.Review = &record.Review{ID: "rev-1", Status: status, RequestedBy: "agent:ada", Priority: priority, Reason: "hunter2", By: "hunter2"}
		return ev
	}
	for name, c := range map[string]struct {
		ev       record.Event
		id, body string
	}{
		"opened":      {opened("rev-1"), "rev-1.opened", `{"type":"review.opened","timestamp":"1970-01-01T00:00:01Z","data":{"reviewId":"rev-1","id":"wf-1","workflow":"release","version":2,"state":"ready","action":"ship","requestedBy":"agent:ada","reason":"assurance_too_low","priority":"high","expiresAt":"1970-01-01T00:00:09Z"}}`},
		"expired":     {reviewed(record.ReviewExpired, ""), "rev-1.expired", `{"type":"review.expired","timestamp":"1970-01-01T00:00:01Z","data":{"reviewId":"rev-1","id":"wf-1","workflow":"release","version":2,"state":"ready","action":"ship","requestedBy":"agent:ada"}}`},
		"raised":      {reviewed(record.ReviewOpen, record.PriorityUrgent), "rev-1.raised", `{"type":"review.raised","timestamp":"1970-01-01T00:00:01Z","data":{"reviewId":"rev-1","id":"wf-1","workflow":"release","version":2,"state":"ready","action":"ship","requestedBy":"agent:ada","priority":"urgent"}}`},
		"decided":     {reviewed(record.ReviewResolved, ""), "", ""},
		"stale":       {reviewed(record.ReviewStale, ""), "", ""},
		"a move":      {record.Event{Kind: record.Advanced, Decision: &record.Decision{}}, "", ""},
		"an approval": {record.Event{Kind: record.Advanced, Decision: &record.Decision{}, Review: &record.Review{ID: "rev-1", Status: record.ReviewResolved}}, "", ""},
	} {
		m, ok := newMessage(&c.ev)
		if ok != (c.id != "") || m.ID != c.id || string(m.Body) != c.body {
			t.Errorf("%s: %q\n%s", name, m.ID, m.Body)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]Config{
		"a secret of another form":    {URL: "https://example.org", Secret: "whsec_c2hvcnQ="},
		"an address of another form":  {URL: "ftp://example.org"},
		"a secret without an address": {Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	} {
		if _, err := New(bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if n, err := New(Config{}); n != nil || err != nil {
		t.Errorf("nobody to tell: %v, %v", n, err)
	}
}

// The address gets each message signed, no redirect is followed, and no log tells the address.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []*http.Request
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got, bodies = append(got, r), append(bodies, string(body))
		if r.URL.Path == "/T0P-SECRET/moved" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	var log bytes.Buffer
	tell := func(path, id string) Stats {
		n, err := New(Config{URL: server.URL + "/T0P-SECRET/" + path, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		n.Committed(t.Context(), []record.Event{opened(id)})
		n.Close()
		n.Committed(t.Context(), []record.Event{opened("rev-late")})
		n.Close()
		return n.Stats()
	}
	if s := tell("hook", "rev-1"); s != (Stats{Arrived: 1, Dropped: 1}) {
		t.Errorf("%+v", s)
	}
	if s := tell("moved", "rev-2"); s != (Stats{Failed: 1, Dropped: 1}) {
		t.Errorf("%+v", s)
	}
	server.Close()
	if s := tell("hook", "rev-3"); s != (Stats{Failed: 1, Dropped: 1}) {
		t.Errorf("%+v", s)
	}
	if len(got) != 2 || got[0].Method != http.MethodPost || got[0].Header.Get("Webhook-Id") != "rev-1.opened" || got[0].Header.Get("Webhook-Timestamp") == "" || !strings.HasPrefix(got[0].Header.Get("Webhook-Signature"), "v1,") {
		t.Fatalf("%d requests, %v", len(got), got)
	}
	if strings.Contains(fmt.Sprint(bodies), "hunter2") {
		t.Errorf("a message has data: %q", bodies)
	}
	if strings.Contains(log.String(), "T0P-SECRET") || strings.Count(log.String(), "did not arrive") != 2 || !strings.Contains(log.String(), "the answer was 307") {
		t.Errorf("the log: %s", &log)
	}
}

// flaky is a target that takes a message at the n-th try.
type flaky struct {
	mu    sync.Mutex
	after int
	tries []time.Time
	block bool
}

func (f *flaky) run(ctx context.Context, _ []string, _ []byte) error {
	f.mu.Lock()
	f.tries = append(f.tries, time.Now())
	n := len(f.tries)
	f.mu.Unlock()
	if f.block {
		<-ctx.Done()
		return ctx.Err()
	}
	if n < f.after {
		return errors.New("not now")
	}
	return nil
}

func TestTries(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, f *flaky) *Notifier {
		t.Helper()
		n, err := New(Config{Command: []string{"x"}, Run: f.run, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("until it arrives", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{after: 3}
			n, began := begin(t, f), time.Now()
			n.Committed(t.Context(), []record.Event{opened("rev-1")})
			time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock
			if s := n.Stats(); s.Arrived != 1 || len(f.tries) != 3 || f.tries[2].Sub(began) != pauses[0]+pauses[1] {
				t.Errorf("%+v after %v", s, f.tries)
			}
			n.Close()
		})
	})
	t.Run("four times", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{after: 100}
			n := begin(t, f)
			n.Committed(t.Context(), []record.Event{opened("rev-1")})
			time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock
			if s := n.Stats(); s.Failed != 1 || len(f.tries) != len(pauses)+1 {
				t.Errorf("%+v after %d tries", s, len(f.tries))
			}
			n.Close()
		})
	})
	t.Run("once more at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{after: 100}
			n, began := begin(t, f), time.Now()
			n.Committed(t.Context(), []record.Event{opened("rev-1"), opened("rev-2"), opened("rev-3")})
			synctest.Wait()
			n.Close()
			if s := n.Stats(); s.Failed != 3 || len(f.tries) != 3 || time.Since(began) > 0 {
				t.Errorf("%+v after %d tries and %v", s, len(f.tries), time.Since(began))
			}
		})
	})
	t.Run("never waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := begin(t, &flaky{block: true})
			began := time.Now()
			for range queueLength + 10 {
				n.Committed(t.Context(), []record.Event{opened("rev-1")})
			}
			if s := n.Stats(); s.Dropped < 9 || time.Since(began) > 0 {
				t.Errorf("%+v in %v", s, time.Since(began))
			}
			n.Close()
			if took := time.Since(began); took != closeTime {
				t.Errorf("the end took %v", took)
			}
			var none *Notifier
			none.Close()
			if none.Stats() != (Stats{}) {
				t.Error("nobody was told something")
			}
		})
	})
}
