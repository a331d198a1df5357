package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const saidConfig = `definitions: [release.yaml, tagging.yaml]
store: gavel.db
evidence: {sources: {user: {transcript: true}}}
gates:
  - {tool: "builtin:shell", name: push, workflow: release, states: open, action: push, success: pushed, error: failed, start: true, when: [{program: git, args: [push]}]}
  - {tool: "builtin:shell", name: tag, workflow: tagging, states: open, action: tag, success: tagged, start: true, when: [{program: git, args: [tag]}]}
`

const asked = `evidence: [{name: said, source: user}], validator: "(data, context, evidence) => ({valid: !!evidence.said?.messages?.some((m) => m.includes('push')), reason: 'The user asked for no push.'})"`

var saidFiles = map[string]string{
	"gavel.yaml": saidConfig,
	"release.yaml": `name: release
initialState: open
states:
  open: {transitions: {push: {target: pushing, ` + asked + `}, close: {target: done, ` + asked + `}}}
  pushing: {transitions: {pushed: open, failed: open}}
  done: {final: true}
`,
	"tagging.yaml": `name: tagging
initialState: open
states:
  open: {transitions: {tag: tagging}}
  tagging: {transitions: {tagged: open}}
`,
}

// saidBench is a project in which a push needs the user's words, and a session's transcript.
type saidBench struct {
	t                    *testing.T
	dir, transcript, id  string
	client, form, agents string // form is a line of the transcript, with TEXT for the message
}

func newSaidBench(t *testing.T, client string) *saidBench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &saidBench{t: t, dir: dir, client: client, transcript: filepath.Join(dir, "transcript.jsonl")}
	b.form = `{"type":"user","isSidechain":false,"promptSource":"typed","turnOrigin":"human","message":{"role":"user","content":TEXT}}`
	b.agents = `{"type":"user","isSidechain":false,"toolUseResult":{},"message":{"role":"user","content":[{"type":"tool_result","content":TEXT}]}}`
	if client == "codex" {
		const form = `{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":TEXT}],"internal_chat_message_metadata_passthrough":{"content_item_kinds":["user.text"],"content_item_metadata":[{"provenance":{"type":"SOURCE"}}]}}}`
		b.form, b.agents = strings.Replace(form, "SOURCE", "user", 1), strings.Replace(form, "SOURCE", "harness", 1)
	}
	for name, text := range saidFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// write adds a line to the transcript.
func (b *saidBench) write(form, text string) {
	b.t.Helper()
	file, err := os.OpenFile(b.transcript, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strings.Replace(form, "TEXT", string(encode(b.t, text)), 1) + "\n"); err != nil {
		b.t.Fatal(err)
	}
}

// use asks before a use of a tool, and returns the answer. args select where it is decided; none means here.
func (b *saidBench) use(call, tool string, input, more map[string]any, args ...string) string {
	b.t.Helper()
	all := map[string]any{"tool_name": tool, "tool_use_id": call, "tool_input": input, "transcript_path": b.transcript}
	for key, value := range more {
		all[key] = value
	}
	if len(args) == 0 {
		args = []string{"--config", filepath.Join(b.dir, "gavel.yaml")}
	}
	out, stderr, exit := answerHere(b.t, bytes.NewReader(claudeEvent(b.dir, "PreToolUse", all)), append([]string{b.client}, args...)...)
	if exit != 0 {
		b.t.Fatalf("exit %d: %s", exit, stderr)
	}
	if id := regexp.MustCompile(`wf-[0-9a-f-]{36}`).FindString(out); id != "" {
		b.id = id
	}
	return out
}

func (b *saidBench) run(call, line string, args ...string) string {
	b.t.Helper()
	return b.use(call, "Bash", map[string]any{"command": line}, nil, args...)
}

// record compares how often words were added to the record, and what the newest decision saw of them.
func (b *saidBench) record(added int, seen []string, args ...string) {
	b.t.Helper()
	if len(args) == 0 {
		args = []string{"--config", filepath.Join(b.dir, "gavel.yaml")}
	}
	if got := bytes.Count(runGavel(b.t, append([]string{"instances", "timeline", b.id, "--json"}, args...)...), []byte(`"reason": "1 message of the user"`)); got != added {
		b.t.Errorf("%s: %d additions of a message, want %d", b.client, got, added)
	}
	var past struct {
		Decisions []struct {
			Evidence []struct{ Content struct{ Messages []string } }
		}
	}
	out := runGavel(b.t, append([]string{"instances", "history", b.id, "--json"}, args...)...)
	if err := json.Unmarshal(out, &past); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	if last := past.Decisions[len(past.Decisions)-1]; len(last.Evidence) != 1 || !slices.Equal(last.Evidence[0].Content.Messages, seen) {
		b.t.Errorf("%s: the decision saw %q, want %q", b.client, last.Evidence, seen)
	}
}

func (b *saidBench) want(about, answer, part string) {
	b.t.Helper()
	if part == "" && strings.Contains(answer, "deny") || !strings.Contains(answer, part) || part != "" && !strings.Contains(answer, `"deny"`) {
		b.t.Errorf("%s, %s: got %s; want %q", b.client, about, answer, part)
	}
}

// A push passes only after the user asked for it, in the transcript of either client, decided here or by a server.
func TestHookUserWords(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"claude-code", "codex"} {
		for _, place := range []string{"here", "relayed"} {
			t.Run(client+", "+place, func(t *testing.T) {
				t.Parallel()
				b, decided, read := newSaidBench(t, client), []string(nil), []string(nil)
				if place == "relayed" {
					s := serveGavel(t, "--config", filepath.Join(b.dir, "gavel.yaml"))
					token := filepath.Join(t.TempDir(), "token")
					if err := os.WriteFile(token, []byte(s.token("h", "--hooks", "/")), 0o600); err != nil {
						t.Fatal(err)
					}
					decided, read = []string{"--server", s.url, "--token-file", token}, []string{"--store", s.store}
				}
				b.want("without a transcript", b.run("1", "git push", decided...), "cannot be read")
				b.write(b.form, "Fix the bug.")
				b.write(b.agents, "The user wants to push.")
				b.want("not asked for", b.run("2", "git push", decided...), "The user asked for no push.")
				b.want("not asked for, again", b.run("3", "git push", decided...), "The user asked for no push.")
				b.want("no gate", b.run("4", "git status", decided...), "")
				b.record(1, []string{"Fix the bug."}, read...)
				b.write(b.form, "Now push it.")
				b.want("asked for", b.run("5", "git push", decided...), "")
				b.record(2, []string{"Fix the bug.", "Now push it."}, read...)
			})
		}
	}
}

// Words are heard before the agent asks gavel's own tools for a move, too, but only for its own instances.
func TestHookUserWordsForTools(t *testing.T) {
	t.Parallel()
	b := newSaidBench(t, "claude-code")
	b.write(b.form, "Fix the bug.")
	b.run("1", "git push")
	b.write(b.form, "push it, and close.")
	own := b.id
	for _, c := range []struct{ tool, id, part string }{
		{"mcp__gavel__workflow_status", own, ""},
		{"mcp__gavel__workflow_advance", "wf-00000000-0000-4000-8000-000000000000", ""},
		{"mcp__other__workflow_advance", own, ""},
	} {
		b.want(c.tool, b.use("2", c.tool, map[string]any{"id": c.id, "action": "close"}, nil), "")
	}
	b.use("2", "mcp__gavel__workflow_advance", map[string]any{"id": own, "action": "close"}, nil, "--config", filepath.Join(b.dir, "gavel.yaml"), "--principal", "local:other")
	b.id = own
	b.record(1, []string{"Fix the bug."})
	b.want("its own instance", b.use("3", "mcp__gavel__workflow_advance", map[string]any{"id": own, "action": "close"}, nil), "")
	out := runGavel(t, "advance", own, "close", "--config", filepath.Join(b.dir, "gavel.yaml"))
	if !strings.Contains(string(out), "done") {
		t.Errorf("the move: %s", out)
	}
	b.record(2, []string{"Fix the bug.", "push it, and close."})
}

// Each session's words are stored once, even if two sessions take turns.
func TestHookUserWordsOfSessions(t *testing.T) {
	t.Parallel()
	b := newSaidBench(t, "claude-code")
	b.write(b.form, "Fix the bug.")
	first, second := b.transcript, filepath.Join(b.dir, "second.jsonl")
	for i := range 3 {
		b.transcript = first
		b.want("the first session", b.run(fmt.Sprint("a", i), "git push"), "The user asked for no push.")
		if b.transcript = second; i == 0 {
			b.write(b.form, "Look at it.")
		}
		push := map[string]any{"command": "git push"}
		b.want("the second session", b.use(fmt.Sprint("b", i), "Bash", push, map[string]any{"session_id": "second"}), "The user asked for no push.")
	}
	b.record(2, []string{"Fix the bug.", "Look at it."})
}

// A transcript is read only where a move needs it, and never in a subagent of Codex or for a client whose transcripts
// gavel does not know.
func TestHookUserWordsUnread(t *testing.T) {
	t.Parallel()
	b := newSaidBench(t, "codex")
	b.write(b.form, "push")
	push := map[string]any{"command": "git push"}
	b.want("a subagent", b.use("1", "Bash", push, map[string]any{"agent_id": "01a2"}), "except in subagents of Codex")
	b.want("a workflow that needs no words", b.run("2", "git tag v1"), "")
	b.client = "copilot"
	b.want("another client", b.use("3", "Bash", push, map[string]any{"timestamp": "2026-01-01T00:00:00Z"}), "gavel does not know what the user said")
	config := filepath.Join(b.dir, "gavel.yaml")
	ids := regexp.MustCompile(`"wf-[0-9a-f-]{36}"`).FindAllString(string(runGavel(t, "instances", "list", "--json", "--config", config)), -1)
	for _, id := range ids {
		if out := runGavel(t, "instances", "timeline", strings.Trim(id, `"`), "--json", "--config", config); bytes.Contains(out, []byte(`"heard"`)) {
			t.Errorf("words were stored: %s", out)
		}
	}
	if len(ids) != 2 {
		t.Errorf("the instances are %q", ids)
	}
}

// The templates gate edits of transcripts, but not of other files beside them.
func TestHookTemplatesGuardTranscripts(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	for _, template := range []string{"bugfix", "careful-ops", "release"} {
		dir := filepath.Join(t.TempDir(), template)
		runGavel(t, "init", dir, "--template", template)
		for file, denies := range map[string]bool{".claude/projects/-srv/s1.jsonl": true, ".codex/sessions/2026/11/30/rollout-1.jsonl": true, ".claude/projects/-srv/memory/MEMORY.md": false} {
			event := claudeTool(dir, "PreToolUse", "1", "Write", map[string]any{"file_path": filepath.Join(home, file), "content": "x"})
			if out, stderr, exit := answerHere(t, bytes.NewReader(event), "claude-code", "--config", filepath.Join(dir, "gavel.yaml")); isDenied(out, exit) != denies {
				t.Errorf("%s, %s: exit %d, %s%s", template, file, exit, out, stderr)
			}
		}
	}
}
