package rest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/rest"
	"github.com/gavel-mcp/gavel/judge"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// newEngine returns the real engine in memory.
func newEngine(t testing.TB, options ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	base := func(cfg *engine.Config) { cfg.ReviewPath, cfg.FeedPoll = true, 2*time.Millisecond }
	return enginetest.New(t, judge.Config{Clock: enginetest.FixedTime}, append([]func(*engine.Config){base}, options...)...)
}

// The callers of the tests.
var (
	agent    = engine.Principal{ID: "ann", Role: engine.RoleAgent}
	stranger = engine.Principal{ID: "sam", Role: engine.RoleAgent}
	reviewer = engine.Principal{ID: "rita", Role: engine.RoleReviewer}
	operator = engine.Principal{ID: "otto", Role: engine.RoleOperator}
	auditor  = engine.Principal{ID: "ada", Role: engine.RoleAuditor}
)

// signedIn adds the identity whose id is the bearer token.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		for _, p := range []engine.Principal{agent, stranger, reviewer, operator, auditor} {
			if p.ID == bearer {
				r = r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: p, Kind: auth.KindToken, Credential: "tok-" + p.ID}))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// api is a handler that tests call as different principals.
type api struct {
	t       testing.TB
	engine  *engine.Engine
	handler *rest.Handler
	http    http.Handler
}

func newAPI(t testing.TB, options ...func(*rest.Config)) *api {
	t.Helper()
	e := newEngine(t)
	cfg := rest.Config{Engine: e, Logger: slog.New(slog.DiscardHandler)}
	for _, o := range options {
		o(&cfg)
	}
	h, err := rest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &api{t: t, engine: e, handler: h, http: signedIn(h)}
}

// in returns a copy that reports to a subtest.
func (a api) in(t testing.TB) *api {
	a.t = t
	return &a
}

// answer is a response.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// ask sends a request: "POST /v1/instances", a body ("" for none), and headers in pairs.
func (a *api) ask(who engine.Principal, what, body string, pairs ...string) answer {
	a.t.Helper()
	method, target, _ := strings.Cut(what, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+who.ID)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	w := httptest.NewRecorder()
	a.http.ServeHTTP(w, r)
	body2, err := io.ReadAll(w.Result().Body)
	if err != nil {
		a.t.Fatal(err)
	}
	out := answer{t: a.t, status: w.Code, header: w.Result().Header, body: body2}
	conforms(a.t, r, out)
	return out
}

// is fails the test unless the answer has this status.
func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// into decodes the answer.
func into[T any](a answer) T {
	a.t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// problem decodes a problem, which must have this code.
func (a answer) problem(code engine.Code) rest.Problem {
	a.t.Helper()
	p := into[rest.Problem](a)
	if got := a.header.Get("Content-Type"); got != rest.ProblemType || p.Code != code || p.Status != a.status {
		a.t.Fatalf("%d %s, want a problem %s: %s", a.status, got, code, a.body)
	}
	return p
}

// paper is a workflow with everything that the tests need.
const paper = `{
  "name": "paper", "initialState": "draft", "sensitive": ["/secret"],
  "states": {
    "draft":     {"transitions": {"submit": {"target": "reviewing", "requiredFields": ["title"]}, "drop": "dropped"}},
    "reviewing": {"transitions": {"publish": {"target": "published", "risk": "high"}, "back": "draft"}},
    "published": {"final": true, "outcome": "success"},
    "dropped":   {"final": true}
  }}`

func (a *api) define(who engine.Principal, document string) {
	a.t.Helper()
	a.ask(who, "POST /v1/definitions", document).is(http.StatusCreated)
}

// start starts a paper and returns its id.
func (a *api) start(who engine.Principal) string {
	a.t.Helper()
	return into[engine.StartResult](a.ask(who, "POST /v1/instances", `{"type":"paper"}`).is(http.StatusCreated)).ID
}

func compact(b []byte) string { return string(bytes.TrimSpace(b)) }
