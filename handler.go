package gavel

import (
	"context"
	"io"
	"net/http"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/mcpgate"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// MCPPath is the path where a Handler serves MCP. REST is below /v1/.
const MCPPath = "/mcp"

// LocalAgent is the principal of every caller if callers are not distinguished.
var LocalAgent = engine.Principal{ID: "local:agent", Role: engine.RoleAgent}

// Tools configures the tools that MCP clients get, like the gavel mcp flags of these names. The zero value means
// their defaults.
type Tools struct {
	Names         string // auto, dotted, underscore
	Set           string // core, seed, all
	OutputSchemas bool
}

// face returns the MCP face. p is the principal over stdio.
func (s *System) face(tools Tools, p engine.Principal) (*face.Face, error) {
	cfg := face.Config{
		Engine: s.Engine, Principal: p, Version: s.cfg.Version, Logger: s.cfg.Logger, Reviews: s.reviews, Elicit: s.clientReviews,
		ToolNames: face.ToolNames(tools.Names), Toolset: face.Toolset(tools.Set),
		OutputSchemas: tools.OutputSchemas, States: s.states, Services: s.extensions.Services(), Foreign: s.extensions.Foreign(), Extras: s.extensions.Extras(),
		StillValid: func(ctx context.Context, _ auth.Identity) bool { return auth.StillValid(ctx) },
	}
	return face.New(cfg)
}

// ServeStdio serves one MCP client as p until in or ctx ends.
func (s *System) ServeStdio(ctx context.Context, tools Tools, p engine.Principal, in io.Reader, out io.Writer) error {
	face, err := s.face(tools, p)
	if err != nil {
		return err
	}
	return face.ServeStdio(ctx, in, out)
}

// Middleware gates tools of a server built with mcp-go. Pass its Guard to server.WithToolHandlerMiddleware and its
// Filter to server.WithToolFilter. caller returns the principal and the instance of a call.
func (s *System) Middleware(caller mcpgate.Caller, gates ...mcpgate.Gate) (*mcpgate.Gates, error) {
	return mcpgate.New(s.Engine, caller, gates...)
}

// HandlerConfig configures how a Handler identifies callers, and the tools of its MCP clients.
type HandlerConfig struct {
	// Caller returns the sender of a request. It is called for each request, before anything else; if it fails,
	// the response is 401. If Caller is nil, every caller is LocalAgent, and only this machine may call, by a
	// loopback name. So no web page can reach it.
	Caller func(*http.Request) (engine.Principal, error)
	Tools  Tools
}

// Handler serves a System over HTTP: MCP at /mcp, REST below /v1/, described by /openapi.json. It does not limit
// request rates or terminate TLS. A server in front must do that.
type Handler struct {
	// MCP and REST serve one protocol each, for requests that are already authenticated (package auth).
	MCP  *wire.Endpoint
	REST *rest.Handler

	all http.Handler
}

// Handler returns a handler that serves the System over HTTP. Close it before the System.
func (s *System) Handler(cfg HandlerConfig) (*Handler, error) {
	face, err := s.face(cfg.Tools, engine.Principal{})
	if err != nil {
		return nil, err
	}
	h := &Handler{}
	if h.REST, err = rest.New(rest.Config{Engine: s.Engine, Logger: s.cfg.Logger, Sources: s.ListSources, Services: s.extensions.Services()}); err != nil {
		return nil, err
	}
	h.MCP = face.Handler()
	mux := http.NewServeMux()
	mux.Handle(MCPPath, h.MCP)
	mux.Handle(MCPPath+"/{$}", h.MCP)
	mux.Handle(rest.Prefix, h.REST)
	mux.Handle(rest.DocumentPath, h.REST)
	h.all = identifyCaller(cfg.Caller, mux)
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.all.ServeHTTP(w, r) }

// Close ends sessions and event streams.
func (h *Handler) Close() { h.MCP.Close() }

func identifyCaller(caller func(*http.Request) (engine.Principal, error), next http.Handler) http.Handler {
	if caller == nil {
		return listen.LoopbackOnly(identifyCaller(func(*http.Request) (engine.Principal, error) { return LocalAgent, nil }, next))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := caller(r)
		if err != nil {
			listen.WriteProblem(w, http.StatusUnauthorized, "unauthenticated", "The program could not identify the sender of this request.")
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: p, Kind: auth.KindProgram})))
	})
}

// ListSources lists the sources of evidence.
func (s *System) ListSources() []operation.Source {
	if f, ok := s.cfg.Fetcher.(Fetcher); ok {
		return f.Sources()
	}
	return nil
}
