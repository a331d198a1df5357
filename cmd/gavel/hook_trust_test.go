package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
)

// hookRulesWorkflow is the workflow that records the approvals.
const hookRulesWorkflow = "gavel.hook-rules"

// Edits by an agent have no effect on the server that serves it, and the agent cannot approve them there.
func TestServerOfAnAgentHasTheApprovedRules(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	dir := hookProject(t)
	configured := filepath.Join(dir, "gavel.yaml")
	trust := func() {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"hook", "trust", "--config", configured, "--yes"}, strings.NewReader(""), &out, &errs); code != 0 {
			t.Fatal(out.String(), errs.String())
		}
	}
	edit := func(file, old, text string) {
		t.Helper()
		path := filepath.Join(dir, file)
		before, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(before), old) {
			t.Fatal(file, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(before), old, text, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := func() *server {
		return launch(t, "--config", configured, "--store", filepath.Join(dir, ".workflows", "gavel.db"))
	}
	trust()
	edit("release.yaml", "name: release", "name: release\ndescription: Mine now.")
	edit("gavel.yaml", "definitions:", "mcp: {role: operator}\ndefinitions:")
	s := serve()
	if r := s.must("workflow.describe", map[string]any{"name": "release"}); strings.Contains(r.text(), "Mine now.") {
		t.Error("an edited definition is the operator's:", r.text())
	}
	if !strings.Contains(s.stderr.String(), "has changed since a person approved it") {
		t.Error("nothing is logged:", s.stderr.String())
	}
	for what, r := range map[string]toolResult{
		"start":  s.call("workflow.start", map[string]any{"type": hookRulesWorkflow, "context": map[string]any{"config": "gates: []"}}),
		"define": s.callRaw("workflow.define", `{"name": "gavel.hook-rules", "initialState": "approved", "states": {"approved": {"final": true}}}`),
	} {
		if !r.IsError || !strings.Contains(r.text(), "forbidden") {
			t.Errorf("%s: %s", what, r.text())
		}
	}
	db, err := cli.OpenExistingStore(t.Context(), cli.StoreFlag{Store: filepath.Join(dir, ".workflows", "gavel.db")})
	if err != nil {
		t.Fatal(err)
	}
	approval, err := store.First(db.Instances(t.Context(), store.InstanceQuery{Workflow: hookRulesWorkflow, Limit: 1}), "approval")
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"approve", "propose", "notice", "retire"} {
		if r := s.call("workflow.advance", map[string]any{"id": approval.ID, "action": action, "data": map[string]any{}}); !r.IsError || !strings.Contains(r.text(), "unknown_instance") {
			t.Errorf("%s: %s", action, r.text())
		}
	}
	trust()
	if r := serve().must("workflow.describe", map[string]any{"name": "release"}); !strings.Contains(r.text(), "Mine now.") {
		t.Error("an approved definition is not in force:", r.text())
	}
}

// If the agent changes an evidence command so that it always succeeds, gavel still runs the approved command.
func TestEditedEvidenceHasNoEffect(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	dir := hookProject(t)
	configured := filepath.Join(dir, "gavel.yaml")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"hook", "trust", "--config", configured, "--store", filepath.Join(dir, ".workflows", "gavel.db"), "--yes"}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatal(out.String(), errs.String())
	}
	before, err := os.ReadFile(configured)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(before), "[sh, check.sh]", `["true"]`, 1)
	if edited == string(before) {
		t.Fatal("nothing was edited")
	}
	if err := os.WriteFile(configured, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	answer := func(event []byte) string {
		t.Helper()
		out, stderr, exit := answerHere(t, bytes.NewReader(event), "claude-code", "--config", configured)
		if exit != 0 {
			t.Fatal(exit, out, stderr)
		}
		return out
	}
	if out := answer(claudeEvent(dir, "SessionStart", map[string]any{"source": "startup"})); !strings.Contains(out, "Changed since a person approved the rules: gavel.yaml.") {
		t.Error("the change is not reported:", out)
	}
	test, push := map[string]any{"command": "make test"}, map[string]any{"command": "git push"}
	answer(claudeTool(dir, "PreToolUse", "1", "Bash", test))
	if out := answer(claudeTool(dir, "PostToolUse", "1", "Bash", test, map[string]any{"stdout": ""})); !strings.Contains(out, `is in \"tested\"`) {
		t.Fatal("the tests have not passed:", out)
	}
	if out := answer(claudeTool(dir, "PreToolUse", "2", "Bash", push)); !isDenied(out, 0) || !strings.Contains(out, "gavel ran them itself") {
		t.Error("the edited command was run:", out)
	}
}

// What a person approved remains in force whatever the file contains now, even if the store is a database.
func TestApprovalInDatabase(t *testing.T) {
	needsProgram(t)
	at, key := makeStore(t)
	dir := hookProject(t)
	configured := filepath.Join(dir, "gavel.yaml")
	flags := []string{"--config", configured, "--store", at, "--store-key", key}
	runGavel(t, append([]string{"hook", "trust", "--yes"}, flags...)...)
	if err := os.WriteFile(configured, []byte("definitions: release.yaml\n"), 0o600); err != nil { // without a gate
		t.Fatal(err)
	}
	push := claudeTool(dir, "PreToolUse", "1", "Bash", map[string]any{"command": "git push"})
	out, stderr, exit := answerHere(t, bytes.NewReader(push), append([]string{"claude-code"}, flags...)...)
	if !isDenied(out, exit) || !strings.Contains(out, "Changed since a person approved the rules: gavel.yaml. ") {
		t.Errorf("exit %d: %s%s", exit, out, stderr)
	}
	if out := runGavel(t, "review", "list", "--store", at, "--store-key", key); !bytes.Contains(out, []byte(hookRulesWorkflow)) {
		t.Errorf("the reviews are %s", out)
	}
	runGavel(t, append([]string{"hook", "trust", "--yes"}, flags...)...)
	if out, stderr, exit := answerHere(t, bytes.NewReader(push), append([]string{"claude-code"}, flags...)...); isDenied(out, exit) {
		t.Errorf("the approved file has no gate: exit %d: %s%s", exit, out, stderr)
	}
}
