package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// Scripts for each way in which a script can end.
const (
	hang    = "() => Array.prototype.indexOf.call({length: 2**53-1}, 1)" // cannot be interrupted
	spin    = "() => { for (;;); }"
	explode = "() => 'x'.repeat(1e9)"
	panics  = "() => { const x = [5,4,3,2,1]; x.sort(() => { x.length = 0; return 1 }); return true }"
	yes     = "() => true"
	no      = "() => ({ valid: false, confidence: 0.5, reason: 'no' })"
)

func newPool(t testing.TB, cfg script.Config) *script.Pool {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	if cfg.WorkerPath == "" {
		cfg.WorkerPath = workerPath
	}
	p, err := script.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func validators(sources ...string) []script.Script {
	var list []script.Script
	for i, s := range sources {
		list = append(list, script.Script{Name: "v" + string(rune('0'+i)), Kind: script.Validator, Source: s})
	}
	return list
}

func conditions(sources ...string) []script.Script {
	list := validators(sources...)
	for i := range list {
		list[i].Name, list[i].Kind = "r"+list[i].Name[1:], script.Condition
	}
	return list
}

func one(t testing.TB, p *script.Pool, source, data string) script.Result {
	t.Helper()
	r, err := p.Run(context.Background(), script.Batch{
		Caller: t.Name(), Owner: script.Owner{ID: t.Name()}, Now: time.Unix(1_700_000_000, 0), Validators: validators(source),
		Data: json.RawMessage(data), Context: json.RawMessage(`{"state":"draft"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Results[0]
}

func codes(results []script.Result) (list []script.Code) {
	for _, r := range results {
		list = append(list, r.Code)
	}
	return list
}

func TestResultsOfAScript(t *testing.T) {
	p := newPool(t, script.Config{})
	for _, c := range []struct {
		source string
		want   script.Result
	}{
		{
			"(data, context) => ({ valid: data.n > 2 && context.state === 'draft', confidence: 0.5, reason: 'r' })",
			script.Result{Code: script.OK, Valid: true, Confidence: 0.5, Reason: "r"},
		},
		{"(d) => d.n < 2", script.Result{Code: script.OK, Confidence: 1}},
		{
			"() => ({ valid: false, violations: ['a', 'b'], suggestions: ['c'] })",
			script.Result{Code: script.OK, Confidence: 1, Violations: []string{"a", "b"}, Suggestions: []string{"c"}},
		},
		{"(d) => d.x.y", script.Result{Code: script.Threw, Detail: "it threw TypeError: Cannot read property 'y' of undefined (line 1)"}},
		{"(d) => {\n  throw new Error('no\\u001b[0m')\n}", script.Result{Code: script.Threw, Detail: "it threw Error: no[0m (line 2)"}},
		{"() => { throw 'text' }", script.Result{Code: script.Threw, Detail: "it threw text (line 1)"}},
		{"(d) => d.comments", script.Result{Code: script.BadResult, Detail: "it returned undefined"}},
		{"(d) => ({ valid: d.comments && true })", script.Result{Code: script.OK, Confidence: 1}},
		{"() => ({ valid: true, confidence: 2 })", script.Result{Code: script.BadResult, Detail: "confidence must be a number from 0 to 1"}},
		{"async () => true", script.Result{Code: script.BadSource, Detail: "must be synchronous"}},
		{"data.n > 2", script.Result{Code: script.BadSource, Detail: "write one function"}},
		{"() => {", script.Result{Code: script.BadSource, Detail: "unexpected end"}},
		{"", script.Result{Code: script.BadSource, Detail: "is empty"}},
		{"() => { const f = () => f(); f() }", script.Result{Code: script.Threw, Detail: "use a loop instead of recursion"}},
		{spin, script.Result{Code: script.Timeout, Detail: "longer than 50ms and was interrupted"}},
		{hang, script.Result{Code: script.Timeout, Detail: "longer than 200ms inside one built-in call"}},
		{explode, script.Result{Code: script.Memory, Detail: "more memory than the 32 MiB"}},
		{panics, script.Result{Code: script.Internal, Detail: "made the interpreter itself fail"}},
	} {
		got := one(t, p, c.source, `{"n":3}`)
		if !strings.Contains(got.Detail, c.want.Detail) || (got.Detail == "") != (got.Code == script.OK) {
			t.Errorf("%s: detail %q, want %q", c.source, got.Detail, c.want.Detail)
		}
		got.Detail, c.want.Detail, c.want.Name = "", "", "v0"
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.source, got, c.want)
		}
	}
}

func TestRoutes(t *testing.T) {
	p := newPool(t, script.Config{})
	for _, c := range []struct {
		name    string
		routes  []string
		route   int
		fault   script.Code
		faultIn string
	}{
		{"first", []string{"true", "true"}, 0, "", ""},
		{"in order", []string{"data.n > 5", "data.n > 2", "true"}, 1, "", ""},
		{"none", []string{"false", "data.n > 5"}, -1, "", ""},
		{"fault before one is true", []string{"false", "data.x.y", "true"}, -1, script.Threw, "r1"},
		{"fault behind it", []string{"true", "data.x.y"}, 0, "", ""},
		{"truthy is not true", []string{"data.n", "true"}, -1, script.BadResult, "r0"},
		{"does not parse", []string{"false", "data.n >"}, -1, script.BadSource, "r1"},
		{"not even sent, reached", []string{"false", " ", "true"}, -1, script.BadSource, "r1"},
		{"not even sent, first", []string{" ", "true"}, -1, script.BadSource, "r0"},
		{"not even sent, not reached", []string{"true", " "}, 0, "", ""},
		{"loops", []string{"(() => { for (;;); })()", "true"}, -1, script.Timeout, "r0"},
		{"dies", []string{"false", "'x'.repeat(1e9).length > 1", "true"}, -1, script.Memory, "r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := p.Stats().Trips
			r, err := p.Run(context.Background(), script.Batch{
				Caller: t.Name(), Owner: script.Owner{ID: t.Name()}, Routes: conditions(c.routes...), Validators: validators(yes, no), Data: json.RawMessage(`{"n":3}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Route != c.route {
				t.Errorf("route %d, want %d", r.Route, c.route)
			}
			switch {
			case c.fault == "" && r.RouteFault != nil, c.fault != "" && (r.RouteFault == nil || r.RouteFault.Code != c.fault || r.RouteFault.Name != c.faultIn):
				t.Errorf("fault %+v, want %s in %s", r.RouteFault, c.fault, c.faultIn)
			}
			if wantResults := c.route >= 0; wantResults != (len(r.Results) == 2) || !wantResults && len(r.Results) > 0 {
				t.Errorf("%d results", len(r.Results))
			}
			if trips := p.Stats().Trips - before; c.fault == "" && trips != 1 {
				t.Errorf("%d trips", trips)
			}
		})
	}
}

// TestBlame: a batch survives the death of its worker, and only the script that caused it is charged.
func TestBlame(t *testing.T) {
	p := newPool(t, script.Config{})
	r, err := p.Run(context.Background(), script.Batch{
		Caller: "o", Owner: script.Owner{ID: "o"}, Routes: conditions("false", "true"),
		Validators: validators(yes, hang, no, explode, panics, "nonsense(", spin, yes),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []script.Code{script.OK, script.Timeout, script.OK, script.Memory, script.Internal, script.BadSource, script.Timeout, script.OK}
	if got := codes(r.Results); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !r.Results[0].Valid || r.Results[2].Valid || r.Results[2].Reason != "no" || !r.Results[7].Valid || r.Route != 1 {
		t.Errorf("%+v", r)
	}
	for i, r := range r.Results {
		if want := "v" + string(rune('0'+i)); r.Name != want {
			t.Errorf("result %d is named %s", i, r.Name)
		}
	}
	// On a busy machine, a timeout may have been retried.
	if s := p.Stats(); s.Kills != 1 || s.Deaths != 1 || s.Timeouts-s.Retries != 1 || s.Recycled != 1 {
		t.Errorf("%+v", s)
	}
	r, err = p.Run(context.Background(), script.Batch{Caller: "p", Owner: script.Owner{ID: "p"}, Routes: conditions("true", "false", "false"), Validators: validators(hang, yes)})
	if err != nil || r.Route != 0 || !reflect.DeepEqual(codes(r.Results), []script.Code{script.Timeout, script.OK}) {
		t.Errorf("death behind a route that was not the last: %+v, %v", r, err)
	}
	if s := p.Stats(); s.Kills != 2 {
		t.Errorf("one script got %d workers killed", s.Kills-1)
	}
}

// TestGrowthIsInterrupted: a script whose memory grows in small steps is interrupted, and its worker survives.
func TestGrowthIsInterrupted(t *testing.T) {
	p := newPool(t, script.Config{Soft: 10 * time.Second, Hard: 30 * time.Second, Total: time.Minute})
	if got := one(t, p, "() => { const a = []; for (;;) a.push({}) }", `{}`); got.Code != script.Memory {
		t.Errorf("%+v", got)
	}
	if s := p.Stats(); s.Memory != 1 || s.Deaths != 0 || s.Kills != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTotalBoundsABatch(t *testing.T) {
	p := newPool(t, script.Config{Soft: 20 * time.Millisecond, Hard: 50 * time.Millisecond, Total: 100 * time.Millisecond})
	began := time.Now()
	r, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(hang, hang, hang, hang, hang, hang, hang, hang, yes)})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	last := r.Results[8]
	if last.Code != script.Timeout || !strings.Contains(last.Detail, "was not run") {
		t.Errorf("%+v", last)
	}
}

// TestSameInputSameVerdict: the clock, the random source and the time zone come from the request.
func TestSameInputSameVerdict(t *testing.T) {
	p := newPool(t, script.Config{})
	ask := func(now time.Time, seed int64) string {
		r, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Now: now, Seed: seed, Validators: validators(
			"() => ({ valid: true, reason: [Math.random(), Math.random(), Date.now(), new Date().toString(), new Date(2020, 5, 1).getTime()].join() })")})
		if err != nil {
			t.Fatal(err)
		}
		return r.Results[0].Reason
	}
	now := time.Unix(1_700_000_000, 123_000_000)
	first := ask(now, 1)
	if again := ask(now, 1); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if !strings.Contains(first, "1700000000123,Tue Nov 14 2023 22:13:20 GMT+0000") || !strings.HasSuffix(first, ",1590969600000") {
		t.Errorf("clock or zone: %s", first)
	}
	if ask(now, 2) == first || ask(now.Add(time.Second), 1) == first {
		t.Error("neither seed nor clock matter")
	}
}

func TestInputRefused(t *testing.T) {
	p := newPool(t, script.Config{MaxInput: 1000, MaxScripts: 3})
	for name, b := range map[string]script.Batch{
		"not JSON":        {Data: json.RawMessage(`{"a":`), Validators: validators("(d) => true")},
		"not an object":   {Data: json.RawMessage(`[1]`), Validators: validators("(d) => true")},
		"bad context":     {Context: json.RawMessage(`"x"`), Validators: validators("(d, c) => true")},
		"bad evidence":    {Evidence: json.RawMessage(`nil`), Validators: validators("(d, c, e) => true")},
		"bad for a route": {Data: json.RawMessage(`{`), Routes: conditions("true"), Validators: validators(yes)},
		"text behind":     {Data: json.RawMessage(`{} {}`), Validators: validators("(d) => true")},
		"too deep":        {Data: json.RawMessage(strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)), Validators: validators("(d) => true")},
		"too long":        {Data: json.RawMessage(`{"a":"` + strings.Repeat("x", 1000) + `"}`), Validators: validators(yes)},
		"too many":        {Validators: validators(yes, yes, yes, yes)},
	} {
		if r, err := p.Run(context.Background(), b); !errors.Is(err, script.ErrInput) || errors.Is(err, script.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if got := one(t, p, yes, `{}`); !got.Valid {
		t.Errorf("%+v", got)
	}
}

func TestNothingToAsk(t *testing.T) {
	p := newPool(t, script.Config{})
	r, err := p.Run(context.Background(), script.Batch{})
	if err != nil || r.Route != -1 || r.RouteFault != nil || len(r.Results) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if s := p.Stats(); s.Starts != 0 {
		t.Error("a worker was started for nothing")
	}
}

func TestCheck(t *testing.T) {
	p := newPool(t, script.Config{})
	problems, err := p.Check(context.Background(), "o", script.Owner{ID: "o"}, append(append(
		validators("(d) => d.n > 2", "(d) => d.x.y", "(d) => undefined", "(d) =>\n  {{{", hang, explode, "", "async () => true"),
		conditions("data.n > 2", "data.n >")...),
		script.Script{Name: "s", Kind: script.Schema, Source: `{"type":"object"}`},
		script.Script{Name: "s2", Kind: script.Schema, Source: `{"type":"banana"}`},
		script.Script{Name: "s3", Kind: script.Schema, Source: `{"$ref":"file:///etc/passwd"}`}))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name, message string
		line          int
	}{
		{"v3", "unexpected end", 2},
		{"v4", "longer than 200ms", 0},
		{"v5", "memory", 0},
		{"v6", "empty", 0},
		{"v7", "synchronous", 0},
		{"r1", "unexpected end", 1},
		{"s2", "type", 0},
		{"s3", "leaves the document", 0},
	}
	for i, problem := range problems {
		if i >= len(want) || problem.Name != want[i].name || !strings.Contains(problem.Message, want[i].message) || problem.Line != want[i].line {
			t.Errorf("problem %d: %+v", i, problem)
		}
	}
	if len(problems) != len(want) {
		t.Errorf("%d problems, want %d", len(problems), len(want))
	}
}

func TestValidate(t *testing.T) {
	p := newPool(t, script.Config{})
	exponential := `{"$ref":"#/$defs/d30","$defs":{"d0":{"type":"string"}`
	for i := range 30 {
		exponential += fmt.Sprintf(`,"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}
	exponential += "}}"
	validate := func(source string, code script.Code, violations int) script.SchemaReply {
		t.Helper()
		reply, err := p.Run(context.Background(), shaped(source, `{"n":3}`))
		r := reply.Schema
		if err != nil || r.Code != code || len(r.Violations) != violations {
			t.Fatalf("%s: %+v, %v", source, r, err)
		}
		return r
	}
	validate(`{"type":"object","required":["n"]}`, script.OK, 0)
	v := validate(`{"required":["m"],"properties":{"n":{"type":"string"}}}`, script.OK, 2).Violations
	if v[0].Message == "" || v[0].Keyword == "" || !strings.Contains(v[0].Path+v[1].Path, "/n") {
		t.Errorf("%+v", v)
	}
	validate(`{"type":"banana"}`, script.BadSource, 0)
	if r := validate(exponential, script.Timeout, 0); !strings.Contains(r.Detail, "do not nest anyOf") {
		t.Errorf("%+v", r)
	}
	validate(`true`, script.OK, 0)
	if _, err := p.Run(context.Background(), script.Batch{Schema: &validators(yes)[0]}); !errors.Is(err, script.ErrInput) {
		t.Errorf("a function as schema: %v", err)
	}
	if _, err := p.Run(context.Background(), shaped(`true`, `{`)); !errors.Is(err, script.ErrInput) {
		t.Errorf("no JSON: %v", err)
	}
}

// shaped returns a batch with a schema.
func shaped(schema, document string) script.Batch {
	return script.Batch{
		Caller: "o", Owner: script.Owner{ID: "o"},
		Schema: &script.Script{Name: "s", Kind: script.Schema, Source: schema}, Document: json.RawMessage(document),
	}
}

func TestConcurrentCallers(t *testing.T) {
	p := newPool(t, script.Config{Queue: 1000})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for n := range 50 {
				want := g*1000 + n
				raw, _ := json.Marshal(map[string]int{"n": want})
				r, err := p.Run(context.Background(), script.Batch{
					Caller: string(rune('a' + g)), Owner: script.Owner{ID: string(rune('a' + g))}, Validators: validators("(d) => ({ valid: true, reason: String(d.n) })"), Data: raw,
				})
				if err != nil {
					t.Error(err)
					return
				}
				var got int
				if _ = json.Unmarshal([]byte(r.Results[0].Reason), &got); got != want {
					t.Errorf("asked about %d, answered about %d", want, got)
				}
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Workers > 3 || s.Calls != 800 {
		t.Errorf("%+v", s)
	}
}
