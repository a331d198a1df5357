package operation_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

var _ operation.Engine = (*engine.Engine)(nil)

// Every entry has texts, a right, and unique names and addresses.
func TestTable(t *testing.T) {
	t.Parallel()
	ids, places, tools := map[string]bool{}, map[string]bool{}, map[string]bool{}
	rightless := []string{"whoami", "listSources"}
	for _, op := range operation.All() {
		if op.Title == "" || op.Description == "" || op.Group == "" {
			t.Errorf("%s: no title, description or group", op.ID)
		}
		if len(op.Right.Roles()) == 0 && !slices.Contains(rightless, op.ID) {
			t.Errorf("%s: the right %q is nobody's", op.ID, op.Right)
		}
		if name := op.Tool.Name; name != "" && tools[name] {
			t.Errorf("two operations are the tool %s", name)
		}
		tools[op.Tool.Name] = true
		for i := range op.Routes {
			r := &op.Routes[i]
			if ids[r.ID] || places[r.Method+" "+r.Path] {
				t.Errorf("%s, %s %s: another operation has the id or the address", r.ID, r.Method, r.Path)
			}
			ids[r.ID], places[r.Method+" "+r.Path] = true, true
			if strings.Count(r.Path, "{") != len(r.Fields(operation.InPath)) {
				t.Errorf("%s: %s names what is no field", r.ID, r.Path)
			}
			if r.Reads() && len(r.Fields(operation.InBody)) > 0 {
				t.Errorf("%s: a GET has no body", r.ID)
			}
		}
		for _, f := range op.Fields {
			if f.Name == "" || f.Help == "" {
				t.Errorf("%s: a field without a name or words: %+v", op.ID, f)
			}
		}
	}
}

// The engine receives exactly what a tool call requests.
func TestBindTool(t *testing.T) {
	t.Parallel()
	three, half, yes := int64(3), 0.5, true
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		op    *operation.Operation
		raw   string
		means *operation.Operation
		want  any
	}{
		{
			operation.Advance.Operation, ` {"id":"wf-1","action":"go","data":{"n":1.50},"expectedRevision":3.0,"idempotencyKey":"k"} `, operation.Advance.Operation,
			&engine.AdvanceRequest{ID: "wf-1", Action: "go", Data: document.ReadTrusted([]byte(`{"n":1.50}`)), ExpectedRevision: &three, Key: "k"},
		},
		{
			operation.Advance.Operation, `{"id":"wf-1","action":"go","data":null,"expectedRevision":null}`, operation.Advance.Operation,
			&engine.AdvanceRequest{ID: "wf-1", Action: "go"},
		},
		{operation.List.Operation, ``, operation.List.Operation, &operation.Empty{}},
		{operation.List.Operation, `null`, operation.List.Operation, &operation.Empty{}},
		{operation.Define.Operation, `{"name":"x","initialState":"a","states":{},"more":1}`, operation.Define.Operation, &engine.DefineRequest{
			Source: "workflow.define", Document: []byte(`{"name":"x","initialState":"a","states":{},"more":1}`),
		}},
		{
			operation.Describe.Operation, `{"id":"wf-1","at":"2026-01-02T15:04:05Z"}`, operation.Describe.Operation,
			&engine.DescribeRequest{ID: "wf-1", When: engine.When{At: at}},
		},
		{operation.History.Operation, `{"id":"wf-1","afterSeq":3,"revision":2}`, operation.History.Operation, &engine.HistoryRequest{ID: "wf-1", AfterSeq: 3, Until: engine.When{Revision: 2}}},
		{
			operation.History.Operation, `{"id":"wf-1","limit":5,"minConfidence":0.5,"degraded":true,"outcome":"reject","since":"2026-01-02T15:04:05Z"}`, operation.Decisions.Operation,
			&engine.DecisionsRequest{Limit: 5, Query: store.DecisionQuery{Instance: "wf-1", MinConfidence: &half, Degraded: &yes, Outcome: judge.Reject, Since: at}},
		},
		{operation.Reviews.Operation, `{"reviewId":"rev-1"}`, operation.Review.Operation, &operation.IDRequest{ID: "rev-1"}},
		{operation.Reviews.Operation, `{"id":"wf-1","reviewId":null}`, operation.Reviews.Operation, &engine.ReviewsRequest{Instance: "wf-1"}},
		{operation.CanExecute.Operation, `{"id":"wf-1","states":["a","b"]}`, operation.CanExecute.Operation, &engine.CanExecuteRequest{ID: "wf-1", States: []string{"a", "b"}}},
		{operation.ConfigureJudge.Operation, `{"name":"x","enabled":true}`, operation.ConfigureJudge.Operation, func() any {
			req := &engine.JudgeConfigRequest{Name: "x"}
			req.Settings.Enabled = &yes
			return req
		}()},
	} {
		op, got, err := c.op.BindTool(json.RawMessage(c.raw))
		if err != nil || op != c.means {
			t.Errorf("%s: %v, and it means %v", c.raw, err, op)
			continue
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(engine.AdvanceRequest{})); diff != "" {
			t.Errorf("%s: %s", c.raw, diff)
		}
	}
}

// An error names the path of the mistake and the next step.
func TestBindToolRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op   *operation.Operation
		raw  string
		path string
		says string
	}{
		{operation.Advance.Operation, `[]`, "", "The arguments are a list, not an object."},
		{operation.Advance.Operation, `{"id":"wf-1","id":"wf-2"}`, "/id", "The arguments are not acceptable JSON: at /id,"},
		{operation.Advance.Operation, `{"id":"wf-1","acton":"go"}`, "/acton", `There is no argument "acton".`},
		{operation.Advance.Operation, `{"id":"wf-1"}`, "/action", `The argument "action" is missing.`},
		{operation.Advance.Operation, `{"id":"wf-1","action":null}`, "/action", `The argument "action" is missing.`},
		{operation.Advance.Operation, `{"id":"wf-1","action":"go","data":"{}"}`, "/data", `The argument "data" must be an object, but is a string.`},
		{operation.Advance.Operation, `{"id":"wf-1","action":"go","expectedRevision":1.5}`, "/expectedRevision", `The argument "expectedRevision" must be an integer, but is 1.5.`},
		{operation.Advance.Operation, `{"id":"wf-1","action":"go","expectedRevision":-1}`, "/expectedRevision", `The argument "expectedRevision" must be 0 or more, but is -1.`},
		{operation.ConfigureJudge.Operation, `{"name":"x","minConfidence":7}`, "/minConfidence", `The argument "minConfidence" must be from 0 to 1, but is 7.`},
		{operation.ConfigureJudge.Operation, `{"name":"x","enabled":"true"}`, "/enabled", `The argument "enabled" must be true or false, but is a string.`},
		{operation.CanExecute.Operation, `{"id":"wf-1","states":["a",null]}`, "/states", `The argument "states" must be a list of strings, but is a list.`},
		{operation.Instances.Operation, `{"status":"open"}`, "/status", `The argument "status" must be one of running, complete, cancelled, but is "open".`},
		{operation.Status.Operation, `{"id":"wf-1","at":"yesterday"}`, "/at", `The argument "at" must be a time, but is "yesterday".`},
		{operation.List.Operation, `{"x":1}`, "/x", `There is no argument "x".`},
		{operation.Define.Operation, `{"nmae":"x","initialState":"a","states":{}}`, "/nmae", `There is no argument "nmae".`},
		{operation.Define.Operation, `{"name":"x","initialState":"a","states":[]}`, "/states", `The argument "states" must be an object, but is a list.`},
		{operation.History.Operation, `{"afterSeq":1}`, "/id", `The argument "id" is missing.`},
		{operation.History.Operation, `{"id":"wf-1","afterSeq":1,"outcome":"reject"}`, "/afterSeq", `The arguments "afterSeq" and "outcome" cannot be combined.`},
		{operation.Reviews.Operation, `{"reviewId":"rev-1","status":"open"}`, "/status", `The arguments "status" and "reviewId" cannot be combined.`},
	} {
		_, _, err := c.op.BindTool(json.RawMessage(c.raw))
		var e *engine.Error
		if !errors.As(err, &e) || e.Path != c.path || !strings.HasPrefix(e.Message, c.says) || e.Hint == "" {
			t.Errorf("%s: %+v", c.raw, err)
		}
	}
}

// Arguments that are sent flat belong inside the open object of the operation. The error names that object, and shows
// how to write it.
func TestFlatArgumentsBelongInside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op         *operation.Operation
		raw        string
		says, hint string
	}{
		{
			operation.Advance.Operation, `{"id":"wf-1","action":"go","reviewer":"ada","documentId":"d"}`,
			`There are no arguments "documentId", "reviewer".`, `Put them inside data: "data": {"documentId": ..., "reviewer": ...}. The arguments are: id, action, data,`,
		},
		{operation.Advance.Operation, `{"id":"wf-1","action":"go","data":{"a":1},"b":2}`, `There is no argument "b".`, `Put it inside data: "data": {"b": ...}.`},
		{operation.Advance.Operation, `{"id":"wf-1","action":"go","date":"1 May"}`, `There is no argument "date".`, `Did you mean "data"? Put it inside data: "data": {"date": ...}.`},
		{operation.Validate.Operation, `{"id":"wf-1","action":"go","n":1}`, `There is no argument "n".`, `Put it inside data:`},
		{operation.Start.Operation, `{"type":"x","n":1}`, `There is no argument "n".`, `Put it inside context: "context": {"n": ...}.`},
		{operation.Start.Operation, `{"name":"x"}`, `There is no argument "name".`, `Did you mean "type"? The argument "type" is missing. The arguments are: type,`},
		{operation.Advance.Operation, `{"workflowId":"wf-1","action":"go"}`, `There is no argument "workflowId".`, `Did you mean "id"? The argument "id" is missing.`},
		{operation.Advance.Operation, `{"action":"go","n":1,"m":2}`, `There are no arguments "m", "n".`, `Put them inside data: "data": {"m": ..., "n": ...}. The argument "id" is missing.`},
		{operation.Checkpoint.Operation, `{"id":"wf-1","n":1}`, `There is no argument "n".`, `Put it inside metadata:`},
		{operation.Cancel.Operation, `{"id":"wf-1","n":1}`, `There is no argument "n".`, `The arguments are: id,`},
	} {
		_, _, err := c.op.BindTool(json.RawMessage(c.raw))
		var e *engine.Error
		if !errors.As(err, &e) || e.Message != c.says || !strings.HasPrefix(e.Hint, c.hint) {
			t.Errorf("%s: %+v", c.raw, err)
		}
	}
}

// A query is parsed as strictly, except that empty text counts as absent.
func TestBindQuery(t *testing.T) {
	t.Parallel()
	route := &operation.Decisions.Routes[0]
	bind := func(query string) (engine.DecisionsRequest, error) {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		req := operation.Decisions.NewRequest()
		err = operation.BindQuery(req, route.Fields(operation.InQuery), values)
		return *req.(*engine.DecisionsRequest), err
	}
	no, most := false, 0.25
	got, err := bind("id=wf-1&kind=started&kind=refused&degraded=false&maxConfidence=0.25&limit=7&outcome=")
	want := engine.DecisionsRequest{Limit: 7, Query: store.DecisionQuery{Instance: "wf-1", Kinds: got.Query.Kinds, Degraded: &no, MaxConfidence: &most}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(got.Query.Kinds) != 2 || got.Query.Kinds[1] != "refused" {
		t.Errorf("%v %s %v", err, diff, got.Query.Kinds)
	}
	for query, says := range map[string]string{
		"degraded=yes":             `The parameter "degraded" must be true or false, but is "yes".`,
		"limit=x":                  `The parameter "limit" must be an integer, but is "x".`,
		"limit=0":                  `The parameter "limit" must be from 1 to 1000, but is 0.`,
		"outcome=a":                `The parameter "outcome" must be one of approve, reject, escalate, but is "a".`,
		"since=2026":               `The parameter "since" must be a time, but is "2026".`,
		"workflow=a&workflow=b":    `The parameter "workflow" is given more than once.`,
		"minConfidence=NaN":        `The parameter "minConfidence" must be a number, but is "NaN".`,
		"minConfidence=0.5&text=x": "",
	} {
		_, err := bind(query)
		var e *engine.Error
		if says == "" && err != nil || says != "" && (!errors.As(err, &e) || e.Message != says || e.Hint == "") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// asked records the caller and the request.
type asked struct {
	operation.Engine
	who engine.Principal
	req engine.ResolveRequest
}

func (a *asked) Resolve(_ context.Context, p engine.Principal, req engine.ResolveRequest) (engine.ResolveResult, error) {
	a.who, a.req = p, req
	return engine.ResolveResult{}, nil
}

// ending is an engine that fails with an error.
type ending struct {
	operation.Engine
	err error
}

func (e ending) Tail(context.Context, engine.Principal, engine.TailRequest) (engine.TailResult, error) {
	return engine.TailResult{}, e.err
}

// Only a request whose context has ended is cancelled. If the work ended for another reason, trying again makes
// sense.
func TestCancelled(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		gone bool
		err  error
		want engine.Code
	}{
		{false, context.Canceled, engine.CodeUnavailable},
		{false, engine.StoreError("read the events", context.DeadlineExceeded), engine.CodeUnavailable},
		{false, &engine.Error{Code: engine.CodeBusy}, engine.CodeBusy},
		{true, context.Canceled, engine.CodeCancelled},
		{true, engine.StoreError("read the events", context.Canceled), engine.CodeCancelled},
	} {
		ctx := t.Context()
		if c.gone {
			ctx = gone
		}
		_, err := operation.Events.Do(ctx, operation.Call{Engine: ending{err: c.err}}, operation.EventsRequest{})
		if got := engine.CodeOf(err); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v, where the request has ended: %v: %s", c.err, c.gone, got)
		}
	}
}

// An operation runs as its caller. The face's channel is used if the request names none.
func TestCall(t *testing.T) {
	t.Parallel()
	e := &asked{}
	call := operation.Call{Engine: e, Caller: auth.Identity{Principal: engine.Principal{ID: "rita", Role: engine.RoleReviewer}}, Channel: "mcp"}
	if _, err := operation.Resolve.Do(t.Context(), call, engine.ResolveRequest{ID: "rev-1"}); err != nil || e.who.ID != "rita" || e.req.Channel != "mcp" {
		t.Errorf("%v: %+v asked %+v", err, e.who, e.req)
	}
	if _, err := operation.Resolve.Do(t.Context(), call, engine.ResolveRequest{Channel: "cli"}); err != nil || e.req.Channel != "cli" {
		t.Errorf("%v: %+v", err, e.req)
	}
}

// The list of fields of a tool with two operations fits both.
func TestToolFields(t *testing.T) {
	t.Parallel()
	names := func(op *operation.Operation) (list []string) {
		for _, f := range op.ToolFields() {
			if f.Required {
				t.Errorf("%s: %s is required", op.ID, f.Name)
			}
			list = append(list, f.Name)
		}
		return list
	}
	if got := names(operation.Reviews.Operation); !slices.Equal(got, []string{"reviewId", "status", "id", "workflow", "cursor", "limit"}) {
		t.Error(got)
	}
	if got := names(operation.History.Operation); got[0] != "id" || !slices.Contains(got, "outcome") || slices.Contains(got, "owner") {
		t.Error(got)
	}
	for _, f := range operation.History.ToolFields() {
		if f.Name == "outcome" && !strings.HasPrefix(f.Help, "Search: only ") {
			t.Error(f.Help)
		}
	}
}

// The route determines the place of a field over HTTP.
func TestPlaces(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	for _, op := range []*operation.Operation{operation.Advance.Operation, operation.Describe.Operation, operation.Define.Operation, operation.Events.Operation} {
		for i := range op.Routes {
			r := &op.Routes[i]
			for _, at := range []operation.ParameterLocation{operation.InPath, operation.InQuery, operation.InHeader, operation.InBody} {
				for _, f := range r.Fields(at) {
					got[r.ID+" "+string(at)] = append(got[r.ID+" "+string(at)], f.HTTP())
				}
			}
		}
	}
	want := map[string][]string{
		"advance path": {"id"}, "advance header": {"If-Match", "Idempotency-Key"}, "advance body": {"action", "data"},
		"getDefinition path": {"name"}, "getDefinition query": {"version", "at"},
		"instanceDefinition path": {"id"}, "instanceDefinition query": {"revision", "at"},
		"putDefinition path":   {"name"},
		"events header":        {"Last-Event-ID"},
		"events query":         {"after", "workflow", "limit"},
		"instanceEvents path":  {"id"},
		"instanceEvents query": {"after", "limit"}, "instanceEvents header": {"Last-Event-ID"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r := operation.Advance.Routes[0]; r.Method != http.MethodPost || r.ID != "advance" || r.Title != operation.Advance.Title {
		t.Errorf("%+v", r)
	}
}
