package judge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
)

// What Show prints is what a model is sent.
func TestShowIsWhatIsSent(t *testing.T) {
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
