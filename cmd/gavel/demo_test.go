package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/modules/demo"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// recordDemo plays a part of the demo against the real server, once per part.
func recordDemo(t *testing.T, part string) []demo.Exchange {
	t.Helper()
	// The agent starts os.Args[0], which is this test binary under another name.
	out := runGavel(t, "demo", part, "--json")
	var played struct {
		OK       bool            `json:"ok"`
		Exchange []demo.Exchange `json:"exchange"`
	}
	if err := json.Unmarshal(out, &played); err != nil || !played.OK {
		t.Fatalf("the demo's JSON: %v\n%s", err, out)
	}
	return played.Exchange
}

// demoAnswer is an exchange with its decoded response.
type demoAnswer struct {
	demo.Exchange
	fields map[string]any
}

func (a demoAnswer) has(key string) bool { return a.fields[key] != nil }

// TestDemoChecksItself falsifies a response in every scene of both parts. The demo must notice each.
func TestDemoChecksItself(t *testing.T) {
	t.Parallel()
	set := func(key string, value any) func(*demoAnswer) {
		return func(a *demoAnswer) { a.fields[key] = value }
	}
	decide := func(key string, value any) func(*demoAnswer) {
		return func(a *demoAnswer) { a.fields["decision"].(map[string]any)[key] = value }
	}
	judged := func(a demoAnswer) bool { return a.has("decision") }
	advances := func(a demoAnswer) bool { return a.Tool == "workflow.advance" && judged(a) }
	everywhere := map[string]lie{
		"the other way round": {func(a *demoAnswer) { a.IsError = !a.IsError }, func(demoAnswer) bool { return true }},
		"nothing at all":      {func(a *demoAnswer) { a.fields = nil }, func(demoAnswer) bool { return true }},
	}
	judging := map[string]lie{
		"another state":     {set("state", "elsewhere"), func(a demoAnswer) bool { return a.has("state") }},
		"another outcome":   {decide("outcome", "escalate"), advances},
		"not complete":      {set("complete", "maybe"), func(a demoAnswer) bool { return advances(a) && !a.IsError }},
		"nameless findings": {decide("findings", []any{map[string]any{"message": "something is wrong"}}), func(a demoAnswer) bool { return a.IsError && judged(a) }},
		"another layer":     {decide("decidedBy", "nobody"), func(a demoAnswer) bool { return a.IsError && judged(a) }},
		"a short history":   {set("decisions", []any{}), func(a demoAnswer) bool { return a.Tool == "workflow.judge.history" }},
	}
	for part, more := range map[string]map[string]lie{
		"workflow": {
			"a kept context": {
				func(a *demoAnswer) { a.fields["context"].(map[string]any)["comments"] = "still here" },
				func(a demoAnswer) bool { return a.Tool == "workflow.rollback" },
			},
			"another error": {set("error", map[string]any{"code": "internal"}), func(a demoAnswer) bool { return a.has("error") }},
		},
		"evidence": {
			"evidence untold":          {decide("evidence", nil), advances},
			"other evidence":           {decide("evidence", []any{map[string]any{"name": "moon", "at": "now", "tookMs": 1.0}}), advances},
			"evidence without history": {dropEvidence, func(a demoAnswer) bool { return a.Tool == "workflow.judge.history" }},
		},
		"gateway": {
			"a tool too many":   {set("tools", []any{"infra__authenticate", "infra__deploy", "infra__deployed", "infra__moon", "infra__reset", "infra__validate"}), func(a demoAnswer) bool { return a.has("tools") }},
			"another text":      {set("text", "fine"), func(a demoAnswer) bool { return a.has("text") }},
			"another error":     {set("error", map[string]any{"code": "internal"}), func(a demoAnswer) bool { return a.has("error") }},
			"another hint":      {setHint, func(a demoAnswer) bool { return a.has("error") && !strings.Contains(string(a.Answer), "tool_drifted") }},
			"a short history":   judging["a short history"],
			"a silent operator": {set("output", ""), func(a demoAnswer) bool { return a.has("output") }},
		},
		"chain": {
			"another text":      {set("text", "fine"), func(a demoAnswer) bool { return a.has("text") }},
			"another error":     {set("error", map[string]any{"code": "internal"}), func(a demoAnswer) bool { return a.has("error") }},
			"another status":    {set("status", "paused"), func(a demoAnswer) bool { return strings.HasPrefix(a.Tool, "chain.") && a.has("status") }},
			"a step twice":      {repeatStep, func(a demoAnswer) bool { return a.has("steps") }},
			"no steps":          {set("steps", []any{}), func(a demoAnswer) bool { return a.has("steps") }},
			"no question":       {set("waiting", []any{}), func(a demoAnswer) bool { return a.has("waiting") }},
			"a silent operator": {set("output", ""), func(a demoAnswer) bool { return a.has("output") }},
			"another layer":     judging["another layer"],
		},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			lies := maps.Clone(everywhere)
			if part != "gateway" && part != "chain" {
				maps.Copy(lies, judging)
			}
			maps.Copy(lies, more)
			lieEverywhere(t, part, recordDemo(t, part), lies)
		})
	}
}

// lie is a falsification, and the responses that it applies to.
type lie struct {
	tell  func(*demoAnswer)
	where func(demoAnswer) bool
}

// setHint makes a refusal say nothing useful.
func setHint(a *demoAnswer) {
	refusal := a.fields["error"].(map[string]any)
	refusal["hint"], refusal["message"] = "Try again.", "It was refused."
}

// repeatStep repeats the first step of a completed run.
func repeatStep(a *demoAnswer) {
	steps := a.fields["steps"].([]any)
	a.fields["steps"] = append(steps, steps[0])
}

// dropEvidence removes the fetched evidence from a history.
func dropEvidence(a *demoAnswer) {
	for _, d := range a.fields["decisions"].([]any) {
		delete(d.(map[string]any), "evidence")
	}
}

func lieEverywhere(t *testing.T, part string, honest []demo.Exchange, lies map[string]lie) {
	t.Helper()
	for name, l := range lies {
		told := 0
		for i, e := range honest {
			a := demoAnswer{Exchange: e}
			if err := json.Unmarshal(e.Answer, &a.fields); err != nil {
				t.Fatalf("step %d: %v", i+1, err)
			}
			if !l.where(a) {
				continue
			}
			told++
			l.tell(&a)
			raw, err := json.Marshal(a.fields)
			if err != nil {
				t.Fatal(err)
			}
			a.Answer = raw
			lied := slices.Clone(honest)
			lied[i] = a.Exchange
			if err := demo.Check(t.Context(), part, lied); err == nil {
				t.Errorf("%s in step %d (%s) went unnoticed", name, i+1, e.Tool)
			}
		}
		if told == 0 {
			t.Errorf("%s: no scene to tell it in", name)
		}
	}
	if err := demo.Check(t.Context(), part, honest); err != nil {
		t.Errorf("the honest answers: %v", err)
	}
	if err := demo.Check(t.Context(), part, honest[1:]); err == nil {
		t.Error("a missing answer went unnoticed")
	}
}

// TestDemoHasItsOwnStore shows that settings of the configuration file do not affect the demo.
func TestDemoHasItsOwnStore(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commands{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	flags := findChild(parser.Model.Node, "demo").Flags
	if findFlag(findChild(parser.Model.Node, "demo"), "--store") == nil {
		t.Fatal("the demo has no --store")
	}
	for _, f := range flags {
		if s, ok := cli.SettingOf("demo", f); ok {
			t.Errorf("--%s is the setting %s", f.Name, s.Name())
		}
	}
}

// TestDemoEvidence compares steps of the demo with its page. The demo checks its results itself; see
// TestDemoChecksItself.
func TestDemoEvidence(t *testing.T) {
	t.Parallel()
	shows(t, "../../docs/evidence.md", demoSteps(t, runDemo(t, "demo", "evidence"), " 2. ", " 4. ", " 8. ", " 9. "))
}

// The demo's two files are realistic: lint reports nothing about them.
func TestDemoEvidenceFilesAreClean(t *testing.T) {
	t.Parallel()
	root, err := document.Parse("gavel.yaml", demo.TestedChangeSources, document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := evidence.ParseConfig(root.Get("evidence"))
	if err != nil || len(cfg.Sources) != 1 {
		t.Fatalf("%d sources, %v", len(cfg.Sources), err)
	}
	d, err := workflow.Parse("tested-change.yaml", demo.TestedChange)
	if err != nil {
		t.Fatal(err)
	}
	issues, err := d.Lint(t.Context(), workflow.LintOptions{
		Compiler: plainSandbox(t), Owner: validators.Owner{ID: "test", Trusted: true}, Sources: []string{"tests-pass"},
	})
	if err != nil || len(issues) > 0 {
		t.Errorf("%v, %v", issues, err)
	}
}

// demoSteps returns a demo's command line and some of its steps: from one number up to the next.
func demoSteps(t *testing.T, printed string, fromTo ...string) string {
	t.Helper()
	command, _, _ := strings.Cut(printed, "\n")
	out := command + "\n"
	for i := 0; i < len(fromTo); i += 2 {
		_, text, _ := strings.Cut(printed, "\n"+fromTo[i])
		text, _, ok := strings.Cut(text, "\n"+fromTo[i+1])
		if !ok {
			t.Fatalf("no steps %s to %s:\n%s", fromTo[i], fromTo[i+1], printed)
		}
		out += "...\n" + fromTo[i] + text
	}
	return out
}

// TestGatewayDemo compares steps of the gateway's demo with its page.
func TestGatewayDemo(t *testing.T) {
	t.Parallel()
	printed := runDemo(t, "demo", "gateway")
	shows(t, "../../docs/gateway.md", demoSteps(t, printed, " 6. ", " 7. ", "13. ", "17. ", "23. ", "24. "))
}

// TestChainDemo compares steps of the chains demo with its page.
func TestChainDemo(t *testing.T) {
	t.Parallel()
	shows(t, "../../docs/chains.md", demoSteps(t, runDemo(t, "demo", "chain"), " 8. ", "11. ", "12. ", "15. "))
}

// The TypeScript SDK can drive the server of the gateway's demo, if .ci/run clients has installed the SDK.
func TestGatewayTypeScript(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	const clients = "../../.tmp/clients"
	if _, err := os.Stat(clients + "/node_modules/@modelcontextprotocol/sdk"); err != nil {
		t.Skip("the TypeScript SDK is not installed; run .ci/run clients")
	}
	w, err := demo.OpenInfra()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // a temporary folder
	if err := w.Become(demo.Fixed); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.Dir, "gavel.yaml")
	runGavel(t, "upstream", "pin", "--all", "--config", file)
	out, err := exec.CommandContext(t.Context(), "node", "../../testdata/clients/deploy-walk.mjs", clients, "--",
		"gavel", "mcp", "--config", file, "--store", gavel.Memory, "--tool-names", "dotted").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "as it should be\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The page shows the demo's output.
func TestDemoPage(t *testing.T) {
	t.Parallel()
	shows(t, "../../docs/reference/demo.md", runDemo(t, "demo"))
}
