package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// shop is an example as a team would install it: the operator's folder "gate" with the definition and its sources,
// next to the repository in which the agent works.
type shop struct {
	t          *testing.T
	gate       string
	repository string
	store      string
}

// paperV1 is a definition before its migration. paperV2 renames the state reviewing to "review" and requires an
// author there.
const (
	paperV1 = `{"name":"paper","initialState":"draft","states":{
		"draft":{"transitions":{"submit":"reviewing"}},
		"reviewing":{"transitions":{"pass":"signing","reject":"draft"}},
		"signing":{"transitions":{"sign":"signed"}},"signed":{"final":true}}}`
	paperV2 = `{"name":"paper","initialState":"draft","states":{
		"draft":{"transitions":{"submit":"review"}},
		"review":{"transitions":{"pass":"signing","reject":"draft"}},
		"signing":{"transitions":{"sign":"signed"}},"signed":{"final":true}},
		"stateValidators":{"review":{"requiredFields":["author"]}}}`
)

// The records page shows the actual output.
func TestRecordsPageShowsThePast(t *testing.T) {
	t.Parallel()
	const page = "../../docs/records.md"
	dir := t.TempDir()
	s := &shop{t: t, gate: dir, store: filepath.Join(dir, "gavel.db")}
	flow := filepath.Join(dir, "paper.json")
	serve := func(document string) *server {
		if err := os.WriteFile(flow, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		return launch(t, "--store", s.store, "--definitions", flow)
	}
	agent := serve(paperV1)
	id := agent.must("workflow.start", object{"type": "paper", "context": object{"title": "On gates"}}).field("id")
	for _, move := range []object{{"action": "submit", "data": object{"author": "ada"}}, {"action": "pass", "data": object{"pages": 3}}} {
		move["id"] = id
		agent.must("workflow.advance", move)
	}
	anonymous := agent.must("workflow.start", object{"type": "paper"}).field("id")
	agent.must("workflow.advance", object{"id": anonymous, "action": "submit"})

	showsAt(t, page, "past", body(s.say("instances", "timeline", id)+s.say("instances", "show", id, "--revision", "2")))
	showsAt(t, page, "undo", body(s.say("instances", "undo", id)+s.say("instances", "undo", id)+s.say("instances", "redo", id)+s.say("instances", "timeline", id)))

	serve(paperV2)
	showsAt(t, page, "migrate", body(s.bad("migrate", "paper", "--dry-run")+s.bad("migrate", "paper", "--state", "reviewing=review")))
}

// say runs a command as the operator would, in the operator's folder. It returns the command line with its output.
func (s *shop) say(args ...string) string {
	s.t.Helper()
	needsProgram(s.t)
	cmd := exec.CommandContext(s.t.Context(), "gavel")
	for _, a := range args {
		cmd.Args = append(cmd.Args, strings.Trim(a, "'")) // as a shell does
	}
	cmd.Dir = s.gate
	cmd.Env = append(cli.WithoutSettings(os.Environ()), "GAVEL_STORE=gavel.db")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("gavel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return "$ gavel " + strings.Join(args, " ") + "\n" + string(out) + "\n"
}

// body is output without its trailing newline.
func body(printed string) string { return strings.TrimSuffix(printed, "\n") }

// bad is say for a command that exits with 1.
func (s *shop) bad(args ...string) string {
	s.t.Helper()
	needsProgram(s.t)
	cmd := exec.CommandContext(s.t.Context(), "gavel", args...)
	cmd.Dir = s.gate
	cmd.Env = append(cli.WithoutSettings(os.Environ()), "GAVEL_STORE=gavel.db")
	out, err := cmd.CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != term.ExitBad {
		s.t.Fatalf("gavel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return "$ gavel " + strings.Join(args, " ") + "\n" + string(out) + "\n"
}
