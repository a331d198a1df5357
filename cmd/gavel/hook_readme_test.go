package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestReadmeClaudeCode types what README says about Claude Code. Then it runs the hook that is installed, as Claude
// Code does when the model says that the bug is fixed.
func TestReadmeClaudeCode(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	put(t, n.folder+"/go.mod", "module example.org/shop\n\ngo 1.26\n")
	n.types("git init -q", "")
	text := section(t, "Claude Code in three minutes")
	lines := strings.Replace(quoted(t, text, "sh"), "install claude-code", "install claude-code --yes", 1) // there is no terminal to ask
	printed := n.types(lines, "")
	if !strings.Contains(printed, "result    works") || !strings.Contains(text, "`works`") {
		t.Fatalf("doctor:\n%s", printed)
	}
	if !strings.Contains(text, "\n> Say that the bug is fixed.\n") || !strings.Contains(printed, "\n  Say that the bug is fixed.\n") {
		t.Error("README and gavel init do not say the same about what to type")
	}
	var settings struct {
		Hooks map[string][]struct{ Hooks []struct{ Command string } }
	}
	if err := json.Unmarshal([]byte(n.types("cat .claude/settings.local.json", "")), &settings); err != nil {
		t.Fatal(err)
	}
	ask := func(event, more string) string {
		t.Helper()
		input := fmt.Sprintf(`{"session_id":"s-1","transcript_path":"/tmp/s-1.jsonl","cwd":%q,"permission_mode":"default","hook_event_name":%q%s}`, n.folder, event, more)
		return n.types(settings.Hooks[event][0].Hooks[0].Command, input)
	}
	ask("SessionStart", `,"source":"startup"`)
	var answer struct{ Decision, Reason string }
	if err := json.Unmarshal([]byte(ask("Stop", `,"stop_hook_active":false`)), &answer); err != nil {
		t.Fatal(err)
	}
	want, _, _ := strings.Cut(quoted(t, text, "text"), "wf-...")
	if answer.Decision != "block" || !strings.HasPrefix(answer.Reason, want) {
		t.Errorf("the agent is sent back with %+v, not with %q", answer, want)
	}
}
