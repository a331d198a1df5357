package evidence_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

// held is a source whose fetch blocks until it is released.
type held struct {
	source  evidence.Source
	arrived chan struct{}
	release chan struct{}
}

func hold(t *testing.T) *held {
	t.Helper()
	h := &held{arrived: make(chan struct{}, 100), release: make(chan struct{})}
	server := plain(t, func(w http.ResponseWriter, r *http.Request) {
		h.arrived <- struct{}{}
		select {
		case <-h.release:
			w.Write([]byte("1"))
		case <-r.Context().Done():
		}
	})
	h.source = evidence.Source{HTTP: server.URL, PrivateNetwork: true}
	return h
}

func TestTooManyFetches(t *testing.T) {
	t.Parallel()
	h := hold(t)
	m := manager(t, evidence.Options{Concurrent: 2, Wait: 50 * time.Millisecond}, map[string]evidence.Source{"it": h.source})
	fetch := func(ctx context.Context, source, caller string) (judge.FetchResult, error) {
		return m.Fetch(ctx, judge.EvidenceRequest{Source: source, Caller: caller}, false)
	}
	var all sync.WaitGroup
	for _, caller := range []string{"a", "b"} {
		all.Go(func() {
			if f, err := fetch(t.Context(), "it", caller); err != nil || f.Failure != "" {
				t.Errorf("held: %+v, %v", f, err)
			}
		})
		<-h.arrived
	}
	if _, err := fetch(t.Context(), "it", "c"); !errors.Is(err, judge.ErrBusy) {
		t.Errorf("the third: %v, want busy", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fetch(ctx, "it", "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v, want the context's error", err)
	}
	// A request that needs no permit is answered.
	if f, err := fetch(t.Context(), "other", "c"); err != nil || f.Failure != judge.FailureNotConfigured {
		t.Errorf("another: %+v, %v", f, err)
	}
	close(h.release)
	all.Wait()
	if f, err := fetch(t.Context(), "it", "c"); err != nil || f.Failure != "" {
		t.Errorf("afterwards: %+v, %v", f, err)
	}
}

// Whatever the number of slow fetches by one caller, half of the permits stay free for others. An honest caller is
// always served immediately, and never gets a busy error.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	const permits, flood, honest = 16, 64, 20
	slow, quick := hold(t), plain(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("1")) })
	m := manager(t, evidence.Options{Concurrent: permits, Wait: time.Minute}, map[string]evidence.Source{
		"slow": slow.source, "quick": {HTTP: quick.URL, PrivateNetwork: true},
	})
	ctx, stop := context.WithCancel(t.Context())
	var noise sync.WaitGroup
	for range flood {
		noise.Go(func() {
			_, _ = m.Fetch(ctx, judge.EvidenceRequest{Source: "slow", Caller: "noisy"}, false)
		})
	}
	for range permits / 2 {
		<-slow.arrived
	}
	for range honest {
		if f, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: "quick", Caller: "honest"}, false); err != nil || f.Failure != "" {
			t.Fatalf("honest: %+v, %v", f, err)
		}
	}
	if n := len(slow.arrived); n > 0 { // the honest caller needed no released permit, and the flood got none
		t.Errorf("the flood has %d permits more than half", n)
	}
	stop()
	noise.Wait()
}

// Close ends running and waiting fetches.
func TestClose(t *testing.T) {
	t.Parallel()
	h := hold(t)
	m := manager(t, evidence.Options{Concurrent: 1, Wait: time.Minute}, map[string]evidence.Source{"it": h.source, "hang": this(t, "hang")})
	var all sync.WaitGroup
	fetch := func(source string) {
		all.Go(func() {
			if _, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: source, Timeout: 5 * time.Minute}, false); !errors.Is(err, judge.ErrBusy) {
				t.Errorf("%s: %v, want busy", source, err)
			}
		})
	}
	fetch("it")
	<-h.arrived
	fetch("hang")
	fetch("it")
	m.Close()
	all.Wait()
	m.Close()
	if _, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: "it"}, false); !errors.Is(err, judge.ErrBusy) {
		t.Errorf("afterwards: %v, want busy", err)
	}
}

// A request can shorten a source's timeout. It can extend the time only if the source declares none.
func TestWhoseTimeout(t *testing.T) {
	t.Parallel()
	h := hold(t)
	said := h.source
	said.Timeout = 200 * time.Millisecond
	m := manager(t, evidence.Options{}, map[string]evidence.Source{"said": said, "unsaid": h.source})
	for _, c := range []struct {
		source string
		asked  time.Duration
		want   string
	}{
		{"said", 0, "timed out after 200ms"},
		{"said", 50 * time.Millisecond, "timed out after 50ms"},
		{"said", time.Hour, "timed out after 200ms"},
		{"unsaid", 150 * time.Millisecond, "timed out after 150ms"},
	} {
		f, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: c.source, Timeout: c.asked}, false)
		if err != nil || f.Failure != judge.FailureTimeout || f.Detail != c.want {
			t.Errorf("%s, asked with %s: %+v, %v", c.source, c.asked, f, err)
		}
	}
	if got := evidence.Bound(m, "unsaid", time.Hour); got != evidence.MaxTimeout {
		t.Errorf("an hour is bounded to %s", got)
	}
	if got := evidence.Bound(m, "unsaid", 2*time.Minute); got != 2*time.Minute {
		t.Errorf("two minutes are bounded to %s", got)
	}
}
