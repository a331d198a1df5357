package workflow_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Each script is tried on the least data that a move can have. A script without an answer is a
// warning; one that answers for some value of a required field is not.
func TestScriptsAreTried(t *testing.T) {
	for name, c := range map[string]struct{ transition, says string }{
		"throws on {}":                     {`"validator":"(data) => data.items.length > 1"`, "on the data {} the script gives no answer, which would refuse the move as a fault of the workflow: it threw TypeError"},
		"no answer on {}":                  {`"validator":"(data) => data.items"`, "it returned undefined"},
		"truthy is an answer":              {`"validator":"(data) => ({valid: data.x && data.x.length > 3})"`, ""},
		"console is":                       {`"validator":"(data) => { console.log(data); return true }"`, ""},
		"a field is required":              {`"requiredFields":["items"],"validator":"(data) => data.items.map(i => i.price).length > 0"`, ""},
		"a text is":                        {`"requiredFields":["name"],"validator":"(data) => data.name.trim() !== ''"`, ""},
		"a number is":                      {`"requiredFields":["n"],"validator":"(data) => data.n.toFixed(2) === '1.00'"`, ""},
		"one inside is":                    {`"requiredFields":["customer.name","/customer/zip"],"validator":"(data) => data.customer.name.length + data.customer.zip.length > 1"`, ""},
		"another is not":                   {`"requiredFields":["items"],"validator":"(data) => data.customer.name === 'x'"`, `on data with "items" alone the script gives no answer`},
		"schema":                           {`"schema":{"type":"object","required":["n"],"properties":{"n":{"type":"object","required":["m"],"properties":{"m":{"type":"array","minItems":1,"items":{"enum":["a"]}}}}}},"validator":"(data) => data.n.m[0].length === 1"`, ""},
		"schema of a required field":       {`"requiredFields":["list","text"],"schema":{"properties":{"list":{"type":"array"},"text":{"const":"x"}}},"validator":"(data) => { for (const i of data.list) i.x; return data.text.length === 1 }"`, ""},
		"context of another state":         {`"validator":"(data, context) => context.made.length > 0"`, ""},
		"context that nothing promises":    {`"validator":"(data, context) => context.other.length > 0"`, "Cannot read property 'length' of undefined"},
		"evidence":                         {`"evidence":[{"name":"tests","source":"ci"}],"validator":"(d, c, e) => e.tests.output.trim() === '' && e.tests.body.x === 1"`, ""},
		"a condition":                      {`"target":[{"condition":"data.x.y","target":"b"}]`, "/target/0/condition"},
		"one that does not compile is not": {`"validator":"(data) => {"`, ""},
	} {
		if !strings.Contains(c.transition, `"target"`) {
			c.transition = `"target":"b",` + c.transition
		}
		doc := `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{` + c.transition + `},"make":{"target":"b","requiredFields":["made"]}}},"b":{"final":true}}}`
		d, err := workflow.Parse("w.json", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, try := range []bool{true, false} {
			issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: compiler(), Owner: validators.Owner{ID: "op", Trusted: true}, Try: try})
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, i := range issues {
				if i.Rule == "script-throws" {
					found += i.String()
				}
			}
			if want := try && c.says != ""; (found != "") != want || want && !strings.Contains(found, c.says) {
				t.Errorf("%s, tried %v: %q, want %q", name, try, found, c.says)
			}
		}
	}
}

// failingTrier compiles but cannot try.
type failingTrier struct {
	workflow.Compiler
	asked int
}

func (f *failingTrier) Try(context.Context, script.Batch) ([]validators.Problem, error) {
	f.asked++
	return nil, errors.New("no worker could be started")
}

// A failure of the sandbox alone is neither an error nor a warning of define.
func TestTrialWithoutSandbox(t *testing.T) {
	d, err := workflow.Parse("w.json", []byte(`{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","validator":"(data) => data.x?.y.z === 1"}}},"b":{"final":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	f := &failingTrier{Compiler: compiler()}
	issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: f, Owner: validators.Owner{ID: "op", Trusted: true}, Try: true})
	if err != nil || len(issues) != 0 || f.asked != 1 {
		t.Errorf("%v, %v, asked %d times", issues, err, f.asked)
	}
}
