package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Part is a component that gavel uses to serve requests.
type Part struct {
	Name string
	// Check returns why the part does not work, or nil. It must obey ctx.
	Check func(ctx context.Context) error
	// Optional parts are reported, but do not affect readiness.
	Optional bool
}

// PartError is returned by a Check that knows since when its part has failed, and how many decisions were made
// without it. Health does not log it, because the part's owner does.
type PartError struct {
	Since     time.Time
	Decisions int64
	Err       error
}

func (e *PartError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *PartError) Unwrap() error { return e.Err }

// checkTimeout limits one check of all parts. resultMaxAge is how long its result is reused, so that frequent probes do not
// load the store.
const (
	checkTimeout = 2 * time.Second
	resultMaxAge = time.Second
)

// Health reports whether gavel can serve requests.
type Health struct {
	parts []Part
	log   *slog.Logger

	mu    sync.Mutex
	at    time.Time
	last  Report
	ended bool
}

// NewHealth returns a Health for the given parts. It logs when a part fails and when it works again. Responses contain
// no errors, because probes are not authenticated.
func NewHealth(log *slog.Logger, parts ...Part) *Health { return &Health{parts: parts, log: log} }

// Drain makes gavel permanently not ready, because it is shutting down.
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// Report is the response of /readyz.
type Report struct {
	Ready    bool         `json:"ready"`
	Draining bool         `json:"draining,omitempty"` // shutting down
	Parts    []PartReport `json:"parts"`
}

// PartReport is one part of a Report.
type PartReport struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Optional bool   `json:"optional,omitempty"`
	// Since is when the part failed, and Decisions how many decisions were made without it, if known.
	Since     time.Time `json:"since,omitzero"`
	Decisions int64     `json:"decisions,omitempty"`
}

// Live responds with 200 while the process can respond.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]bool{"ok": true})
}

// Ready responds with 200 if every required part works, else with 503, and lists the parts.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	rep := h.check(r.Context())
	code := http.StatusOK
	if !rep.Ready {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, rep)
}

// Parts returns the parts as Ready lists them.
func (h *Health) Parts(ctx context.Context) []PartReport { return h.check(ctx).Parts }

func (h *Health) check(ctx context.Context) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() || time.Since(h.at) >= resultMaxAge {
		// A caller that disconnects must not cause a failure for the next one.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		h.last, h.at = h.probe(bounded), time.Now()
	}
	rep := h.last
	if h.ended {
		rep.Ready, rep.Draining = false, true
	}
	return rep
}

func (h *Health) probe(ctx context.Context) Report {
	rep := Report{Ready: true, Parts: make([]PartReport, len(h.parts))}
	errs := make([]error, len(h.parts))
	var wait sync.WaitGroup
	for i, p := range h.parts {
		wait.Go(func() { errs[i] = p.Check(ctx) })
	}
	wait.Wait()
	for i, p := range h.parts {
		ok := errs[i] == nil
		rep.Parts[i] = PartReport{Name: p.Name, OK: ok, Optional: p.Optional}
		if t, known := errors.AsType[*PartError](errs[i]); known {
			rep.Parts[i].Since, rep.Parts[i].Decisions = t.Since, t.Decisions
		}
		rep.Ready = rep.Ready && (ok || p.Optional)
		var last PartReport
		if len(h.last.Parts) > 0 {
			last = h.last.Parts[i]
		}
		switch was := last.Name != "" && !last.OK; {
		case !last.Since.IsZero() || !rep.Parts[i].Since.IsZero(): // a PartError, which the part's owner logs
		case !ok && !was:
			h.log.Error("a component has failed", "part", p.Name, "error", errs[i])
		case ok && was:
			h.log.Warn("a component works again", "part", p.Name)
		}
	}
	return rep
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // fails only if the caller has disconnected
}
