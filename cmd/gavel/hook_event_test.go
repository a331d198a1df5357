package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Byte order marks before an event have no effect.
func TestHookEventAfterMarks(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	for _, mark := range []string{"", "\ufeff", "\ufeff\ufeff"} {
		for command, denied := range map[string]bool{"ls": false, "git push": true} {
			event := append([]byte(mark), cursorShell(t, dir, command)...)
			out, stderr, exit := answerHere(t, bytes.NewReader(event), "cursor", "--config", filepath.Join(dir, "gavel.yaml"))
			if exit != 0 || strings.Contains(out, `"permission":"deny"`) != denied {
				t.Errorf("%q after %q: exit %d, %s%s", command, mark, exit, out, stderr)
			}
		}
	}
}

func cursorShell(t *testing.T, dir, command string) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"conversation_id": "c1", "workspace_roots": []string{dir}, "hook_event_name": "preToolUse", "cursor_version": "2.0",
		"tool_name": "Shell", "tool_input": map[string]any{"command": command}, "tool_use_id": "t1", "cwd": dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// An unreadable event is denied with one sentence, even without rules.
func TestHookEventUnreadable(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	push := string(claudeTool(dir, "PreToolUse", "toolu_1", "Bash", map[string]any{"command": "git push"}))
	for name, c := range map[string]struct{ event, says string }{
		"an unknown form":   {`{"event":"tool"}`, "hook_event_name is missing"},
		"an unknown event":  {string(claudeEvent(dir, "PreTeleport", nil)), `unknown hook event "PreTeleport"`},
		"20 MB":             {strings.Replace(push, "git push", "git push "+strings.Repeat("x", 20<<20), 1), "the input is larger than 16 MiB"},
		"a duplicate key":   {strings.Replace(push, `"tool_name":`, `"tool_name":"Read","tool_name":`, 1), `duplicate key "tool_name"`},
		"a number as id":    {strings.Replace(push, `"toolu_1"`, `7`, 1), "tool_use_id must be a string"},
		"a number: session": {strings.Replace(push, `"session_id":"7d3c"`, `"session_id":7`, 1), "session_id must be a non-empty string"},
	} {
		out, stderr, exit := answerHere(t, strings.NewReader(c.event), "claude-code", "--config", filepath.Join(dir, "gavel.yaml"))
		if exit != 2 || strings.Count(stderr, c.says) != 1 || strings.Count(stderr, "gavel could not decide, so the answer is no") != 1 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d\n%.300s\n%.300s", name, exit, out, stderr)
		}
		if _, stderr, exit := answerHere(t, strings.NewReader(c.event), "claude-code", "--config", filepath.Join(dir, "check.sh")); exit != 2 || stderr == "" {
			t.Errorf("%s, without rules: exit %d\n%s", name, exit, stderr)
		}
	}
}

// If no person is in the session, a question to a person becomes a denial with the reason.
func TestHookEventWithoutPerson(t *testing.T) {
	dir := hookProject(t)
	event := claudeTool(dir, "PreToolUse", "toolu_1", "RunEverything", map[string]any{"command": "git push"})
	for attended, says := range map[string][]string{
		"1": {`"permissionDecision":"ask"`, "RunEverything"},
		"0": {`"permissionDecision":"deny"`, "RunEverything", "This session has no person to ask"},
	} {
		t.Setenv("CLAUDE_CODE_SESSION_ATTENDED", attended)
		out, _, _ := answerHere(t, bytes.NewReader(event), "claude-code", "--config", filepath.Join(dir, "gavel.yaml"))
		for _, part := range says {
			if !strings.Contains(out, part) {
				t.Errorf("attended %s: %q is not in %s", attended, part, out)
			}
		}
	}
}
