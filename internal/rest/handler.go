// Package rest implements gavel's REST API: /v1 in JSON, /openapi.json, and live events.
//
// Guarantees:
//   - Routes, the served OpenAPI document and the reference page come from one table.
//   - A request with any part that the operation does not use is rejected as a whole.
//   - Numbers in documents keep their original digits.
//   - A refused or parked move is an answer: 200 with the decision. Only requests that could not be decided are
//     problems (RFC 9457), with the error's stable code.
//   - A retry with the same Idempotency-Key gets the first answer, and nothing is done again.
//   - A request whose If-Match is out of date changes nothing.
//   - A resumed event stream neither loses nor repeats events.
//
// It must never decide about rights or rules, authenticate callers, or show the text of an unknown error. internal/auth
// authenticates callers first; this package rejects requests without an identity.
package rest

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Headers that the API uses in addition to the common ones.
const (
	headerETag           = "ETag"
	headerIfMatch        = "If-Match"
	headerIfNoneMatch    = "If-None-Match"
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotency-Replayed"
	headerRequestID      = "X-Request-Id"
)

// Prefix is the start of every API path. DocumentPath is the path of the API's description.
const (
	Prefix       = "/v1/"
	DocumentPath = "/openapi.json"
)

// Handler serves the API. It expects requests whose path is DocumentPath or starts with Prefix, with the caller's
// identity in their context (internal/auth).
type Handler struct {
	cfg     Config
	mux     *http.ServeMux
	streams *fairshare.Queue // one permit for each stream
}

// New returns a Handler, or an error that names each problem of the configuration.
func New(cfg Config) (*Handler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Handler{
		cfg: cfg, mux: http.NewServeMux(), // the listener limits the total number of streams
		streams: fairshare.New(fairshare.Config{Permits: math.MaxInt, PerCaller: cfg.MaxStreams}),
	}
	methods := map[string][]string{}
	for _, op := range operation.All() {
		for i := range op.Routes {
			route := &op.Routes[i]
			methods[route.Path] = append(methods[route.Path], route.Method)
			h.mux.HandleFunc(route.Method+" "+route.Path, h.serve(op, route))
		}
	}
	methods[DocumentPath] = []string{http.MethodGet}
	h.mux.HandleFunc("GET "+DocumentPath, h.serveDocument)
	for at, allowed := range methods {
		h.mux.HandleFunc(at, h.methodNotAllowed(allowed))
	}
	h.mux.HandleFunc("/", h.unknownPath)
	return h, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerRequestID)
	if !usableRequestID().MatchString(id) {
		id = newRequestID()
	}
	w.Header().Set(headerRequestID, id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, id))
	defer h.recoverPanic(w, r)
	switch {
	case !isCleanPath(r.URL.EscapedPath()):
		h.unknownPath(w, r)
	case r.URL.Path != DocumentPath && !isAuthenticated(r):
		h.fail(w, r, "who calls", &engine.Error{Code: engine.CodeUnauthenticated, Message: "The request is not authenticated.", Hint: "Send Authorization: Bearer with a token."})
	default:
		h.mux.ServeHTTP(w, r)
	}
}

func isAuthenticated(r *http.Request) bool {
	id, ok := auth.FromContext(r.Context())
	return ok && id.ID != ""
}

// isCleanPath reports whether a path is in canonical form.
func isCleanPath(at string) bool {
	return strings.HasPrefix(at, "/") && path.Clean(at) == at
}

// recoverPanic turns a panic into an error response, so that a defect affects only one request. The panic's text is
// only logged.
func (h *Handler) recoverPanic(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http then aborts the connection
	}
	h.fail(w, r, r.Method+" "+r.Pattern, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
}

func (h *Handler) unknownPath(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, "an unknown path", &engine.Error{
		Code: CodeUnknownPath, Message: fmt.Sprintf("Nothing is served at %.200q.", r.URL.Path), Hint: "See " + DocumentPath + " for the paths.",
	})
}

// methodNotAllowed answers requests with a method that the path does not support.
func (h *Handler) methodNotAllowed(methods []string) http.HandlerFunc {
	allowed := slices.Clone(methods)
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	allowed = append(allowed, http.MethodOptions)
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", list)
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.fail(w, r, "another method", &engine.Error{
			Code: CodeMethodNotAllowed, Message: fmt.Sprintf("This path does not support the method %.20q.", r.Method), Hint: "It supports " + list + ".",
		})
	}
}

// write sends a complete response. HEAD gets the headers of GET, without the body.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, code int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(body); err != nil { //nolint:gosec // JSON, and nosniff prevents its interpretation as a page
		h.cfg.Logger.DebugContext(r.Context(), "the caller disconnected before the answer", "cause", err.Error(), "request", requestID(r.Context()))
	}
}

type requestKey struct{}

// requestID returns the id that names the request in logs and problems.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// usableRequestID matches acceptable request ids of callers, which are logged.
var usableRequestID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{1,128}$`) })

func newRequestID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return "unknown" // no randomness available; the request is still answered
	}
	return id.String()
}

// packedDocument is openapi.json, compressed to a tenth of its size. The tests of this package generate it from the
// table and the Go types (-update), and compare it with them.
//
//go:embed openapi.json.gz
var packedDocument []byte

// openapi returns the document as it is served, without the operations of modules that this program lacks.
var openapi = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(packedDocument))
	if err != nil {
		panic("openapi.json.gz: " + err.Error()) // a test covers this
	}
	doc, err := io.ReadAll(r)
	if err != nil {
		panic("openapi.json.gz: " + err.Error())
	}
	return withoutUnknown(doc)
})

// withoutUnknown removes the paths that the table of operations does not have.
func withoutUnknown(doc []byte) []byte {
	known := map[string]bool{}
	for _, op := range operation.All() {
		for _, route := range op.Routes {
			known[route.Path] = true
		}
	}
	var parts, paths map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(doc, &parts), json.Unmarshal(parts["paths"], &paths)); err != nil {
		panic("openapi.json.gz: " + err.Error())
	}
	before := len(paths)
	maps.DeleteFunc(paths, func(path string, _ json.RawMessage) bool { return !known[path] })
	if len(paths) == before {
		return doc
	}
	parts["paths"], _ = json.Marshal(paths) // it was read from JSON
	doc, _ = json.Marshal(parts)
	return doc
}

func (h *Handler) serveDocument(w http.ResponseWriter, r *http.Request) {
	h.write(w, r, http.StatusOK, jsonType, openapi())
}

// Config configures a Handler. Engine and Logger are required.
type Config struct {
	Engine operation.Engine
	Logger *slog.Logger
	// Sources returns the evidence sources; nil if there are none.
	Sources func() []operation.Source
	// Services are passed on to operation.Call.
	Services map[string]any
	// MaxBody limits a request's body, in bytes; 0 selects 1 MiB.
	MaxBody int64
	// Heartbeat is the interval of keep-alive comments on a quiet stream; 0 selects 15 seconds.
	Heartbeat time.Duration
	// WriteTimeout limits one write to a stream. A reader that does not read within that time is disconnected. 0
	// selects 10 seconds.
	WriteTimeout time.Duration
	// StreamLife is the maximum lifetime of a stream, after which its reader must reconnect with its credential; 0
	// selects 15 minutes.
	StreamLife time.Duration
	// MaxStreams limits the streams of one principal; 0 selects 8. The listener limits the total.
	MaxStreams int
}

func (c Config) withDefaults() Config {
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.StreamLife = cmp.Or(c.StreamLife, 15*time.Minute)
	c.MaxStreams = cmp.Or(c.MaxStreams, 8)
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Engine == nil || c.Logger == nil {
		errs = append(errs, errors.New("rest: config needs Engine and Logger"))
	}
	if c.MaxBody < 1024 || c.MaxStreams < 1 {
		errs = append(errs, errors.New("rest: MaxBody must be at least 1024, MaxStreams at least 1"))
	}
	if c.Heartbeat < time.Millisecond || c.WriteTimeout < time.Millisecond || c.StreamLife < time.Millisecond {
		errs = append(errs, errors.New("rest: Heartbeat, WriteTimeout and StreamLife must be at least a millisecond"))
	}
	return errors.Join(errs...)
}
