package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/httpapi"
	"github.com/gavel-mcp/gavel/internal/mcpface"
)

// healthPaths answer without a credential, and however busy the server is.
var healthPaths = []string{"/healthz", "/readyz"}

// routes is what a server answers to: every face is mounted here, and nowhere else.
type routes struct {
	sys             *system
	log             *slog.Logger
	toolNames       string
	reviews, elicit bool

	mux      atomic.Pointer[http.ServeMux] // nil until mount
	endpoint *mcpface.Endpoint
	api      *httpapi.Handler
	draining atomic.Bool
}

// mount makes the faces. Until then every request is told that the server is not ready.
func (r *routes) mount(who auth.Authenticator) error {
	face, err := mcpface.New(mcpface.Config{
		Engine: r.sys.engine, ToolNames: mcpface.ToolNames(r.toolNames),
		Version: readBuild().Version, Logger: r.log, Reviews: r.reviews, Elicit: r.elicit,
	})
	if err != nil {
		return misused("", "cannot set up the server: %w", err)
	}
	if r.api, err = httpapi.New(httpapi.Config{Engine: r.sys.engine, Logger: r.log, Sources: declared(r.sys.sources)}); err != nil {
		return misused("", "cannot set up the server: %w", err)
	}
	r.endpoint = face.Handler()
	known := auth.Middleware(who, auth.Options{Logger: r.log})
	mux := http.NewServeMux()
	mux.Handle("/mcp", known(r.endpoint))
	mux.Handle(httpapi.Prefix, known(r.api))
	mux.Handle(httpapi.DocumentPath, r.api) // no secret: the same for everybody
	mux.HandleFunc("GET /healthz", r.health)
	mux.HandleFunc("GET /readyz", r.ready)
	mux.HandleFunc("/", notFound)
	r.mux.Store(mux)
	return nil
}

// ServeHTTP implements http.Handler.
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
	r.draining.Store(true)
	if r.mux.Load() != nil {
		r.endpoint.EndStreams()
	}
}

// close ends the faces once nothing is in flight any more.
func (r *routes) close() { r.endpoint.Close() }

// health says that the process answers.
func (r *routes) health(w http.ResponseWriter, _ *http.Request) {
	sayJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyLimit bounds the question whether the store answers.
const readyLimit = 2 * time.Second

// ready says whether moves can be decided and recorded now.
func (r *routes) ready(w http.ResponseWriter, req *http.Request) {
	if r.draining.Load() {
		sayJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "draining"})
		return
	}
	ctx, done := context.WithTimeout(req.Context(), readyLimit)
	defer done()
	if _, err := r.sys.store.Load(ctx, "wf-readiness"); err != nil && !errors.Is(err, engine.ErrNotFound) {
		r.log.Error("the store does not answer", "error", err)
		sayJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unavailable", "store": "unavailable"})
		return
	}
	sayJSON(w, http.StatusOK, map[string]string{"status": "ready", "store": "ok"})
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	sayProblem(w, http.StatusNotFound, "not_found", "There is nothing at this address. MCP is at /mcp, REST at /v1.")
}

func sayProblem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	say(w, status, map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail})
}

func sayJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	say(w, status, body)
}

func say(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone needs no answer
}

// declared lists the sources of evidence for callers: what they are called, not where
// they are.
func declared(s *sources) func() []httpapi.Source {
	return func() (list []httpapi.Source) {
		if s == nil {
			return nil
		}
		for _, i := range s.manager.List() {
			list = append(list, httpapi.Source{Name: i.Name, Kind: i.Kind, Description: i.Description, ReadOnly: i.ReadOnly})
		}
		return list
	}
}
