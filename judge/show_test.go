package judge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
)

// Show returns exactly the prompt that a model is sent.
func TestShowReturnsTheSentPrompt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*judge.Case){
		"nothing to check": func(*judge.Case) {},
		"everything": func(c *judge.Case) {
			requires("comments")(c)
			shaped(`{"type":"object"}`)(c)
			validated(approveValidator)(c)
			c.Candidates[0].Entry = validators.Checks{RequiredFields: []string{"comments"}}
			c.About = judge.About{Workflow: "about"}
			c.Rubric.Criteria = []string{"one", "two"}
		},
	} {
		var sent llm.Request
		model, err := judge.NewModel(judge.ModelConfig{
			Random: func() string { return "r4nd0mr4nd0mr4nd0m" },
			Completer: llm.CompleterFunc(func(_ context.Context, req llm.Request) (llm.Reply, error) {
				sent = req
				return llm.Reply{}, &llm.Error{Class: llm.ClassNetwork}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		gate, err := judge.New(judge.Config{Compiler: validators.NewCompiler(instant{}, validators.Options{}), Model: model})
		if err != nil {
			t.Fatal(err)
		}
		c := newCase(data(`{"comments":"Read sections 1 to 4."}`), ruled(useLLM), change)
		if _, err := gate.Decide(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		shown, err := judge.Show(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(sent.User, "r4nd0mr4nd0mr4nd0m", "MARKER"); sent.System != shown.System || got != shown.User {
			t.Errorf("%s: sent\n%s\nshown\n%s", name, got, shown.User)
		}
		if got := strings.ReplaceAll(sent.Shape, "r4nd0mr4nd0mr4nd0m", "NONCE"); got != shown.Shape {
			t.Errorf("%s: the shape differs: %s", name, got)
		}
	}
}

// A sensitive value reaches no model, in any document and at any depth; the model only sees that
// it exists.
func TestShowMasks(t *testing.T) {
	t.Parallel()
	d, err := workflow.Parse("w.json", []byte(`{
		"name": "w", "initialState": "a", "sensitive": ["/token", "/people/*/ssn"],
		"states": {"a": {"transitions": {"go": "b"}}, "b": {"final": true}},
		"judgeConfig": {"enabled": true, "useLLM": true}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Case(workflow.CaseInput{
		Operation: judge.Advance, Instance: "wf-1", State: "a", Action: "go", Principal: "p", Role: "agent",
		Context: []byte(`{"token": "S3CRET-context", "people": [{"ssn": "S3CRET-1", "name": "Ada"}]}`),
		Data:    []byte(`{"token": {"inner": ["S3CRET-data", 4711]}, "people": {"x": {"ssn": 815}}, "note": "shown"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := judge.Show(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"S3CRET", "4711", "815"} {
		if strings.Contains(p.System+p.User+p.Shape, secret) {
			t.Errorf("%s is in the prompt:\n%s", secret, p.User)
		}
	}
	for _, want := range []string{
		`{"people":[{"name":"Ada","ssn":"[masked]"}],"token":"[masked]"}`,
		`{"note":"shown","people":{"x":{"ssn":"[masked]"}},"token":"[masked]"}`,
	} {
		if !strings.Contains(p.User, want) {
			t.Errorf("%s is not in the prompt:\n%s", want, p.User)
		}
	}
}
