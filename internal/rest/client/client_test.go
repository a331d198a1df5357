package client_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
	"github.com/gavel-mcp/gavel/internal/rest/client"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Commands use a server and an engine through the same interface.
var (
	_ operation.Caller = (*client.Client)(nil)
	_ operation.Caller = operation.Call{}
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// newEngine returns the real engine in memory, with a deterministic clock and ids.
func newEngine(t testing.TB) *engine.Engine {
	t.Helper()
	return enginetest.New(t, judge.Config{Clock: enginetest.FixedTime}, enginetest.Deterministic(time.Second), func(cfg *engine.Config) { cfg.ReviewPath = true })
}

var (
	operator = engine.Principal{ID: "otto", Role: engine.RoleOperator}
	agent    = engine.Principal{ID: "ann", Role: engine.RoleAgent}
	reviewer = engine.Principal{ID: "rita", Role: engine.RoleReviewer}
)

// handler serves an engine to callers whose id is their token.
func handler(t testing.TB, e operation.Engine) http.Handler {
	t.Helper()
	h, err := rest.New(rest.Config{Engine: e, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, p := range []engine.Principal{operator, agent, reviewer} {
			if r.Header.Get("Authorization") == "Bearer "+p.ID {
				r = r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: p, Kind: auth.KindToken}))
			}
		}
		h.ServeHTTP(w, r)
	})
}

func newClient(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const paper = `{
  "name": "paper", "initialState": "draft", "sensitive": ["/secret"],
  "states": {
    "draft":     {"transitions": {"submit": {"target": "reviewing", "requiredFields": ["title"]}, "drop": "dropped"}},
    "reviewing": {"transitions": {"publish": {"target": "published", "risk": "high"}, "back": "draft"}},
    "published": {"final": true, "outcome": "success"},
    "dropped":   {"final": true}
  }}`

// step is a request to both callers.
type step func(ctx context.Context, at operation.Caller) (any, error)

func ask[Req, Res any](op operation.Typed[Req, Res], req Req) step {
	return func(ctx context.Context, at operation.Caller) (any, error) { return op.Do(ctx, at, req) }
}

// TestSameAsEngine checks that responses over the network equal the engine's own, including errors, byte for byte.
func TestSameAsEngine(t *testing.T) {
	direct := newEngine(t)
	s := httptest.NewServer(handler(t, newEngine(t)))
	defer s.Close()
	remote := map[string]operation.Caller{}
	for _, p := range []engine.Principal{operator, agent, reviewer} {
		remote[p.ID] = newClient(t, client.Config{Server: s.URL, Token: p.ID})
	}
	const id = "wf-00000000-0000-7000-8000-000000000001"
	one, stale, end := int64(1), int64(7), int64(-1)
	yes, least := true, 0.9
	at := time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC)
	steps := []struct {
		who engine.Principal
		do  step
	}{
		{operator, ask(operation.Define, engine.DefineRequest{Source: "body.json", Document: []byte(paper)})},
		{agent, ask(operation.Define, engine.DefineRequest{Source: "body.yaml", Document: []byte("name: x\ninitialState: y\nstates: {}\n")})},
		{agent, ask(operation.List, operation.Empty{})},
		{agent, ask(operation.Start, engine.StartRequest{Type: "paper", Context: json.RawMessage(`{"secret":"<s>","n":1.50}`), Key: "k"})},
		{agent, ask(operation.Start, engine.StartRequest{Type: "paper", Context: json.RawMessage(`{"secret":"<s>","n":1.50}`), Key: "k"})},
		{agent, ask(operation.Start, engine.StartRequest{Type: "nothing"})},
		{agent, ask(operation.Advance, engine.AdvanceRequest{ID: id, Action: "submit"})},
		{agent, ask(operation.Advance, engine.AdvanceRequest{ID: id, Action: "submit", ExpectedRevision: &stale})},
		{agent, ask(operation.Validate, engine.AdvanceRequest{ID: id, Action: "submit", Data: document.ReadTrusted([]byte(`{"title":"T"}`))})},
		{agent, ask(operation.Advance, engine.AdvanceRequest{ID: id, Action: "submit", Data: document.ReadTrusted([]byte(`{"title":"<T>"}`)), ExpectedRevision: &one, Key: "m"})},
		{operator, ask(operation.Checkpoint, engine.CheckpointRequest{ID: id, Description: "here", Metadata: json.RawMessage(`{"a":1}`)})},
		{agent, ask(operation.ListCheckpoints, operation.IDRequest{ID: id})},
		{operator, ask(operation.Undo, engine.UndoRequest{ID: id})},
		{operator, ask(operation.Redo, engine.UndoRequest{ID: id})},
		{agent, ask(operation.Advance, engine.AdvanceRequest{ID: id, Action: "publish"})},
		{reviewer, ask(operation.Reviews, engine.ReviewsRequest{Status: "all", Workflow: "paper", Instance: id, Limit: 5})},
		{reviewer, func(ctx context.Context, at operation.Caller) (any, error) {
			all, err := operation.Reviews.Do(ctx, at, engine.ReviewsRequest{})
			if err != nil || len(all.Reviews) != 1 {
				return all, err
			}
			view, err := operation.Review.Do(ctx, at, operation.IDRequest{ID: all.Reviews[0].ID})
			if err != nil {
				return view, err
			}
			done, err := operation.Resolve.Do(ctx, at, engine.ResolveRequest{ID: view.ID, Decision: judge.Reject, Reason: "No."})
			return []any{view, done}, err
		}},
		{operator, ask(operation.Rollback, engine.RollbackRequest{ID: id, CheckpointID: "none"})},
		{agent, ask(operation.Status, operation.StatusRequest{ID: id})},
		{agent, ask(operation.Status, operation.StatusRequest{ID: id, When: engine.When{Revision: 1}})},
		{agent, ask(operation.Status, operation.StatusRequest{ID: id, When: engine.When{At: at}})},
		{agent, ask(operation.CanExecute, engine.CanExecuteRequest{ID: id, States: []string{"draft", "reviewing"}})},
		{agent, ask(operation.Instances, engine.InstancesRequest{Workflow: "paper", State: "reviewing", Status: record.Running, Limit: 3})},
		{agent, ask(operation.History, engine.HistoryRequest{ID: id, AfterSeq: 1, Limit: 2, Until: engine.When{Revision: 2}})},
		{operator, ask(operation.Timeline, engine.HistoryRequest{ID: id})},
		{agent, ask(operation.Decisions, engine.DecisionsRequest{Limit: 3, Query: store.DecisionQuery{
			Workflow: "paper", Degraded: new(bool), MaxConfidence: &least, Since: at, Kinds: []record.Kind{record.Refused, record.Advanced},
		}})},
		{agent, ask(operation.Decisions, engine.DecisionsRequest{Cursor: "not a cursor"})},
		{operator, ask(operation.Statistics, engine.StatisticsRequest{Workflow: "paper"})},
		{agent, ask(operation.Events, operation.EventsRequest{Limit: 2})},
		{agent, ask(operation.Events, operation.EventsRequest{After: &end, ID: id})},
		{agent, ask(operation.Decide, engine.DecideRequest{Workflow: "paper", State: "draft", Action: "submit", Data: json.RawMessage(`{"title":"T"}`)})},
		{agent, ask(operation.Describe, engine.DescribeRequest{Name: "paper", Version: 1})},
		{agent, ask(operation.Describe, engine.DescribeRequest{ID: id})},
		{agent, ask(operation.Diagram, engine.DiagramRequest{ID: id, Format: "dot"})},
		{agent, ask(operation.Diagram, engine.DiagramRequest{Name: "paper"})},
		{agent, ask(operation.ConfigureJudge, engine.JudgeConfigRequest{Name: "paper", Settings: workflow.JudgeSettings{StrictMode: &yes, MinConfidence: &least}})},
		{agent, ask(operation.ConfigureJudge, engine.JudgeConfigRequest{Name: "paper", Settings: workflow.JudgeSettings{Enabled: new(bool)}})},
		{agent, ask(operation.Cancel, engine.CancelRequest{ID: id, Reason: "done"})},
		{agent, ask(operation.Advance, engine.AdvanceRequest{ID: id, Action: "back"})},
	}
	for i, s := range steps {
		want, wantErr := s.do(t.Context(), operation.Call{Engine: direct, Caller: auth.Identity{Principal: s.who}})
		got, err := s.do(t.Context(), remote[s.who.ID])
		if diff := cmp.Diff(told(t, want, wantErr), told(t, got, err)); diff != "" {
			t.Errorf("step %d, by the engine (-) and over the network (+):\n%s", i, diff)
		}
	}
}

// TestMistakes checks that errors which the request alone reveals have the engine's code and path.
func TestMistakes(t *testing.T) {
	e := newEngine(t)
	s := httptest.NewServer(handler(t, e))
	defer s.Close()
	for path, do := range map[string]step{
		"/outcome":       ask(operation.Decisions, engine.DecisionsRequest{Query: store.DecisionQuery{Outcome: "maybe"}}),
		"/minConfidence": ask(operation.Decisions, engine.DecisionsRequest{Query: store.DecisionQuery{MinConfidence: new(7.0)}}),
		"/limit":         ask(operation.Instances, engine.InstancesRequest{Limit: 501}),
		"/status":        ask(operation.Reviews, engine.ReviewsRequest{Status: "maybe"}),
	} {
		for name, at := range map[string]operation.Caller{
			"engine": operation.Call{Engine: e, Caller: auth.Identity{Principal: agent}},
			"server": newClient(t, client.Config{Server: s.URL, Token: agent.ID}),
		} {
			_, err := do(t.Context(), at)
			var e *engine.Error
			if !errors.As(err, &e) || e.Code != engine.CodeInvalidArgument || e.Path != path || e.Hint == "" {
				t.Errorf("%s, %s: %#v", name, path, err)
			}
		}
	}
}

// told returns a result together with its error as text.
func told(t *testing.T, v any, err error) string {
	t.Helper()
	out := map[string]any{"result": v}
	if err != nil {
		var e *engine.Error
		if !errors.As(err, &e) {
			t.Fatalf("not an *engine.Error: %v", err)
		}
		told := *e
		told.Err, told.RetryAfter = nil, 0
		out = map[string]any{"error": told}
	}
	text, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return eventHash.ReplaceAllString(string(text), `"hash": "of sealed values"`)
}

// eventHash matches an event's hash. It covers sealed values, which are never the same twice.
var eventHash = regexp.MustCompile(`"hash": "[0-9a-f]{64}"`)

// TestRetries checks that only safe requests are repeated.
func TestRetries(t *testing.T) {
	for name, test := range map[string]struct {
		do    func(ctx context.Context, c *client.Client) error
		tries int64
	}{
		"a question": {func(ctx context.Context, c *client.Client) error {
			_, err := operation.List.Do(ctx, c, operation.Empty{})
			return err
		}, 3},
		"with a key": {func(ctx context.Context, c *client.Client) error {
			_, err := operation.Start.Do(ctx, c, engine.StartRequest{Type: "x", Key: "k"})
			return err
		}, 3},
		"without one": {func(ctx context.Context, c *client.Client) error {
			_, err := operation.Start.Do(ctx, c, engine.StartRequest{Type: "x"})
			return err
		}, 1},
		"judge config": {func(ctx context.Context, c *client.Client) error {
			_, err := operation.ConfigureJudge.Do(ctx, c, engine.JudgeConfigRequest{Name: "x"})
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) < 3 {
					w.Header().Set("Content-Type", rest.ProblemType)
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte(`{"code":"busy","detail":"Full.","hint":"Again."}`))
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"id":"x"}`))
			}))
			defer s.Close()
			err := test.do(t.Context(), newClient(t, client.Config{Server: s.URL, Token: "t"}))
			if n := asked.Load(); n != test.tries {
				t.Errorf("%d tries", n)
			}
			if (err == nil) != (test.tries == 3) {
				t.Errorf("%v", err)
			}
			if e := (*engine.Error)(nil); err != nil && (!errors.As(err, &e) || e.Code != engine.CodeBusy || e.RetryAfter != time.Second) {
				t.Errorf("%#v", err)
			}
		})
	}
}

// TestStrangeServers checks that whatever a server sends, the error is an *engine.Error with a hint.
func TestStrangeServers(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		code    engine.Code
		says    string
	}{
		"a proxy": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<h1>Bad Gateway</h1>"))
		}, engine.CodeUnavailable, "502 Bad Gateway"},
		"another program": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, engine.CodeInternal, "not from a gavel server"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		}, engine.CodeInternal, "302 Found"},
		"a listener": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", rest.ProblemType)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"type":"about:blank","code":"invalid_token","detail":"The token is not valid."}`))
		}, "invalid_token", "The token is not valid."},
		"a cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, engine.CodeUnavailable, "could not be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			_, err := operation.List.Do(t.Context(), newClient(t, client.Config{Server: s.URL, Token: "top-secret", Tries: 1}), operation.Empty{})
			if engine.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "top-secret") {
				t.Errorf("%s: %v", engine.CodeOf(err), err)
			}
		})
	}
}

// TestConfig checks that an invalid configuration is reported before anything is sent.
func TestConfig(t *testing.T) {
	for server, says := range map[string]string{
		"gavel.example": "must be like", "ftp://gavel.example": "must be like", "https://me:pw@gavel.example": "without user", "http://gavel.example": "plain HTTP", "": "must be like",
	} {
		if _, err := client.New(client.Config{Server: server, Token: "t"}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", server, err)
		}
	}
	for _, cfg := range []client.Config{
		{Server: "http://localhost:1", Token: "t"}, {Server: "http://[::1]:1", Token: "t"}, {Server: "http://gavel.example", Token: "t", PlainHTTP: true}, {Server: "http://gavel.example"},
	} {
		newClient(t, cfg)
	}
	if _, err := client.New(client.Config{Server: "https://gavel.example", CAFile: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a file of certificates that is not there")
	}
}

// TestCAFile checks that only the certificates in the file are trusted.
func TestCAFile(t *testing.T) {
	s := httptest.NewUnstartedServer(handler(t, newEngine(t)))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := operation.Who.Do(t.Context(), newClient(t, client.Config{Server: s.URL, Token: agent.ID, CAFile: file}), operation.Empty{})
	if err != nil || who.Principal != agent.ID {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := operation.Who.Do(t.Context(), newClient(t, client.Config{Server: s.URL, Token: agent.ID}), operation.Empty{}); engine.CodeOf(err) != engine.CodeUnavailable ||
		!strings.Contains(err.Error(), "certificate of") || !strings.Contains(client.HintCertificate(errors.Unwrap(err)), "--ca-file") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}
