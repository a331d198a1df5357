package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
	"github.com/gavel-mcp/gavel/judge"
)

// TestAdvance checks that refused and parked moves are answers, and that an approved move changes the state.
func TestAdvance(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := a.start(agent)
	refused := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"submit"}`).is(http.StatusOK))
	if refused.Decision.Applied || refused.State != "draft" || len(refused.Decision.Violations) == 0 {
		t.Errorf("a refused move: %+v", refused)
	}
	moved := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"submit","data":{"title":"T"}}`).is(http.StatusOK))
	if !moved.Decision.Applied || moved.State != "reviewing" {
		t.Errorf("a made move: %+v", moved)
	}
	parked := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"publish"}`).is(http.StatusOK))
	if parked.Review == nil || parked.State != "reviewing" || parked.Decision.Applied {
		t.Errorf("a parked move: %+v", parked)
	}
	asked := into[engine.ValidateResult](a.ask(agent, "POST /v1/instances/"+id+"/validate", `{"action":"back"}`).is(http.StatusOK))
	if !asked.Approved || asked.State != "reviewing" {
		t.Errorf("a question: %+v", asked)
	}
}

// TestRefusedStart checks that a refused start creates nothing, and has neither a location nor a revision.
func TestRefusedStart(t *testing.T) {
	a := newAPI(t)
	a.define(operator, `{"name":"form","initialState":"a","inputSchema":{"type":"object","required":["who"]},"states":{"a":{"final":true}}}`)
	got := a.ask(agent, "POST /v1/instances", `{"type":"form"}`).is(http.StatusOK)
	if r := into[engine.StartResult](got); r.Decision.Applied || r.ID != "" {
		t.Errorf("a refused start: %s", got.body)
	}
	if got.header.Get("Location") != "" || got.header.Get("ETag") != "" {
		t.Errorf("a refused start has a place: %v", got.header)
	}
	made := a.ask(agent, "POST /v1/instances", `{"type":"form","context":{"who":"me"}}`).is(http.StatusCreated)
	if at := made.header.Get("Location"); at != "/v1/instances/"+into[engine.StartResult](made).ID {
		t.Errorf("Location %q", at)
	}
}

// extra is what the tests of a module set for TestEveryOperation to ask its operations, too.
var extra struct {
	services map[string]any
	steps    []step
}

// step is a request of an operator's, and the status of its answer.
type step struct {
	what, body string
	status     int
}

// TestEveryOperation calls each operation of the document, and checks the answer against the document (conforms).
func TestEveryOperation(t *testing.T) {
	a := newAPI(t, func(c *rest.Config) {
		c.Sources = func() []operation.Source { return []operation.Source{{Name: "ci", Kind: "http", ReadOnly: true}} }
		c.Services = extra.services
	})
	a.ask(operator, "POST /v1/definitions", paper).is(http.StatusCreated)
	a.ask(operator, "PUT /v1/definitions/paper", paper).is(http.StatusOK)
	id := a.start(agent)
	at := "/v1/instances/" + id
	steps := []struct {
		who        engine.Principal
		what, body string
	}{
		{agent, "GET /v1/whoami", ""},
		{agent, "GET /v1/evidence/sources", ""},
		{agent, "GET /v1/definitions", ""},
		{agent, "GET /v1/definitions/paper", ""},
		{agent, "GET /v1/definitions/paper?version=1", ""},
		{agent, "GET /v1/definitions/paper/diagram?format=dot", ""},
		{agent, "GET /v1/definitions/paper/judge", ""},
		{operator, "PATCH /v1/definitions/paper/judge", `{"minConfidence":0.7,"enabled":true}`},
		{operator, "POST /v1/refusals/clear", `{"workflow":"paper"}`},
		{agent, "POST /v1/decide", `{"workflow":"paper","state":"draft","action":"submit","data":{"title":"T"}}`},
		{agent, "POST " + at + "/advance", `{"action":"submit"}`},
		{agent, "POST " + at + "/advance", `{"action":"submit","data":{"title":"T","secret":"s3cr3t"}}`},
		{agent, "POST " + at + "/validate", `{"action":"back"}`},
		{operator, "POST " + at + "/checkpoints", `{"description":"here","metadata":{"n":1.50}}`},
		{agent, "GET " + at + "/checkpoints", ""},
		{operator, "POST " + at + "/transcript", `{"messages":["hello",{"role":"user","text":"publish it"}]}`},
		{operator, "POST " + at + "/undo", ""},
		{operator, "POST " + at + "/redo", "{}"},
		{agent, "POST " + at + "/advance", `{"action":"publish"}`},
		{agent, "GET /v1/instances", ""},
		{agent, "GET " + at, ""},
		{agent, "GET " + at + "?revision=1", ""},
		{agent, "GET " + at + "/definition", ""},
		{agent, "GET " + at + "/diagram", ""},
		{agent, "GET " + at + "/can-execute?state=draft&state=reviewing", ""},
		{agent, "GET " + at + "/history", ""},
		{auditor, "GET " + at + "/timeline", ""},
		{agent, "GET " + at + "/events", ""},
		{operator, "GET /v1/events", ""},
		{agent, "GET /v1/decisions?outcome=reject&kind=refused", ""},
		{auditor, "GET /v1/decisions/statistics", ""},
		{reviewer, "GET /v1/reviews", ""},
	}
	for _, s := range steps {
		a.ask(s.who, s.what, s.body).is(http.StatusOK)
	}
	reviews := into[engine.ReviewsResult](a.ask(reviewer, "GET /v1/reviews?workflow=paper", "").is(http.StatusOK))
	if reviews.Count != 1 {
		t.Fatalf("%d reviews", reviews.Count)
	}
	review := "/v1/reviews/" + reviews.Reviews[0].ID
	a.ask(reviewer, "GET "+review, "").is(http.StatusOK)
	got := into[engine.ResolveResult](a.ask(reviewer, "POST "+review+"/resolve", `{"decision":"approve","reason":"It is good."}`).is(http.StatusOK))
	if !got.Applied || got.Decision.Outcome != judge.Approve {
		t.Errorf("an approval: %+v", got)
	}
	checkpoints := into[engine.CheckpointsResult](a.ask(operator, "GET "+at+"/checkpoints", ""))
	a.ask(operator, "POST "+at+"/rollback", `{"checkpointId":"`+checkpoints.Checkpoints[0].CheckpointID+`"}`).is(http.StatusOK)
	a.ask(agent, "POST "+at+"/cancel", `{"reason":"done"}`).is(http.StatusOK)

	for _, s := range extra.steps {
		if s.status < http.StatusMultipleChoices {
			a.ask(operator, s.what, s.body).is(s.status)
		}
	}
	a.askPlainly(operator, id)

	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.paths {
		for _, op := range methods {
			if _, ok := seen.Load(op.OperationID); !ok {
				t.Errorf("%s (%s) was not asked", op.OperationID, path)
			}
		}
	}
	page := into[engine.TailResult](a.ask(agent, "GET "+at+"/events", ""))
	if n := len(page.Events); n < 8 || page.More || page.Next != page.Events[n-1].Position {
		t.Errorf("%d events, next %d", n, page.Next)
	}
	if body := compact(a.ask(auditor, "GET /v1/events", "").body); strings.Contains(body, "s3cr3t") {
		t.Error("a sensitive value is in the events")
	}
}

// An answer states whether an action is possible, and in which states it would be. It covers only the states that the
// caller names, if any.
func TestCanExecute(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	at := "/v1/instances/" + a.start(agent) + "/can-execute?"
	for query, want := range map[string]string{
		"action=submit":  `true ["draft"] The instance is in "draft" and allows "submit".`,
		"action=publish": `false ["reviewing"] The action "publish" is not possible in state "draft"; possible: "submit", "drop". It is possible in state "reviewing".`,
		"action=submit&state=reviewing&state=draft": `true ["reviewing" "draft"] The instance is in "draft" and allows "submit".`,
		"action=submit&state=reviewing":             `false ["reviewing"] The instance is in "draft"; this needs reviewing.`,
		"action=publish&state=draft":                `false ["draft"] The action "publish" is not possible in state "draft"; possible: "submit", "drop". It is possible in state "reviewing".`,
		"state=dropped":                             `false ["dropped"] The instance is in "draft"; this needs dropped.`,
	} {
		r := into[engine.CanExecuteResult](a.ask(agent, "GET "+at+query, "").is(http.StatusOK))
		if got := fmt.Sprintf("%t %q %s", r.Allowed, r.Required, r.Reason); got != want {
			t.Errorf("%s: %s\nwant %s", query, got, want)
		}
	}
}

// askPlainly calls the operations that were not called yet, with only the required parts.
func (a *api) askPlainly(who engine.Principal, id string) {
	a.t.Helper()
	for _, op := range operation.All() {
		for i := range op.Routes {
			route := &op.Routes[i]
			if _, ok := seen.Load(route.ID); ok {
				continue
			}
			members := map[string]any{}
			for _, f := range route.Fields(operation.InBody) {
				if f.Required {
					members[f.HTTP()] = map[operation.Kind]any{
						operation.String: "other", operation.Object: map[string]any{}, operation.Integer: 1, operation.Number: 1, operation.Boolean: true,
					}[f.Kind]
				}
			}
			body, err := json.Marshal(members)
			if err != nil {
				a.t.Fatal(err)
			}
			at := strings.NewReplacer("{id}", id, "{name}", "paper").Replace(route.Path)
			if got := a.ask(who, route.Method+" "+at, string(body)); got.status/100 != 2 {
				a.t.Errorf("%s: %d %s; ask for it in TestEveryOperation", route.ID, got.status, got.body)
			}
		}
	}
}

// TestProblems lists invalid requests and the expected problems.
func TestProblems(t *testing.T) {
	a := newAPI(t, func(c *rest.Config) { c.MaxBody = 4096 })
	a.define(operator, paper)
	id := a.start(agent)
	advance := "POST /v1/instances/" + id + "/advance"
	transcript := "POST /v1/instances/" + id + "/transcript"
	type pairs []string
	for name, c := range map[string]struct {
		what, body string
		headers    pairs
		status     int
		code       engine.Code
		path, says string
	}{
		"unknown path":          {"GET /v1/nothing", "", nil, 404, rest.CodeUnknownPath, "", "/v1/nothing"},
		"unclean path":          {"GET /v1/../v1/whoami", "", nil, 404, rest.CodeUnknownPath, "", ""},
		"doubled slash":         {"GET //v1/whoami", "", nil, 404, rest.CodeUnknownPath, "", ""},
		"trailing slash":        {"GET /v1/instances/", "", nil, 404, rest.CodeUnknownPath, "", ""},
		"wrong method":          {"DELETE /v1/instances/" + id, "", nil, 405, rest.CodeMethodNotAllowed, "", "GET, HEAD, OPTIONS"},
		"unknown instance":      {"GET /v1/instances/wf-none", "", nil, 404, engine.CodeUnknownInstance, "", ""},
		"slash in an id":        {"GET /v1/instances/wf%2Fnone", "", nil, 404, engine.CodeUnknownInstance, "", ""},
		"unknown workflow":      {"GET /v1/definitions/nothing", "", nil, 404, engine.CodeUnknownWorkflow, "", ""},
		"unknown parameter":     {"GET /v1/instances?statuss=running", "", nil, 400, engine.CodeInvalidArgument, "/statuss", `"status"`},
		"parameter twice":       {"GET /v1/instances?limit=1&limit=2", "", nil, 400, engine.CodeInvalidArgument, "/limit", "more than once"},
		"no number":             {"GET /v1/instances?limit=many", "", nil, 400, engine.CodeInvalidArgument, "/limit", "integer"},
		"too many":              {"GET /v1/instances?limit=100000", "", nil, 400, engine.CodeInvalidArgument, "/limit", ""},
		"broken query":          {"GET /v1/instances?limit=%zz", "", nil, 400, engine.CodeInvalidArgument, "", "query"},
		"no time":               {"GET /v1/instances/" + id + "?at=yesterday", "", nil, 400, engine.CodeInvalidArgument, "/at", "RFC 3339"},
		"time and revision":     {"GET /v1/instances/" + id + "?at=2026-01-02T15:04:05Z&revision=1", "", nil, 400, engine.CodeInvalidArgument, "/at", ""},
		"unknown revision":      {"GET /v1/instances/" + id + "?revision=9", "", nil, 404, engine.CodeUnknownRevision, "/revision", ""},
		"not true or false":     {"GET /v1/decisions?degraded=1", "", nil, 400, engine.CodeInvalidArgument, "/degraded", "true or false"},
		"unknown outcome":       {"GET /v1/decisions?outcome=maybe", "", nil, 400, engine.CodeInvalidArgument, "/outcome", "approve"},
		"unknown member":        {advance, `{"acton":"submit"}`, nil, 400, engine.CodeInvalidArgument, "/acton", `"action"`},
		"member in other case":  {advance, `{"Action":"submit"}`, nil, 400, engine.CodeInvalidArgument, "/Action", `"action"`},
		"missing member":        {advance, `{"data":{}}`, nil, 400, engine.CodeInvalidArgument, "/action", "missing"},
		"null counts as absent": {advance, `{"action":null}`, nil, 400, engine.CodeInvalidArgument, "/action", "missing"},
		"wrong type":            {advance, `{"action":7}`, nil, 400, engine.CodeInvalidArgument, "/action", "a string"},
		"JSON as text":          {advance, `{"action":"submit","data":"{}"}`, nil, 400, engine.CodeInvalidArgument, "/data", "not its JSON as text"},
		"no object":             {advance, `["submit"]`, nil, 400, engine.CodeInvalidArgument, "", "a list"},
		"key twice":             {advance, `{"action":"submit","action":"drop"}`, nil, 400, engine.CodeInvalidData, "/action", "duplicate key"},
		"key twice inside":      {advance, `{"action":"submit","data":{"a":1,"a":2}}`, nil, 400, engine.CodeInvalidData, "/data/a", ""},
		"number changed":        {advance, `{"action":"submit","data":{"n":9007199254740993}}`, nil, 400, engine.CodeInvalidData, "/data/n", ""},
		"no UTF-8":              {advance, "{\"action\":\"\xff\"}", nil, 400, engine.CodeInvalidData, "/action", ""},
		"too deep":              {advance, `{"action":"submit","data":` + strings.Repeat(`{"a":`, 120) + "1" + strings.Repeat("}", 121), nil, 400, engine.CodeInvalidData, "", "deep"},
		"two values":            {advance, `{"action":"submit"}{}`, nil, 400, engine.CodeInvalidData, "", ""},
		"too large":             {advance, `{"action":"` + strings.Repeat("x", 5000) + `"}`, nil, 413, engine.CodeTooLarge, "", "4096"},
		"form":                  {advance, `action=submit`, pairs{"Content-Type", "application/x-www-form-urlencoded"}, 415, rest.CodeUnsupportedMedia, "", "application/json"},
		"no type":               {advance, `{"action":"submit"}`, pairs{"Content-Type", ""}, 415, rest.CodeUnsupportedMedia, "", ""},
		"other charset":         {advance, `{"action":"submit"}`, pairs{"Content-Type", "application/json; charset=latin1"}, 415, rest.CodeUnsupportedMedia, "", "UTF-8"},
		"packed":                {advance, `{"action":"submit"}`, pairs{"Content-Encoding", "gzip"}, 415, rest.CodeUnsupportedMedia, "", ""},
		"YAML where it is not":  {advance, `action: submit`, pairs{"Content-Type", "application/yaml"}, 415, rest.CodeUnsupportedMedia, "", ""},
		"XML wanted":            {advance, `{"action":"submit"}`, pairs{"Accept", "application/xml"}, 406, rest.CodeNotAcceptable, "", "application/json"},
		"JSON not wanted":       {"GET /v1/whoami", "", pairs{"Accept", "application/json;q=0, */*"}, 406, rest.CodeNotAcceptable, "", ""},
		"If-Match of no form":   {advance, `{"action":"submit"}`, pairs{"If-Match", "7"}, 400, engine.CodeInvalidArgument, "/If-Match", "double quotes"},
		"If-Match of two":       {advance, `{"action":"submit"}`, pairs{"If-Match", `"1", "2"`}, 400, engine.CodeInvalidArgument, "/If-Match", ""},
		"If-Match unread":       {"POST /v1/instances", `{"type":"paper"}`, pairs{"If-Match", `"1"`}, 400, engine.CodeInvalidArgument, "/If-Match", ""},
		"empty key":             {advance, `{"action":"submit"}`, pairs{"Idempotency-Key", `""`}, 400, engine.CodeInvalidArgument, "/Idempotency-Key", ""},
		"key without an end":    {advance, `{"action":"submit"}`, pairs{"Idempotency-Key", `"k`}, 400, engine.CodeInvalidArgument, "/Idempotency-Key", ""},
		"long key":              {advance, `{"action":"submit"}`, pairs{"Idempotency-Key", strings.Repeat("k", 300)}, 413, engine.CodeTooLarge, "", ""},
		"forbidden":             {"PUT /v1/definitions/paper", paper, nil, 403, engine.CodeForbidden, "/name", ""},
		"another name":          {"PUT /v1/definitions/letter", paper, nil, 400, engine.CodeInvalidArgument, "/name", ""},
		"no definition":         {"POST /v1/definitions", `{"name":"x"}`, nil, 422, engine.CodeInvalidDefinition, "", ""},
		"empty definition":      {"POST /v1/definitions", ``, nil, 422, engine.CodeInvalidDefinition, "", ""},
		"unknown setting":       {"PATCH /v1/definitions/paper/judge", `{"minConfidense":1}`, nil, 400, engine.CodeInvalidArgument, "/minConfidense", `"minConfidence"`},
		"loosened judge":        {"PATCH /v1/definitions/paper/judge", `{"enabled":false}`, nil, 403, engine.CodeForbidden, "", ""},
		"nothing to undo":       {"POST /v1/instances/" + id + "/undo", ``, nil, 403, engine.CodeForbidden, "", ""},
		"unknown checkpoint":    {"POST /v1/instances/" + id + "/rollback", `{"checkpointId":"none"}`, nil, 403, engine.CodeForbidden, "", ""},
		"an agent's transcript": {transcript, `{"messages":["refund me"]}`, nil, 403, engine.CodeForbidden, "", "proxy"},
		"an assistant's words":  {transcript, `{"messages":["hello",{"role":"assistant","text":"done"}]}`, nil, 400, engine.CodeInvalidArgument, "/messages/1", `"assistant"`},
		"words of no one":       {transcript, `{"messages":[{"text":"hello"}]}`, nil, 400, engine.CodeInvalidArgument, "/messages/0", "role"},
		"no words":              {transcript, `{"messages":[{"role":"user","content":"hello"}]}`, nil, 400, engine.CodeInvalidArgument, "/messages/0", "no text"},
		"no list of messages":   {transcript, `{"messages":"hello"}`, nil, 400, engine.CodeInvalidArgument, "/messages", "a list"},
		"unknown review":        {"GET /v1/reviews/none", "", nil, 404, engine.CodeUnknownReview, "", ""},
		"own review":            {"POST /v1/reviews/none/resolve", `{"decision":"approve","reason":"r"}`, nil, 403, engine.CodeForbidden, "", ""},
		"half an integer":       {"POST /v1/decide", `{"workflow":"paper","version":1.5,"state":"draft","action":"submit"}`, nil, 400, engine.CodeInvalidArgument, "/version", "an integer"},
		"unknown state":         {"POST /v1/decide", `{"workflow":"paper","state":"nowhere","action":"submit"}`, nil, 400, engine.CodeInvalidArgument, "/state", ""},
		"no id of an event":     {"GET /v1/events", "", pairs{"Last-Event-ID", "x"}, 400, engine.CodeInvalidArgument, "/Last-Event-ID", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := a.in(t).ask(agent, c.what, c.body, c.headers...).is(c.status)
			p := got.problem(c.code)
			if p.Path != c.path && c.path != "" {
				t.Errorf("path %q, want %q: %s", p.Path, c.path, got.body)
			}
			if !strings.Contains(p.Detail+" "+p.Hint, c.says) {
				t.Errorf("it does not say %q: %s", c.says, got.body)
			}
			if p.Type == "" || p.Title == "" || p.Detail == "" || p.Instance == "" || p.RequestID != got.header.Get("X-Request-Id") {
				t.Errorf("not whole: %s", got.body)
			}
		})
	}
}

// TestAnonymousCallersGetOnlyTheDocument checks that without an identity, only the document is served.
func TestAnonymousCallersGetOnlyTheDocument(t *testing.T) {
	a := newAPI(t)
	nobody := engine.Principal{ID: "nobody"}
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.paths {
		for method := range methods {
			got := a.ask(nobody, strings.ToUpper(method)+" "+path, "").is(http.StatusUnauthorized)
			got.problem(engine.CodeUnauthenticated)
			if got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: no WWW-Authenticate", method, path)
			}
		}
	}
	a.ask(nobody, "GET /v1/nothing", "").is(http.StatusUnauthorized)
	got := a.ask(nobody, "GET /openapi.json", "").is(http.StatusOK)
	if !strings.HasPrefix(string(got.body), "{") || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the document: %.40s", got.body)
	}
	a.ask(nobody, "POST /openapi.json", "").is(http.StatusMethodNotAllowed)
}

// TestMethods checks that every path reports the methods that it supports.
func TestMethods(t *testing.T) {
	a := newAPI(t)
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.paths {
		want := []string{"OPTIONS"}
		for m := range maps.Keys(methods) {
			want = append(want, strings.ToUpper(m))
		}
		if slices.Contains(want, "GET") {
			want = append(want, "HEAD")
		}
		slices.Sort(want)
		got := a.ask(agent, "TRACE "+path, "").is(http.StatusMethodNotAllowed)
		got.problem(rest.CodeMethodNotAllowed)
		if allow := got.header.Get("Allow"); allow != strings.Join(want, ", ") {
			t.Errorf("%s: Allow %q, want %q", path, allow, want)
		}
		if allow := a.ask(agent, "OPTIONS "+path, "").is(http.StatusNoContent).header.Get("Allow"); allow != strings.Join(want, ", ") {
			t.Errorf("%s: OPTIONS allows %q", path, allow)
		}
	}
}

// TestHead checks that HEAD gets the response of GET without the body.
func TestHead(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := a.start(agent)
	get, head := a.ask(agent, "GET /v1/instances/"+id, ""), a.ask(agent, "HEAD /v1/instances/"+id, "").is(http.StatusOK)
	if len(head.body) != 0 || head.header.Get("Content-Length") != get.header.Get("Content-Length") || head.header.Get("ETag") != get.header.Get("ETag") {
		t.Errorf("HEAD: %q %v, GET: %v", head.body, head.header, get.header)
	}
	a.ask(agent, "HEAD /v1/instances/wf-none", "").is(http.StatusNotFound)
}

// TestRequestID checks that a caller's own id is used if it is acceptable in a log, and replaced otherwise.
func TestRequestID(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		sent string
		kept bool
	}{{"abc-123", true}, {"", false}, {"a b", false}, {strings.Repeat("x", 200), false}, {"line\tbreak", false}} {
		got := a.ask(agent, "GET /v1/whoami", "", "X-Request-Id", c.sent).is(http.StatusOK).header.Get("X-Request-Id")
		if (got == c.sent) != c.kept || got == "" {
			t.Errorf("sent %q, got %q", c.sent, got)
		}
	}
}

// TestDefinitionsAsYAML checks that a definition may be YAML.
func TestDefinitionsAsYAML(t *testing.T) {
	a := newAPI(t)
	text := "name: note\ninitialState: a\nstates:\n  a: {final: true}\n"
	got := a.ask(agent, "PUT /v1/definitions/note", text, "Content-Type", "application/yaml").is(http.StatusCreated)
	if at := got.header.Get("Location"); at != "/v1/definitions/note?version=1" {
		t.Errorf("Location %q", at)
	}
	a.ask(agent, "PUT /v1/definitions/note", text, "Content-Type", "text/yaml; charset=UTF-8").is(http.StatusOK)
	a.ask(agent, "PUT /v1/definitions/note", text).is(http.StatusUnprocessableEntity) // not valid as JSON
	a.ask(agent, "GET "+got.header.Get("Location"), "").is(http.StatusOK)
	p := a.ask(agent, "POST /v1/definitions", "name: note\ninitialState: b\nstates:\n  a: {final: true}\n", "Content-Type", "application/yaml").problem(engine.CodeInvalidDefinition)
	if len(p.Issues) == 0 || p.Issues[0].Line == 0 {
		t.Errorf("the issues: %+v", p.Issues)
	}
}

// TestNumbersKeepTheirDigits checks that numbers are stored and returned as they were written.
func TestNumbersKeepTheirDigits(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := into[engine.StartResult](a.ask(agent, "POST /v1/instances", `{"type":"paper","context":{"n":1.50,"e":1e3,"z":-0}}`).is(http.StatusCreated)).ID
	got := compact(a.ask(agent, "GET /v1/instances/"+id, "").is(http.StatusOK).body)
	if !strings.Contains(got, `"n":1.50`) || !strings.Contains(got, `"e":1e3`) {
		t.Errorf("the digits changed: %s", got)
	}
}

// TestPages checks that Link leads through a whole list, and is absent at its end.
func TestPages(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	want := map[string]bool{}
	for range 7 {
		want[a.start(agent)] = true
	}
	got := map[string]bool{}
	next, pages := "/v1/instances?limit=3&workflow=paper", 0
	for next != "" {
		pages++
		page := a.ask(agent, "GET "+next, "").is(http.StatusOK)
		for _, i := range into[engine.InstancesResult](page).Instances {
			if got[i.ID] {
				t.Errorf("%s twice", i.ID)
			}
			got[i.ID] = true
		}
		next = follow(t, page.header.Get("Link"))
	}
	if !maps.Equal(got, want) || pages != 3 {
		t.Errorf("%d of %d in %d pages", len(got), len(want), pages)
	}
	events, next := 0, "/v1/events?limit=2"
	for next != "" {
		page := a.ask(agent, "GET "+next, "").is(http.StatusOK)
		events += len(into[engine.TailResult](page).Events)
		next = follow(t, page.header.Get("Link"))
	}
	if events != 7 {
		t.Errorf("%d events", events)
	}
}

// follow returns the address of rel="next", or "".
func follow(t *testing.T, link string) string {
	t.Helper()
	if link == "" {
		return ""
	}
	at, rel, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if !ok || rel != `; rel="next"` {
		t.Fatalf("Link %q", link)
	}
	return at
}

// TestOthers checks that an agent can neither read nor change another's instances.
func TestOthers(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := a.start(agent)
	at := "/v1/instances/" + id
	a.ask(agent, "POST "+at+"/advance", `{"action":"submit","data":{"title":"T","secret":"s3cr3t"}}`).is(http.StatusOK)
	a.ask(agent, "POST "+at+"/advance", `{"action":"publish"}`).is(http.StatusOK)
	review := into[engine.ReviewsResult](a.ask(agent, "GET /v1/reviews", "").is(http.StatusOK)).Reviews[0].ID

	before := a.ask(agent, "GET "+at, "").body
	for _, what := range []string{
		"GET " + at, "GET " + at + "?revision=1", "GET " + at + "/definition", "GET " + at + "/diagram", "GET " + at + "/can-execute?state=draft",
		"GET " + at + "/history", "GET " + at + "/timeline", "GET " + at + "/events", "GET " + at + "/checkpoints", "GET /v1/decisions?id=" + id,
		"POST " + at + "/cancel", "POST " + at + "/undo", "POST " + at + "/redo", "POST " + at + "/checkpoints",
	} {
		a.ask(stranger, what, "").is(http.StatusNotFound).problem(engine.CodeUnknownInstance)
	}
	for what, body := range map[string]string{
		"POST " + at + "/advance": `{"action":"back"}`, "POST " + at + "/validate": `{"action":"back"}`, "POST " + at + "/rollback": `{"checkpointId":"c"}`,
	} {
		a.ask(stranger, what, body).is(http.StatusNotFound).problem(engine.CodeUnknownInstance)
	}
	a.ask(stranger, "GET /v1/reviews/"+review, "").is(http.StatusNotFound)
	a.ask(agent, "POST /v1/reviews/"+review+"/resolve", `{"decision":"approve","reason":"Mine."}`).is(http.StatusForbidden)
	for _, what := range []string{"GET /v1/instances", "GET /v1/decisions", "GET /v1/decisions?owner=ann", "GET /v1/reviews?status=all", "GET /v1/events"} {
		if got := a.ask(stranger, what, "").is(http.StatusOK); strings.Contains(string(got.body), id) {
			t.Errorf("%s tells of another's: %s", what, got.body)
		}
	}
	if after := a.ask(agent, "GET "+at, "").body; string(after) != string(before) {
		t.Errorf("it changed: %s", after)
	}
	if body := a.ask(auditor, "GET "+at, "").is(http.StatusOK).body; strings.Contains(string(body), "s3cr3t") {
		t.Error("an auditor is shown a sensitive value")
	}
}
