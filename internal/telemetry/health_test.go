package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/internal/telemetry"
)

type readiness struct {
	Ready, Draining bool
	Parts           []struct {
		Name         string
		OK, Optional bool
	}
}

func ready(t *testing.T, h *telemetry.Health) (int, readiness, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.Ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	var r readiness
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, r, w.Body.String()
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		var broken atomic.Bool
		looks := 0
		h := telemetry.NewHealth(telemetry.NewLogger(&logged, nil, false),
			telemetry.Part{Name: "store", Check: func(context.Context) error {
				looks++
				if broken.Load() {
					return errors.New("disk gvl_0123456789 is full")
				}
				return nil
			}},
			telemetry.Part{Name: "model", Optional: true, Check: func(context.Context) error { return errors.New("breaker open") }},
			telemetry.Part{Name: "slow", Optional: true, Check: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		)
		code, r, _ := ready(t, h)
		if code != http.StatusOK || !r.Ready || !r.Parts[0].OK || r.Parts[1].OK || !r.Parts[1].Optional || r.Parts[2].OK {
			t.Errorf("got %d %+v, want ready with two optional parts that are not", code, r)
		}
		for range 100 {
			ready(t, h)
		}
		if looks != 1 {
			t.Errorf("%d looks for 101 questions within a second", looks)
		}
		broken.Store(true)
		<-time.After(time.Second)
		code, r, body := ready(t, h)
		if code != http.StatusServiceUnavailable || r.Ready || r.Parts[0].OK || strings.Contains(body, "disk") {
			t.Errorf("got %d %s, want not ready, without the reason", code, body)
		}
		if log := logged.String(); !strings.Contains(log, "disk [redacted] is full") || strings.Contains(log, "gvl_0") {
			t.Errorf("the log has not the reason, or a secret: %s", log)
		}
		lines := strings.Count(logged.String(), "\n")
		<-time.After(time.Second)
		ready(t, h)
		if strings.Count(logged.String(), "\n") != lines {
			t.Error("a part that still does not work is logged again")
		}
		broken.Store(false)
		<-time.After(time.Second)
		if code, _, _ := ready(t, h); code != http.StatusOK {
			t.Errorf("got %d after it was mended", code)
		}
		h.Drain()
		if code, r, _ := ready(t, h); code != http.StatusServiceUnavailable || !r.Draining {
			t.Errorf("got %d %+v while draining", code, r)
		}
	})
}

// A cancelled probe does not make the next one fail.
func TestHealthOfACallerWhoLeft(t *testing.T) {
	h := telemetry.NewHealth(telemetry.NewLogger(&strings.Builder{}, nil, false),
		telemetry.Part{Name: "store", Check: func(ctx context.Context) error { return ctx.Err() }})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	h.Ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil).WithContext(gone))
	if w.Code != http.StatusOK {
		t.Errorf("got %d", w.Code)
	}
}

func TestLogsKeepSecrets(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		log := telemetry.NewLogger(&out, nil, asJSON)
		const jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
		log.Info("a call with "+jwt, "Authorization", "Basic abc", "db_password", "hunter2", "url", "https://u:hunter2@example.org/x", //nolint:sloglint // keys as others write them
			"err", errors.New("401 for Bearer abcdefgh.ijkl"), "token", "gvl_abcdefgh_ijklmnop", "key", "sk-abcdefghijklmnopqrstuv")
		text := out.String()
		for _, secret := range []string{jwt, "hunter2", "Basic", "abcdefgh", "ijklmnop", "sk-"} {
			if strings.Contains(text, secret) {
				t.Errorf("json %v: %q is in %s", asJSON, secret, text)
			}
		}
		log.Info("plain", "workflow", "deploy", "tokens", 12, "url", "https://example.org:80/x")
		if !strings.Contains(out.String(), "deploy") || !strings.Contains(out.String(), "12") || !strings.Contains(out.String(), "example.org:80") {
			t.Errorf("json %v: what is no secret is gone: %s", asJSON, out.String())
		}
	}
}
