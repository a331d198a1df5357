package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
)

// bashEvents are shell uses in the formats of several clients, with %s in place of the id.
var bashEvents = map[string]string{
	"claude-code": `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":%s,"tool_input":{"command":"git push"}}`,
	"cursor":      `{"conversation_id":"s","workspace_roots":["/p"],"hook_event_name":"preToolUse","tool_name":"Shell","tool_use_id":%s,"tool_input":{"command":"git push"}}`,
	"kiro":        `{"session_id":"s","cwd":"/p","hook_event_name":"preToolUse","tool_name":"execute_bash","tool_use_id":%s,"tool_input":{"command":"git push"}}`,
	"opencode":    `{"hook":"tool.execute.before","sessionID":"s","directory":"/p","tool":"bash","callID":%s,"args":{"command":"git push"}}`,
}

// TestByteOrderMarks covers the marks that Cursor writes before an event on Windows.
func TestByteOrderMarks(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	for client, event := range bashEvents {
		a, _ := FindAdapter(client)
		event = fmt.Sprintf(event, `"t1"`)
		for n := range 3 {
			if e, err := a.Decode([]byte(strings.Repeat(mark, n) + event)); err != nil || e.Command != "git push" || e.CallID != "t1" {
				t.Errorf("%s: after %d marks: %+v, %v", client, n, e, err)
			}
		}
		for _, input := range []string{strings.Repeat(mark, 3) + event, event + mark, mark} {
			if e, err := a.Decode([]byte(input)); err == nil {
				t.Errorf("%s: %q is read as %+v", client, input, e)
			}
		}
	}
}

// TestNumbersForIDs rejects ids that are not strings, because a use is found again by its id.
func TestNumbersForIDs(t *testing.T) {
	for client, event := range bashEvents {
		a, _ := FindAdapter(client)
		for _, id := range []string{`null`, `""`} {
			if e, err := a.Decode([]byte(fmt.Sprintf(event, id))); err != nil || e.CallID != "" {
				t.Errorf("%s: id %s: %+v, %v", client, id, e, err)
			}
		}
		for _, id := range []string{`7`, `["t1"]`, `true`} {
			if e, err := a.Decode([]byte(fmt.Sprintf(event, id))); err == nil || !strings.Contains(err.Error(), "must be a ") {
				t.Errorf("%s: id %s: %+v, %v", client, id, e, err)
			}
		}
		session := strings.NewReplacer(`"session_id":"s"`, `"session_id":7`, `"conversation_id":"s"`, `"conversation_id":7`, `"sessionID":"s"`, `"sessionID":7`).Replace(event)
		if e, err := a.Decode([]byte(fmt.Sprintf(session, `"t1"`))); err == nil || !strings.Contains(err.Error(), "must be a ") {
			t.Errorf("%s: a session 7: %+v, %v", client, e, err)
		}
	}
}

// TestAskWithoutPerson: only clients that show a question to a person receive it.
func TestAskWithoutPerson(t *testing.T) {
	asking := map[string]bool{"claude-code": true, "copilot": true}
	for _, a := range adapters {
		for _, headless := range []bool{false, true} {
			e := Event{Client: a.Client, Hook: "PreToolUse", Phase: PhaseBefore, Headless: headless}
			o := a.Encode(e, Answer{Verdict: Ask, Reason: "It may push"})
			said := string(o.Stdout) + string(o.Stderr)
			want := "cannot ask its user"
			switch {
			case headless:
				want = "It may push. This session has no person to ask"
			case asking[a.Client]:
				want = `"ask"`
			}
			if !strings.Contains(said, want) || headless && strings.Contains(said, `"ask"`) || !asking[a.Client] && strings.Contains(said, `"ask"`) {
				t.Errorf("%s, headless %t: %s", a.Client, headless, said)
			}
		}
	}
}

// TestIsHeadless covers the environments in which clients run hooks.
func TestIsHeadless(t *testing.T) {
	for _, c := range []struct {
		client string
		env    map[string]string
		want   bool
	}{
		{"claude-code", map[string]string{"CLAUDE_CODE_SESSION_ATTENDED": "0", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}, true},
		{"claude-code", map[string]string{"CLAUDE_CODE_SESSION_ATTENDED": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}, false},
		{"claude-code", map[string]string{"CLAUDE_CODE_SESSION_ATTENDED": "1", "CI": "true"}, false},
		{"claude-code", map[string]string{"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}, true},
		{"claude-code", map[string]string{"CLAUDE_CODE_ENTRYPOINT": "claude-code-github-action"}, true},
		{"claude-code", map[string]string{"CLAUDE_CODE_ENTRYPOINT": "cli"}, false},
		{"claude-code", map[string]string{"CLAUDE_CODE_ENTRYPOINT": "claude-vscode"}, false},
		{"claude-code", map[string]string{"CLAUDE_CODE_ENTRYPOINT": "cli", "CI": "1"}, true},
		{"claude-code", nil, false},
		{"copilot", map[string]string{"CI": "true"}, true},
		{"copilot", map[string]string{"CI": "false"}, false},
		{"copilot", map[string]string{"CLAUDE_CODE_SESSION_ATTENDED": "0"}, false},
	} {
		a, _ := FindAdapter(c.client)
		if got := a.IsHeadless(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%s with %v: %t", c.client, c.env, got)
		}
	}
}

// TestAnswersNameTools: answers use the tool names that the client's agent sees.
func TestAnswersNameTools(t *testing.T) {
	for _, a := range adapters {
		want := a.nameTools("workflow.advance")
		for phase, answer := range map[Phase]Answer{
			PhaseBefore: {Verdict: Deny, Reason: "Perform it with workflow.advance."},
			PhaseStop:   {Verdict: Continue, Reason: "Perform it with workflow.advance."},
			PhaseStart:  {Verdict: Neutral, Context: "Perform it with workflow.advance."},
		} {
			o := a.Encode(Event{Client: a.Client, Hook: "x", Phase: phase}, answer)
			if said := string(o.Stdout) + string(o.Stderr); !strings.Contains(said, "with "+want+".") {
				t.Errorf("%s, %s: %s", a.Client, phase, said)
			}
		}
	}
	const line = "`cat workflow.advanced workflow.yaml` needs the state"
	if got := claudeCode.nameTools(line); got != line {
		t.Errorf("a line became %s", got)
	}
}

// TestAnswerUnreadable covers the answer to an undecodable event in each client's format.
func TestAnswerUnreadable(t *testing.T) {
	for _, a := range adapters {
		for _, how := range []gate.OnFailure{"", gate.OnFailureDeny} {
			o := a.EncodeUnreadable(how, errors.New("the event is 7"))
			if o.Exit != 2 || strings.Count(string(o.Stderr), "the event is 7") != 1 {
				t.Errorf("%s, %q: %+v", a.Client, how, o)
			}
		}
		if o := a.EncodeUnreadable(gate.OnFailureNeutral, errors.New("the event is 7")); o.Exit != 0 || strings.Trim(string(o.Stdout), "{}\n") != "" || len(o.Stderr) != 0 {
			t.Errorf("%s, neutral: %+v", a.Client, o)
		}
	}
}

// TestToolName covers the names that real clients show, or document, for a tool of gavel's server.
func TestToolName(t *testing.T) {
	for client, want := range map[string]string{
		"claude-code": "mcp__gavel__workflow_advance", // seen in requests of 2.1.330
		"codex":       "mcp__gavel__workflow_advance", // seen in requests of 0.169.0, as a namespace and a name
		"copilot":     "gavel-workflow_advance",
		"cursor":      "workflow_advance",
		"gemini":      "mcp_gavel_workflow_advance",
		"kiro":        "@gavel/workflow_advance",
		"opencode":    "gavel_workflow_advance",
	} {
		a, _ := FindAdapter(client)
		if got := a.nameTools("workflow.advance"); got != want {
			t.Errorf("%s: %s, want %s", client, got, want)
		}
	}
}
