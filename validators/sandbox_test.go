package validators_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// patient has time limits that hold even on a busy machine.
var patient = script.Config{Soft: time.Second, Hard: 5 * time.Second, Total: 20 * time.Second}

func sandbox(t testing.TB, limits script.Config) *script.Pool {
	t.Helper()
	pool, err := script.NewPool(limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// TestFindingsMatchInSandbox: a schema gives the same findings in this process and in the sandbox.
func TestFindingsMatchInSandbox(t *testing.T) {
	t.Parallel()
	c := validators.NewCompiler(sandbox(t, patient), validators.Options{})
	checks := validators.Checks{Schema: json.RawMessage(`{"required":["a","é/~"],"properties":{"n":{"type":"integer"},"d":{"format":"date"}},"additionalProperties":false}`)}
	doc := json.RawMessage(`{"n":"1","d":"tomorrow","x":{}}`)
	var reports []validators.SchemaReport
	for _, owner := range []validators.Owner{operator, stranger} {
		set, problems, err := c.Compile(t.Context(), "caller", owner, checks)
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		if set.IsSandboxed() == owner.Trusted {
			t.Fatalf("%s: sandboxed is %v", owner.ID, set.IsSandboxed())
		}
		r, err := set.CheckSchema(t.Context(), "caller", document.ReadTrusted(doc))
		if err != nil {
			t.Fatal(err)
		}
		r.Unhardened = nil // depends on the machine
		reports = append(reports, r)
	}
	if len(reports[0].Findings) != 5 {
		t.Errorf("found %v", reports[0].Findings)
	}
	if diff := cmp.Diff(reports[0], reports[1]); diff != "" {
		t.Error(diff)
	}
}

func TestBadSchemaMatchesInSandbox(t *testing.T) {
	t.Parallel()
	c := validators.NewCompiler(sandbox(t, patient), validators.Options{})
	for _, schema := range []string{`{"properties":{"a":{"type":"strnig"}}}`, `{"$ref":"https://example.com/x"}`, `{"properties":{"a":{"pattern":"(?=x)"}}}`, `{"items":{"minimum":"1"}}`} {
		var got [][]validators.Problem
		for _, owner := range []validators.Owner{operator, stranger} {
			set, problems, err := c.Compile(t.Context(), "caller", owner, validators.Checks{Schema: json.RawMessage(schema)})
			if err != nil || set != nil || len(problems) != 1 {
				t.Fatal(set, problems, err)
			}
			got = append(got, problems)
		}
		if diff := cmp.Diff(got[0], got[1]); diff != "" {
			t.Errorf("%s: %s", schema, diff)
		}
	}
}

// TestHostileSchemaCannotHurt: a schema that would keep the library busy for minutes ends as a fault within
// the sandbox's limits.
func TestHostileSchemaCannotHurt(t *testing.T) {
	t.Parallel()
	schema := strings.Repeat(`{"anyOf":[{"not":`, 14) + `{"type":"string"}` + strings.Repeat(`},{"not":{"required":["zz"]}}],"oneOf":[{"$ref":"#"},{}]}`, 14)
	schema = strings.ReplaceAll(schema, `{"$ref":"#"},`, `{"allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]},`)
	c := validators.NewCompiler(sandbox(t, script.Config{}), validators.Options{})
	began := time.Now()
	for _, owner := range []validators.Owner{operator, stranger} {
		set, problems, err := c.Compile(t.Context(), "caller", owner, validators.Checks{Schema: json.RawMessage(schema)})
		if err != nil {
			t.Fatal(err)
		}
		if len(problems) > 0 {
			continue // rejecting it at compile time is also correct
		}
		doc := json.RawMessage(strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40))
		r, err := set.CheckSchema(t.Context(), "caller", document.ReadTrusted(doc))
		if err != nil || !set.IsSandboxed() {
			t.Fatalf("sandboxed %v: %v", set.IsSandboxed(), err)
		}
		if !r.Fault || r.Findings[0].Code != validators.CodeSchemaFault {
			t.Errorf("got %+v", r)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestMain(m *testing.M) {
	worker.Main() // the test binary is its own sandbox
	goleak.VerifyTestMain(m)
}
