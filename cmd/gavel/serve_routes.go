package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/httpapi"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/mcpface"
	"github.com/gavel-mcp/gavel/internal/mcpwire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/telemetry"
)

const mcpPath = "/mcp"

// healthPaths answer without a credential, and however busy the server is.
var healthPaths = []string{"/healthz", "/readyz"}

// routes is what a server answers to: every face is mounted here, and nowhere else.
type routes struct {
	sys    *system
	log    *slog.Logger
	flags  *serveCmd
	health *telemetry.Health

	throttle *throttle
	mux      atomic.Pointer[http.ServeMux] // nil until mount
	endpoint *mcpwire.Endpoint
	api      *httpapi.Handler
}

// mount makes the faces. Until then every request is told that the server is not ready.
// With --auth none everybody is the local agent, and reads the figures.
func (r *routes) mount(who *callers) error {
	face, err := mcpface.New(mcpface.Config{
		Engine: r.sys.engine, ToolNames: mcpface.ToolNames(r.flags.ToolNames),
		Version: readBuild().Version, Logger: r.log, Reviews: r.flags.Reviews, Elicit: r.flags.Elicit,
		StillValid: func(ctx context.Context, _ auth.Identity) bool { return auth.StillValid(ctx) },
	})
	if err != nil {
		return term.UsageErrorf("", "cannot set up the server: %w", err)
	}
	if r.api, err = httpapi.New(httpapi.Config{Engine: r.sys.engine, Logger: r.log, Sources: listSources(r.sys.sources)}); err != nil {
		return term.UsageErrorf("", "cannot set up the server: %w", err)
	}
	r.endpoint = face.Handler()
	metrics := r.sys.metered.metrics.Handler()
	inside := http.NewServeMux()
	inside.Handle(mcpPath, r.endpoint)
	inside.Handle(httpapi.Prefix, r.api)
	inside.Handle("GET "+metricsPath, watchersOnly(metrics))
	r.throttle = newThrottle(listen.Admit(callerID, inside), r.flags.rateFlags)
	known := auth.Middleware(who, auth.Options{Logger: r.log, ResourceMetadata: who.metadata(r.flags.issuerFlags)})(r.throttle)

	admit := func(h http.HandlerFunc) http.Handler { return listen.Admit(callerID, h) }
	mux := http.NewServeMux()
	for _, path := range []string{mcpPath, httpapi.Prefix, metricsPath} {
		mux.Handle(path, known)
	}
	if r.flags.Auth == authNone || r.flags.MetricsOpen {
		mux.Handle("GET "+metricsPath, admit(metrics.ServeHTTP))
	}
	mux.Handle(httpapi.DocumentPath, admit(r.api.ServeHTTP)) // no secret: the same for everybody
	mux.Handle("GET "+resourcePath, admit(who.resource(r.flags.issuerFlags)))
	mux.Handle("GET "+resourcePath+mcpPath, admit(who.resource(r.flags.issuerFlags)))
	mux.HandleFunc("GET /healthz", r.health.Live)
	mux.HandleFunc("GET /readyz", r.health.Ready)
	mux.Handle(strings.TrimSuffix(httpapi.Prefix, "/"), admit(notFound)) // nothing is sent elsewhere
	mux.Handle("/", admit(notFound))
	r.mux.Store(mux)
	r.sys.metered.holding(func() int { return r.endpoint.Held() + r.api.OpenStreams() })
	return nil
}

func callerID(ctx context.Context) string {
	who, _ := auth.FromContext(ctx)
	return who.ID
}

func (r *routes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	mux := r.mux.Load()
	if mux == nil {
		w.Header().Set("Retry-After", "1")
		sayProblem(w, http.StatusServiceUnavailable, "unavailable", "The server is starting.")
		return
	}
	mux.ServeHTTP(w, req)
}

// drain is told when the end begins.
func (r *routes) drain() {
	r.health.Drain()
	if r.mux.Load() != nil {
		r.endpoint.EndStreams()
	}
}

// close ends the faces once nothing is in flight any more.
func (r *routes) close() { r.endpoint.Close() }

func notFound(w http.ResponseWriter, _ *http.Request) {
	sayProblem(w, http.StatusNotFound, "not_found", "There is nothing at this address. MCP is at /mcp, REST at /v1.")
}

func sayProblem(w http.ResponseWriter, status int, code, detail string) {
	writeJSON(w, status, "application/problem+json", map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone needs no answer
}

// listSources lists the sources of evidence for callers: what they are called, not where
// they are.
func listSources(s *evidence.Manager) func() []operation.Source {
	return func() (list []operation.Source) {
		for _, i := range s.List() {
			list = append(list, operation.Source{Name: i.Name, Kind: i.Kind, Description: i.Description, ReadOnly: i.ReadOnly})
		}
		return list
	}
}
