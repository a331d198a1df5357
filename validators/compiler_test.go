package validators_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

var (
	operator = validators.Owner{ID: "operator", Trusted: true}
	stranger = validators.Owner{ID: "agent-7"}
)

// scripted is a fake sandbox that records its calls.
type scripted struct {
	mu       sync.Mutex
	checks   [][]script.Script
	callers  []string // of Check
	owners   []script.Owner
	problems []script.Problem
	schema   script.SchemaReply
	err      error
	batches  []script.Batch
}

func (r *scripted) Check(_ context.Context, caller string, owner script.Owner, scripts []script.Script) ([]script.Problem, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, scripts)
	r.callers = append(r.callers, caller)
	r.owners = append(r.owners, owner)
	return r.problems, r.err
}

func (r *scripted) Run(_ context.Context, b script.Batch) (script.Reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, b)
	return script.Reply{Schema: r.schema, Route: -1, Results: make([]script.Result, len(b.Validators)), Unhardened: []string{"landlock"}}, r.err
}

func (r *scripted) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.checks)
}

func validator(source string) []script.Script {
	return []script.Script{{Name: "v", Kind: script.Validator, Source: source}}
}

const (
	simple = `{"required":["a"]}`
	gated  = `{"required":["a"],"properties":{"b":{"uniqueItems":true}},"if":{"required":["b"]},"then":{"anyOf":[{"not":{"required":["c"]}},{"properties":{"b":{"contains":{"const":1}}}}]}}`
	nested = `{"anyOf":[{"not":{"required":["b"]}}],"properties":{"next":{"$ref":"#"}}}`
)

func TestWhereSchemasRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		owner   validators.Owner
		schema  string
		sandbox bool // there is a sandbox
		there   bool
		problem string
	}{
		{"an operator's simple one", operator, simple, true, false, ""},
		{"an operator's with branches in branches", operator, gated, true, false, ""},
		{"an operator's other one", operator, nested, true, true, ""},
		{"a stranger's simple one", stranger, simple, true, true, ""},
		{"a stranger's other one", stranger, nested, true, true, ""},
		{"an operator's without a sandbox", operator, nested, false, false, ""},
		{"a stranger's simple one without a sandbox", stranger, simple, false, false, ""},
		{"a stranger's other one without a sandbox", stranger, nested, false, false, "this schema needs a sandbox, but none is configured: it refers to itself at"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asked := &scripted{schema: script.SchemaReply{Code: script.OK}}
			var runner script.Runner
			if c.sandbox {
				runner = asked
			}
			set, problems, err := validators.NewCompiler(runner, validators.Options{}).Compile(t.Context(), "caller", c.owner, validators.Checks{Schema: json.RawMessage(c.schema)})
			if err != nil {
				t.Fatal(err)
			}
			if c.problem != "" {
				if set != nil || len(problems) != 1 || problems[0].Part != "schema" || !strings.Contains(problems[0].Message, c.problem) {
					t.Errorf("got %v, %v", set, problems)
				}
				return
			}
			if len(problems) > 0 || !set.HasSchema() || set.IsSandboxed() != c.there {
				t.Fatalf("problems %v, sandboxed %v", problems, set.IsSandboxed())
			}
			if _, err := set.CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{"a":1}`))); err != nil {
				t.Fatal(err)
			}
			if got := len(asked.batches) + asked.asked(); (got > 0) != c.there {
				t.Errorf("the sandbox was asked %d times", got)
			}
		})
	}
}

func TestSchemaFindings(t *testing.T) {
	t.Parallel()
	compile := func(r script.Runner, owner validators.Owner, schema string) *validators.Set {
		set, problems, err := validators.NewCompiler(r, validators.Options{}).Compile(t.Context(), "caller", owner, validators.Checks{Schema: json.RawMessage(schema)})
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		return set
	}
	want := validators.SchemaReport{Findings: []validators.Finding{{Code: "schema", Path: "/a", Keyword: "required", Message: `"/a" is required`}}}
	here, err := compile(&scripted{}, operator, simple).CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{}`)))
	if diff := cmp.Diff(want, here); diff != "" || err != nil {
		t.Error(diff, err)
	}

	r := &scripted{schema: script.SchemaReply{
		Code: script.OK, Violations: []script.Violation{{Path: "/a", Keyword: "required", Message: `"/a" is required`}},
	}}
	want.Unhardened = []string{"landlock"}
	there, err := compile(r, stranger, simple).CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{}`)))
	if diff := cmp.Diff(want, there); diff != "" || err != nil {
		t.Error(diff, err)
	}

	r.schema = script.SchemaReply{Code: script.Timeout, Detail: "it took too long"}
	fault, err := compile(r, stranger, simple).CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{}`)))
	if err != nil || !fault.Fault || len(fault.Findings) != 1 || fault.Findings[0].Code != "validator_error" || !strings.Contains(fault.Findings[0].Message, "it took too long") {
		t.Errorf("a fault of the schema gives %+v, %v", fault, err)
	}

	r.schema = script.SchemaReply{}
	if _, err := compile(r, stranger, simple).CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{}`))); !errors.Is(err, validators.ErrUnavailable) {
		t.Errorf("a sandbox that does not answer gives %v", err)
	}
	r.err = validators.ErrUnavailable
	if _, _, err := validators.NewCompiler(r, validators.Options{}).Compile(t.Context(), "caller", stranger, validators.Checks{Schema: json.RawMessage(simple)}); !errors.Is(err, validators.ErrUnavailable) {
		t.Errorf("a sandbox that is down gives %v", err)
	}

	loop := compile(nil, operator, `{"$defs":{"a":{"$dynamicAnchor":"x","$ref":"#"},"b":{"$dynamicAnchor":"x"}},"$dynamicRef":"#/$defs/a"}`)
	if report, err := loop.CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{}`))); err != nil || !report.Fault {
		t.Errorf("a schema that recurses without end gives %+v, %v", report, err)
	}
	if report, err := compile(&scripted{}, operator, ``).CheckSchema(t.Context(), "caller", document.JSON{}); err != nil || report.Fault || report.Findings != nil {
		t.Errorf("no schema gives %+v, %v", report, err)
	}
}

func TestProblemsSayWhere(t *testing.T) {
	t.Parallel()
	r := &scripted{problems: []script.Problem{{Name: "schema", Message: "at /properties/a/pattern: this pattern does not compile: x"}}}
	c := validators.NewCompiler(r, validators.Options{})
	set, problems, err := c.Compile(t.Context(), "caller", stranger, validators.Checks{Schema: json.RawMessage(`{"properties":{"a":{"pattern":"("}}}`)})
	if diff := cmp.Diff([]validators.Problem{{Part: "schema", Path: "/properties/a/pattern", Message: "this pattern does not compile: x"}}, problems); diff != "" || set != nil || err != nil {
		t.Error(diff, set, err)
	}
	_, problems, err = c.Compile(t.Context(), "caller", operator, validators.Checks{RequiredFields: []string{""}, Schema: json.RawMessage(`{"properties":{"a":{"pattern":"("}}}`)})
	if err != nil || len(problems) != 2 || problems[0].Part != "requiredFields" || problems[1].Path != "/properties/a/pattern" {
		t.Errorf("got %v, %v", problems, err)
	}
	r.problems = []script.Problem{{Name: "v", Line: 2, Column: 3, Message: "unexpected token"}}
	_, problems, err = c.Compile(t.Context(), "caller", stranger, validators.Checks{Validators: validator("(")})
	if err != nil || len(problems) != 1 || problems[0].String() != "v line 2:3: unexpected token" {
		t.Errorf("got %v, %v", problems, err)
	}
	if r.owners[0] != stranger || r.callers[0] != "caller" {
		t.Errorf("asked about %+v for %q", r.owners[0], r.callers[0])
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	r := &scripted{}
	c := validators.NewCompiler(r, validators.Options{CacheBytes: 64 << 10})
	compile := func(owner validators.Owner, source string) *validators.Set {
		t.Helper()
		set, problems, err := c.Compile(t.Context(), "caller", owner, validators.Checks{Validators: validator(source)})
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		return set
	}
	a := compile(operator, "a")
	if compile(operator, "a") != a || r.asked() != 1 {
		t.Error("the same checks are compiled again")
	}
	if compile(validators.Owner{ID: operator.ID}, "a") == a {
		t.Error("trust makes no difference")
	}
	if compile(operator, "a") != a {
		t.Error("the one used last is gone")
	}
	for i := range 1000 { // exceeds the limits of one owner and of the cache
		compile(validators.Owner{ID: fmt.Sprint("crowd", i%20)}, fmt.Sprint("b", i))
	}
	asked := r.asked()
	if compile(operator, "a"); r.asked() != asked {
		t.Error("strangers pushed an operator's checks out")
	}
	if compile(validators.Owner{ID: "crowd0"}, "b0"); r.asked() == asked {
		t.Error("the cache keeps more than it should")
	}
}

func TestReusedBufferDoesNotConfuseTheCache(t *testing.T) {
	t.Parallel()
	c := validators.NewCompiler(&scripted{}, validators.Options{})
	raw := json.RawMessage(`{"required":["a"]}`)
	if _, _, err := c.Compile(t.Context(), "caller", operator, validators.Checks{Schema: raw}); err != nil {
		t.Fatal(err)
	}
	raw[14] = 'b' // the caller reuses its buffer
	set, _, err := c.Compile(t.Context(), "caller", operator, validators.Checks{Schema: raw})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := set.CheckSchema(t.Context(), "caller", document.ReadTrusted([]byte(`{}`))); err != nil || len(r.Findings) != 1 || r.Findings[0].Path != "/b" {
		t.Errorf("got %v, %v", r.Findings, err)
	}
}

// Problems and errors of the sandbox can be temporary, so it is called again.
func TestPassingTroubleIsNotCached(t *testing.T) {
	t.Parallel()
	r := &scripted{problems: []script.Problem{{Name: "v", Message: "quarantined"}}}
	c := validators.NewCompiler(r, validators.Options{})
	checks := validators.Checks{Validators: validator("a")}
	if set, problems, err := c.Compile(t.Context(), "caller", stranger, checks); set != nil || len(problems) != 1 || err != nil {
		t.Fatalf("got %v, %v, %v", set, problems, err)
	}
	r.problems, r.err = nil, validators.ErrUnavailable
	if _, _, err := c.Compile(t.Context(), "caller", stranger, checks); !errors.Is(err, validators.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	r.err = nil
	if set, problems, err := c.Compile(t.Context(), "caller", stranger, checks); set == nil || len(problems) > 0 || err != nil {
		t.Errorf("got %v, %v, %v", set, problems, err)
	}
	if _, _, err := validators.NewCompiler(nil, validators.Options{}).Compile(t.Context(), "caller", stranger, checks); !errors.Is(err, validators.ErrUnavailable) {
		t.Errorf("without a sandbox: %v", err)
	}
}

func TestCompilerIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	c := validators.NewCompiler(&scripted{}, validators.Options{CacheBytes: 8 << 10})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("f%d", (g+i)%12)
				set, _, err := c.Compile(t.Context(), "caller", operator, validators.Checks{RequiredFields: []string{name}, Schema: json.RawMessage(simple)})
				if err != nil || len(set.CheckFields(document.ReadTrusted([]byte(`{"a":1}`)))) != 1 {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestScriptSendsEverythingInOneTrip(t *testing.T) {
	t.Parallel()
	r := &scripted{}
	checks := validators.Checks{Validators: validator("v"), Routes: []script.Script{{Name: "r", Kind: script.Condition, Source: "true"}}}
	set, _, err := validators.NewCompiler(r, validators.Options{}).Compile(t.Context(), "caller", stranger, checks)
	if err != nil || !set.HasScripts() {
		t.Fatal(set, err)
	}
	in := validators.Input{Caller: "caller", Data: json.RawMessage(`{"d":1}`), Context: json.RawMessage(`{"c":1}`), Seed: 7}
	if _, err := set.RunScripts(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	b := r.batches[0]
	if b.Owner != stranger || b.Caller != "caller" || len(b.Routes) != 1 || len(b.Validators) != 1 || string(b.Data) != `{"d":1}` || string(b.Context) != `{"c":1}` || b.Seed != 7 {
		t.Errorf("sent %+v", b)
	}
	r.schema.Code = script.OK
	shaped, _, err := validators.NewCompiler(r, validators.Options{}).Compile(t.Context(), "caller", stranger, validators.Checks{Schema: json.RawMessage(simple)})
	if err != nil {
		t.Fatal(err)
	}
	if report, reply, err := shaped.CheckThenRun(t.Context(), document.ReadTrusted([]byte(`{"a":1}`)), set, in); err != nil || len(report.Findings) > 0 || len(reply.Results) != 1 {
		t.Errorf("behind a schema: %+v, %+v, %v", report, reply, err)
	}
	b.Schema, b.Document = &script.Script{Name: "schema", Kind: script.Schema, Source: simple}, json.RawMessage(`{"a":1}`)
	if diff := cmp.Diff(b, r.batches[1]); diff != "" {
		t.Error(diff)
	}
	none, _, err := validators.NewCompiler(r, validators.Options{}).Compile(t.Context(), "caller", stranger, validators.Checks{})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := none.RunScripts(t.Context(), in); err != nil || reply.Route != -1 || len(r.batches) != 2 {
		t.Errorf("without scripts: %+v, %v, %d trips", reply, err, len(r.batches))
	}
}
