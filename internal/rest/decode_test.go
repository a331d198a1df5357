package rest_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
	"github.com/gavel-mcp/gavel/judge"
	jsondoc "github.com/gavel-mcp/gavel/validators/document"
)

// heard is an engine that records requests and decides nothing.
type heard struct {
	operation.Engine
	advance   *engine.AdvanceRequest
	decisions *engine.DecisionsRequest
}

func (h *heard) Advance(_ context.Context, _ engine.Principal, req engine.AdvanceRequest) (engine.AdvanceResult, error) {
	h.advance = &req
	return engine.AdvanceResult{}, nil
}

func (h *heard) Decisions(_ context.Context, _ engine.Principal, req engine.DecisionsRequest) (engine.DecisionsResult, error) {
	h.decisions = &req
	return engine.DecisionsResult{}, nil
}

// hear serves a request with an engine that only records.
func hear(t testing.TB, r *http.Request) (*heard, *httptest.ResponseRecorder) {
	t.Helper()
	e := &heard{}
	h, err := rest.New(rest.Config{Engine: e, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: agent})))
	return e, w
}

// FuzzBody checks that a body is either unambiguous or rejected with a problem, and that nothing makes the handler
// fail.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"action":"go","data":{"n":1.50}}`, `{"action":"go","data":null}`, `{}`, `[]`, `{"action":"a","Action":"b"}`, `{"action":"\ud800"}`,
		`{"action":"a","data":{"a":1,"a":2}}`, "{\"action\":\"\xff\"}", `{"action":1e999}`, ` {"action" : "x" } `, "\xEF\xBB\xBF{}", `{"action":"a"}{}`, ``,
		"{\"action\":\"a\"}\f", "\u00a0{\"action\":\"a\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/v1/instances/wf-1/advance", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		e, w := hear(t, r)
		if e.advance == nil {
			var p rest.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code < 400 || w.Code >= 500 || p.Status != w.Code || p.Detail == "" {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return
		}
		var read map[string]json.RawMessage
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatalf("it was taken, and is no JSON: %v", err)
		}
		var action string
		if err := json.Unmarshal(read["action"], &action); err != nil || action != e.advance.Action {
			t.Fatalf("the action is %q, %q was asked", action, e.advance.Action)
		}
		if data := read["data"]; string(data) != string(e.advance.Data.Raw()) && string(data) != "null" {
			t.Fatalf("the data are %s, %s were asked", data, e.advance.Data.Raw())
		}
		for key := range read {
			if key != "action" && key != "data" {
				t.Fatalf("the member %q was passed over", key)
			}
		}
	})
}

// TestRequestsComeThrough checks that the engine receives exactly the request that a client passed to NewRequest.
func TestRequestsComeThrough(t *testing.T) {
	base, err := url.Parse("http://gavel.example")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`[^\x00-\x1f\x7f]{1,20}`)
		revision := rapid.Int64Range(1, 1<<53).Draw(rt, "revision")
		ask := engine.AdvanceRequest{
			ID: "wf-" + text.Draw(rt, "id"), Action: text.Draw(rt, "action"), ExpectedRevision: &revision,
			Key:  rapid.StringMatching(`[a-zA-Z0-9!#$%&'()*+,./:;<=>?@\[\]^_{|}~-]{1,40}`).Draw(rt, "key"),
			Data: jsondoc.ReadTrusted([]byte(`{"n":1.50,"t":` + quoted(text.Draw(rt, "data")) + `}`)),
		}
		r, err := rest.NewRequest(t.Context(), base, operation.Advance.Operation, &ask)
		if err != nil {
			rt.Fatal(err)
		}
		e, w := hear(t, r)
		if e.advance == nil {
			rt.Fatalf("%d %s", w.Code, w.Body)
		}
		if diff := cmp.Diff(ask, *e.advance, cmpopts.IgnoreUnexported(ask)); diff != "" {
			rt.Fatal(diff)
		}
	})
	yes, least, most := true, 0.125, 1.0
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 2*60*60))
	ask := engine.DecisionsRequest{Cursor: "7", Limit: 3, Query: store.DecisionQuery{
		Workflow: "a&b", Instance: "wf 1", Owner: "o", Principal: "p", Action: "ä/ö", Outcome: judge.Approve, DecidedBy: judge.LayerModel,
		Assurance: judge.AssuranceLLM, Code: "c", Degraded: &yes, MinConfidence: &least, MaxConfidence: &most, Since: at, Until: at,
		Kinds: []record.Kind{"started", "refused"}, Text: "x + y",
	}}
	for _, f := range operation.Decisions.Routes[0].Fields(operation.InQuery) {
		if f.In(&ask).IsZero() {
			t.Errorf("%s is not tried", f.Name)
		}
	}
	r, err := rest.NewRequest(t.Context(), base, operation.Decisions.Operation, &ask)
	if err != nil {
		t.Fatal(err)
	}
	e, w := hear(t, r)
	if e.decisions == nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if diff := cmp.Diff(ask, *e.decisions); diff != "" {
		t.Error(diff)
	}
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// broken is an engine with defects.
type broken struct{ operation.Engine }

func (broken) List(context.Context, engine.Principal) ([]engine.DefinitionSummary, error) {
	panic("a secret of the inside")
}

func (broken) StatusAt(context.Context, engine.Principal, string, engine.When) (engine.StatusResult, error) {
	return engine.StatusResult{}, context.DeadlineExceeded
}

func (broken) Review(context.Context, engine.Principal, string) (engine.ReviewView, error) {
	return engine.ReviewView{}, &engine.Error{Code: engine.CodeRateLimited, Message: "Too fast.", RetryAfter: 1500 * time.Millisecond}
}

// TestDefects checks that a defect fails only one request, and that its details appear only in the log.
func TestDefects(t *testing.T) {
	var log strings.Builder
	h, err := rest.New(rest.Config{Engine: broken{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		status int
		code   engine.Code
		retry  string
	}{
		"/v1/definitions":     {http.StatusInternalServerError, engine.CodeInternal, ""},
		"/v1/instances/wf-1":  {http.StatusServiceUnavailable, engine.CodeUnavailable, "1"},
		"/v1/reviews/rev-1":   {http.StatusTooManyRequests, engine.CodeRateLimited, "2"},
		"/v1/definitions/../": {http.StatusNotFound, rest.CodeUnknownPath, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: agent})))
		var p rest.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != want.status || p.Code != want.code || w.Header().Get("Retry-After") != want.retry {
			t.Errorf("%s: %d %q %s", path, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("it tells of itself: %s", w.Body)
		}
	}
	if !strings.Contains(log.String(), "a secret of the inside") {
		t.Errorf("the log does not: %s", log.String())
	}
}

// TestNewRefuses checks that an unusable configuration is rejected.
func TestNewRefuses(t *testing.T) {
	fine := rest.Config{Engine: broken{}, Logger: slog.New(slog.DiscardHandler)}
	for name, change := range map[string]func(*rest.Config){
		"no engine":  func(c *rest.Config) { c.Engine = nil },
		"no logger":  func(c *rest.Config) { c.Logger = nil },
		"tiny body":  func(c *rest.Config) { c.MaxBody = 1 },
		"no streams": func(c *rest.Config) { c.MaxStreams = -1 },
		"no time":    func(c *rest.Config) { c.Heartbeat = -1 },
	} {
		cfg := fine
		change(&cfg)
		if _, err := rest.New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := rest.New(fine); err != nil {
		t.Error(err)
	}
}
