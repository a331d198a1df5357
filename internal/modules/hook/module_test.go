package hook_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	_ "github.com/gavel-mcp/gavel/internal/modules/hook"
	"github.com/gavel-mcp/gavel/judge"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// A reload is rejected if a section of the file does not fit the operators' definitions; the previous rules stay.
func TestRulesAreReloadedWhole(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t, judge.Config{})
	operator := engine.Principal{ID: "local:cli", Role: engine.RoleOperator}
	if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(`{"name": "release", "initialState": "open", "states": {"open": {"transitions": {"ship": "done"}}, "done": {"final": true}}}`)}); err != nil {
		t.Fatal(err)
	}
	x := module.All()[0].Extend(module.Setup{Log: slog.New(slog.DiscardHandler)})
	if err := x.Connect(module.System{Engine: e}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"hooks: {finish: {workflow: release, states: [done]}}", ""},
		{"hooks: {finish: {workflow: release, states: [doen]}}", `1:46: /hooks/finish/states/0: the workflow release has no state "doen"; did you mean "done"?`},
		{"hooks: {onFailur: deny}", "onFailur"},
		{"gates: [{tool: 'builtin:shell', workflow: releas, states: open}]", `no operator has defined the workflow "releas"`},
	} {
		file, err := config.Parse("gavel.yaml", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		take, err := x.Parts[0].Prepare(t.Context(), &module.Change{File: file})
		if c.want == "" && err == nil {
			take()
		} else if err == nil || !strings.Contains(err.Error(), c.want) || c.want == "" {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}
