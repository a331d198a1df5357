package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/script"
)

// healthPaths answer without a credential, even if the server is busy.
var healthPaths = []string{"/healthz", "/readyz"}

// routes are the routes of a server. MCP, REST, the metrics and the routes of modules are mounted here, and
// nowhere else.
type routes struct {
	sys    *cli.System
	log    *slog.Logger
	flags  *Command
	health *telemetry.Health
	extra  module.Routes // of modules

	address string // of the listener, for callers on this machine

	authenticated http.Handler                  // the routes for authenticated callers
	rateLimited   atomic.Pointer[http.Handler]  // inside, with a rate limit for each principal
	mux           atomic.Pointer[http.ServeMux] // nil until mount
	endpoint      *wire.Endpoint
	api           *rest.Handler
}

// mount mounts all routes. Before that, every request is answered with "not ready". With --auth none every caller
// is the local agent, and may read the metrics.
func (r *routes) mount(who *callers) error {
	h, err := r.sys.Handler(gavel.HandlerConfig{Tools: r.flags.tools()})
	if err != nil {
		return term.UsageErrorf("", "cannot set up the server: %w", err)
	}
	r.api, r.endpoint = h.REST, h.MCP
	metrics := r.sys.Meter.Metrics.Handler()
	inside := http.NewServeMux()
	inside.Handle(gavel.MCPPath, r.endpoint)
	inside.Handle(gavel.MCPPath+"/{$}", r.endpoint) // some clients append a slash
	inside.Handle(rest.Prefix, r.api)
	r.extra.Mount(inside)
	inside.Handle("GET "+MetricsPath, requireWatcher(metrics))
	r.authenticated = listen.Admit(callerID, inside)
	r.setRate(r.flags.rateFlags)
	limited := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		(*r.rateLimited.Load()).ServeHTTP(w, req)
	})
	gate := auth.NewGate(who, auth.Options{Logger: r.log, ResourceMetadata: who.metadata(r.flags.issuerFlags), IsEvent: r.extra.Has})
	known := gate.Middleware(limited)

	admit := func(h http.HandlerFunc) http.Handler { return listen.Admit(callerID, h) }
	mux := http.NewServeMux()
	for _, path := range []string{gavel.MCPPath, gavel.MCPPath + "/{$}", rest.Prefix, MetricsPath} {
		mux.Handle(path, known)
	}
	if r.flags.Auth == authNone || r.flags.MetricsOpen {
		mux.Handle("GET "+MetricsPath, admit(metrics.ServeHTTP))
	}
	mux.Handle(rest.DocumentPath, admit(r.api.ServeHTTP)) // not secret: the same for all callers
	mux.Handle("GET "+ResourcePath, admit(who.resource(r.flags.issuerFlags)))
	mux.Handle("GET "+ResourcePath+gavel.MCPPath, admit(who.resource(r.flags.issuerFlags)))
	mux.HandleFunc("GET /healthz", r.health.Live)
	mux.HandleFunc("GET /readyz", r.health.Ready)
	mux.Handle(strings.TrimSuffix(rest.Prefix, "/"), admit(notFound)) // without this route, the mux would redirect
	mux.Handle("/", admit(notFound))
	if err := r.mountSites(mux, inside, limited, gate); err != nil {
		return err
	}
	r.mux.Store(mux)
	r.sys.Meter.SetHeld(func() int { return r.endpoint.CountOpen() + r.api.OpenStreams() })
	return nil
}

// mountSites mounts the web sites of modules. They identify their visitors themselves; inside has the handlers that
// limited calls for those that they have identified. The first site is what a browser finds at "/".
func (r *routes) mountSites(mux, inside *http.ServeMux, limited http.Handler, gate *auth.Gate) error {
	warnings := &cli.Warnings{Sys: r.sys}
	for i, site := range r.sys.Extensions().Sites() {
		h, err := site.Open(module.SiteHost{
			Log: r.log, Pages: r.sys.Extensions().Pages(), Gate: gate, AcquireStream: r.api.AcquireStream,
			Call: func(id auth.Identity) operation.Call {
				return operation.Call{Engine: r.sys.Engine, Caller: id, Channel: record.ChannelAPI, Sources: r.sys.ListSources, Services: r.sys.Extensions().Services()}
			},
			Limit: func(h http.Handler) http.Handler {
				inside.Handle(site.Path, h)
				return limited
			},
			IsSecure: func(req *http.Request) bool {
				return req.TLS != nil || strings.HasPrefix(r.flags.PublicURL, "https://")
			},
			Connect: connectByAddress(r.siteAddress() + gavel.MCPPath), Warnings: warnings.Find, Models: r.sys.Model.ListNames(), StoreName: r.sys.Location.String(),
		})
		if err != nil {
			return term.UnknownErrorf("", "cannot set up %s: %w", site.Path, err)
		}
		mux.Handle(site.Path, h)
		if i == 0 {
			mux.Handle("GET /{$}", http.RedirectHandler(site.Path, http.StatusSeeOther))
		}
	}
	return nil
}

// siteAddress returns the address by which people reach this server.
func (r *routes) siteAddress() string {
	return cmp.Or(strings.TrimRight(r.flags.PublicURL, "/"), r.address)
}

// connectByAddress is the configuration of an MCP client for a server.
func connectByAddress(address string) string {
	text, _ := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{"gavel": map[string]any{ //nolint:errchkjson // strings only
		"type": "http", "url": address, "headers": map[string]string{"Authorization": "Bearer TOKEN"},
	}}}, "", "  ")
	return string(text)
}

// setRate starts new rate limits for all principals.
func (r *routes) setRate(f rateFlags) {
	h := r.authenticated
	if *f.Rate > 0 {
		h = auth.RateLimit(*f.Rate, f.Burst)(h)
	}
	r.rateLimited.Store(&h)
}

func callerID(ctx context.Context) string {
	who, _ := auth.FromContext(ctx)
	return who.ID
}

func (r *routes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	mux := r.mux.Load()
	if mux == nil {
		w.Header().Set("Retry-After", "1")
		writeProblem(w, http.StatusServiceUnavailable, "unavailable", "The server is starting.")
		return
	}
	mux.ServeHTTP(w, req)
}

// drain is called when the shutdown begins.
func (r *routes) drain() {
	r.health.Drain()
	if r.mux.Load() != nil {
		r.endpoint.EndStreams()
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, http.StatusNotFound, "not_found", "There is nothing at this address. MCP is at /mcp, REST at /v1.")
}

func writeProblem(w http.ResponseWriter, status int, code, detail string) {
	writeJSON(w, status, "application/problem+json", map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // ignore a caller that has gone away
}

// MetricsPath is the path of the metrics.
const MetricsPath = "/metrics"

type telemetryFlags struct {
	MetricsOpen bool `name:"metrics-open" help:"Let anyone who reaches the address read /metrics. Without it, only operators and auditors can, with their tokens."`
}

var watchers = []engine.Role{engine.RoleOperator, engine.RoleAuditor}

// requireWatcher allows only operators and auditors whose scope is not limited, because the figures cover all
// workflows. Requests must already be authenticated.
func requireWatcher(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := auth.FromContext(r.Context()); !ok || !slices.Contains(watchers, id.Role) || id.Workflows != "" {
			writeProblem(w, http.StatusForbidden, string(engine.CodeForbidden), "Only operators and auditors of all workflows may read the metrics.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// NewHealth returns checks of everything that is needed to decide and to record. definitions returns why a
// definition file is not in force, or nil.
func NewHealth(log *slog.Logger, sys *cli.System, definitions func() error) *telemetry.Health {
	parts := []telemetry.Part{
		{Name: "store", Check: func(ctx context.Context) error {
			if _, err := sys.Store.Load(ctx, "wf-readiness"); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if s, ok := sys.Store.(interface {
				CheckWritable(ctx context.Context) error
			}); ok {
				return s.CheckWritable(ctx)
			}
			return nil
		}},
		{Name: "sandbox", Check: (&sandboxProbe{pool: sys.Pool}).check},
		{Name: "definitions", Optional: true, Check: func(context.Context) error { return definitions() }},
	}
	for _, x := range sys.Extensions() {
		parts = append(parts, x.Health...)
	}
	if sys.Model != nil {
		parts = append(parts, telemetry.Part{Name: "model", Optional: true, Check: func(context.Context) error { return sys.Model.FindTrouble() }})
	}
	return telemetry.NewHealth(log, parts...)
}

// sandboxProbe checks whether workers can be started and answer. It asks a worker only if that is unknown, or if a
// worker has died since the last probe: an idle server is left alone.
type sandboxProbe struct {
	pool   *script.Pool
	probes singleflight.Group

	isWorking atomic.Bool
	deaths    atomic.Uint64 // workers that had died at the last probe
}

// probeTimeout limits how long a worker may take. It is longer than health requests wait, so that a slow machine does
// not start the probe again with each request.
const probeTimeout = 30 * time.Second

func (s *sandboxProbe) check(ctx context.Context) error {
	if s.isWorking.Load() && s.pool.Stats().Deaths == s.deaths.Load() {
		return nil
	}
	select {
	case tried := <-s.probes.DoChan("", func() (any, error) { return nil, s.probe(context.WithoutCancel(ctx)) }):
		return tried.Err
	case <-ctx.Done():
	}
	if s.isWorking.Load() { // a busy machine may be slow; only the end of the probe shows a failure
		return nil
	}
	return errors.New("no worker of the sandbox has answered yet")
}

func (s *sandboxProbe) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ended := s.pool.Stats().Deaths
	err := s.pool.Probe(ctx)
	s.isWorking.Store(err == nil)
	s.deaths.Store(ended)
	return err
}
