package agent

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recorded returns the inputs in testdata of a client.
func recorded(t testing.TB, client string) []string {
	files, err := filepath.Glob(filepath.Join("testdata", client, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded inputs of %s: %v", client, err)
	}
	return files
}

// TestAdapters decodes every recorded input, and encodes every verdict for it.
func TestAdapters(t *testing.T) {
	for _, a := range adapters {
		for _, file := range recorded(t, a.Client) {
			t.Run(file, func(t *testing.T) {
				input, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				e, err := a.Decode(input)
				if err != nil {
					t.Fatal(err)
				}
				if e.Client != a.Client {
					t.Errorf("client %q", e.Client)
				}
				var b bytes.Buffer
				printEvent(&b, e)
				for _, answer := range []Answer{
					{Verdict: Neutral},
					{Verdict: Neutral, Context: "CONTEXT"},
					{Verdict: Deny, Reason: "REASON"},
					{Verdict: Ask, Reason: "REASON"},
					{Verdict: Continue, Reason: "REASON"},
				} {
					o := a.Encode(e, answer)
					if strings.Contains(string(o.Stdout), "allow") {
						t.Errorf("%s allows: %s", answer.Verdict, o.Stdout)
					}
					fmt.Fprintf(&b, "%-20s exit %d stdout %q stderr %q\n", strings.TrimSpace(string(answer.Verdict)+" "+strings.ToLower(answer.Context)), o.Exit, o.Stdout, o.Stderr)
				}
				compareGolden(t, strings.TrimSuffix(file, ".json")+".golden", b.Bytes())
			})
		}
	}
}

func printEvent(b *bytes.Buffer, e Event) {
	fields, err := json.MarshalIndent(struct {
		Phase                          Phase
		Session, Folder, Tool, Builtin string
		Unknown                        bool
		CallID, Command                string
		Paths                          []string
		URL                            string
		Input, Result                  document.JSON
		Ended                          Ended
		Continued, Subagent            bool
	}{e.Phase, e.Session, e.Folder, e.Tool, e.Builtin, e.Unknown, e.CallID, e.Command, e.Paths, e.URL, e.Input, e.Result, e.Ended, e.Continued, e.Subagent}, "", " ")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(fields)) {
		if !strings.HasSuffix(strings.TrimRight(line, ",\n"), `""`) && !strings.Contains(line, ": null") && !strings.Contains(line, ": false") {
			b.WriteString(line)
		}
	}
	b.WriteString("\n")
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update writes it anew); got:\n%s", file, got)
	}
}

// TestAdaptersRefuse damages every recorded input in each way that a client or an intermediary could. All
// must be errors, because undecodable events are denied.
func TestAdaptersRefuse(t *testing.T) {
	padding := bytes.Repeat([]byte("x"), 50<<20)
	spoil := map[string]func(b []byte) []byte{
		"empty":    func([]byte) []byte { return nil },
		"cut":      func(b []byte) []byte { return bytes.TrimSpace(b)[:len(bytes.TrimSpace(b))-1] },
		"followed": func(b []byte) []byte { return append(bytes.Clone(b), "{}"...) },
		"array":    func(b []byte) []byte { return fmt.Appendf(nil, "[%s]", b) },
		"null":     func([]byte) []byte { return []byte("null") },
		"number":   func([]byte) []byte { return []byte("7") },
		"no utf-8": func(b []byte) []byte { return bytes.Replace(b, []byte("{"), []byte("{\"\xff\":1,"), 1) },
		"50 MB": func(b []byte) []byte {
			return slices.Concat([]byte(`{"padding":"`), padding, []byte(`",`), bytes.TrimSpace(b)[1:])
		},
		"deep": func(b []byte) []byte {
			return fmt.Appendf(nil, `{"padding":%s1%s,%s`, strings.Repeat("[", 5000), strings.Repeat("]", 5000), bytes.TrimSpace(b)[1:])
		},
		"utf-16": func(b []byte) []byte {
			return append([]byte{0xff, 0xfe}, bytes.Join(bytes.SplitAfter(b, nil), []byte{0})...)
		},
		"nothing else": func([]byte) []byte { return []byte("{}") },
	}
	for _, a := range adapters {
		for i, file := range recorded(t, a.Client) {
			input, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for name, f := range spoil {
				if name == "50 MB" && i > 0 {
					continue
				}
				if e, err := a.Decode(f(input)); err == nil {
					t.Errorf("%s, %s: no error, but %+v", file, name, e)
				}
			}
		}
	}
}

// TestAdaptersRefuseMembers gives each adapter inputs that lack, duplicate or misspell what a decision
// needs. The error must contain word.
func TestAdaptersRefuseMembers(t *testing.T) {
	const claudeBash = `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"u","tool_input":{"command":"ls"}}`
	const geminiShell = `{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"ls"}}`
	const cursorShell = `{"conversation_id":"s","cwd":"/p","hook_event_name":"preToolUse","tool_name":"Shell","tool_input":{"command":"ls"}}`
	const opencodeBash = `{"hook":"tool.execute.before","sessionID":"s","directory":"/p","tool":"bash","callID":"u","args":{"command":"ls"}}`
	const kiroBash = `{"cwd":"/p","hook_event_name":"preToolUse","tool_name":"execute_bash","tool_input":{"command":"ls"}}`
	for _, test := range []struct{ client, input, old, new, word string }{
		{"claude-code", claudeBash, `"PreToolUse"`, `"PreTooluse"`, "unknown hook event"},
		{"claude-code", claudeBash, `"PreToolUse"`, `"BeforeTool"`, "unknown hook event"},
		{"claude-code", claudeBash, `"PreToolUse"`, `7`, "hook_event_name"},
		{"claude-code", claudeBash, `"tool_name"`, `"Tool_Name"`, "tool_name is missing"},
		{"claude-code", claudeBash, `"tool_name":`, `"tool_name":"Read","tool_name":`, "duplicate key"},
		{"claude-code", claudeBash, `"tool_input":`, `"tool_input":{"command":"true"},"tool_input":`, "duplicate key"},
		{"claude-code", claudeBash, `"command":`, `"command":"true","command":`, "command"},
		{"claude-code", claudeBash, `"command":`, `"command":"true","comm\u0061nd":`, "command"},
		{"claude-code", claudeBash, `"command"`, `"Command"`, "command is missing"},
		{"claude-code", claudeBash, `"ls"`, `["ls"]`, "command must be a non-empty string"},
		{"claude-code", claudeBash, `"ls"`, `""`, "command must be a non-empty string"},
		{"claude-code", claudeBash, `"ls"`, `"ls\u0000"`, "input of the tool"},
		{"claude-code", claudeBash, `{"command":"ls"}`, `"ls"`, "is not an object"},
		{"claude-code", claudeBash, `{"command":"ls"}`, `null`, "is not an object"},
		{"claude-code", claudeBash, `"Bash"`, `["Bash"]`, "tool_name must be a non-empty string"},
		{"claude-code", claudeBash, `"Bash"`, `"Write"`, "file_path is missing"},
		{"claude-code", claudeBash, `"Bash","tool_use_id":"u","tool_input":{"command":"ls"}`, `"Write","tool_input":{"file_path":7}`, "file_path"},
		{"claude-code", claudeBash, `"Bash","tool_use_id":"u","tool_input":{"command":"ls"}`, `"Glob","tool_input":{"path":{"a":1}}`, "path must name files"},
		{"claude-code", claudeBash, `"/p"`, `"p"`, "cwd must be an absolute path"},
		{"claude-code", claudeBash, `"cwd"`, `"CWD"`, "cwd is missing"},
		{"claude-code", claudeBash, `"session_id"`, `"sessionId"`, "session_id is missing"},
		{"gemini", geminiShell, `"BeforeTool"`, `"PreToolUse"`, "unknown hook event"},
		{"gemini", geminiShell, `"tool_name"`, `"toolName"`, "tool_name is missing"},
		{"gemini", geminiShell, `"command"`, `"cmd"`, "command is missing"},
		{"gemini", geminiShell, `"command":"ls"`, `"command":"ls","command":"rm x"`, "command"},
		{"codex", claudeBash, `"PreToolUse"`, `"BeforeTool"`, "unknown hook event"},
		{"codex", claudeBash, `"command":"ls"`, `"cmd":["ls"]`, "command is missing"},
		{"codex", claudeBash, `"Bash","tool_use_id":"u","tool_input":{"command":"ls"}`, `"apply_patch","tool_input":{"command":"*** Begin Patch"}`, "names no file"},
		{"copilot", claudeBash, `"PreToolUse"`, `"preToolUse"`, "unknown hook event"},
		{"copilot", claudeBash, `"hook_event_name":"PreToolUse",`, ``, "hook_event_name is missing"},
		{"copilot", claudeBash, `"Bash","tool_use_id":"u","tool_input":{"command":"ls"}`, `"Write","tool_input":{"file_path":""}`, "path is missing"},
		{"cursor", cursorShell, `"preToolUse"`, `"beforeShellExecution"`, "unknown hook event"},
		{"cursor", cursorShell, `"cwd":"/p"`, `"cwd":""`, "cwd"},
		{"cursor", cursorShell, `"cwd":"/p"`, `"workspace_roots":["p"]`, "cwd is missing"},
		{"cursor", cursorShell, `"command":"ls"`, `"command":null`, "command"},
		{"cursor", cursorShell, `"Shell"`, `"Write"`, "no member names a file"},
		{"opencode", opencodeBash, `"tool.execute.before"`, `"tool.execute.Before"`, "unknown hook event"},
		{"opencode", opencodeBash, `"args"`, `"arguments"`, "args is missing"},
		{"opencode", opencodeBash, `"directory":"/p"`, `"directory":"."`, "directory"},
		{"kiro", kiroBash, `"preToolUse"`, `"pretooluse"`, "unknown hook event"},
		{"kiro", kiroBash, `"command"`, `"cmd"`, "command is missing"},
		{"kiro", kiroBash, `"execute_bash","tool_input":{"command":"ls"}`, `"fs_read","tool_input":{"operations":[{"mode":"Line"}]}`, "operations"},
		{"kiro", kiroBash, `"execute_bash","tool_input":{"command":"ls"}`, `"fs_read","tool_input":{"operations":[7]}`, "operations"},
	} {
		a, found := FindAdapter(test.client)
		if !found {
			t.Fatalf("no adapter %q", test.client)
		}
		if _, err := a.Decode([]byte(test.input)); err != nil {
			t.Errorf("%s: %s: %v", test.client, test.input, err)
		}
		input := strings.Replace(test.input, test.old, test.new, 1)
		if e, err := a.Decode([]byte(input)); err == nil || !strings.Contains(err.Error(), test.word) {
			t.Errorf("%s: %s: %v, %+v; want an error with %q", test.client, input, err, e, test.word)
		}
	}
}

func TestUnknownTools(t *testing.T) {
	for _, test := range []struct {
		client, input string
		unknown       bool
	}{
		{"claude-code", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"bash","tool_input":{"command":"ls"}}`, true},
		{"claude-code", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"RunEverything","tool_input":7}`, true},
		{"claude-code", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"mcp__files__write","tool_input":{"a":9007199254740993,"b":"\u0000"}}`, false},
		{"claude-code", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"TodoWrite","tool_input":{}}`, false},
		{"gemini", `{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","tool_name":"mcp_files_write","tool_input":{}}`, true},
		{"gemini", `{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","tool_name":"mcp_files_write","tool_input":{},"mcp_context":{"server_name":"files"}}`, false},
		{"gemini", `{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","tool_name":"web_fetch","tool_input":{"prompt":"https://a.example and https://b.example"}}`, true},
		{"codex", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"write_stdin","tool_input":{"session_id":1,"chars":""}}`, false},
		{"codex", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"exec_command","tool_input":{"cmd":"ls"}}`, true},
		{"copilot", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"bash","tool_input":{"command":"ls"}}`, true},
		{"copilot", `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"files-write_it","tool_input":{}}`, false},
		{"cursor", `{"conversation_id":"s","workspace_roots":["/p"],"hook_event_name":"preToolUse","tool_name":"Terminal","tool_input":{}}`, true},
		{"opencode", `{"hook":"tool.execute.before","sessionID":"s","directory":"/p","tool":"files_write","args":{}}`, true},
		{"opencode", `{"hook":"tool.execute.before","sessionID":"s","directory":"/p","tool":"files_write","args":{},"servers":["file"]}`, true},
		{"kiro", `{"cwd":"/p","hook_event_name":"preToolUse","tool_name":"aws","tool_input":{}}`, true},
	} {
		a, _ := FindAdapter(test.client)
		e, err := a.Decode([]byte(test.input))
		if err != nil || e.Unknown != test.unknown || e.Builtin != "" {
			t.Errorf("%s: %s: %+v, %v", test.client, test.input, e, err)
		}
	}
}

// TestToolForms covers tools whose input decides their form, or names their subject in its own way.
func TestToolForms(t *testing.T) {
	for _, test := range []struct {
		client, tool, input string
		want                string // builtin, command, paths, address
	}{
		{"claude-code", "Monitor", `{"command":"ls"}`, "builtin:shell ls [] "},
		{"claude-code", "Monitor", `{"ws":{"url":"wss://a.example"}}`, "builtin:fetch  [] wss://a.example"},
		{"claude-code", "WebFetch", `{"url":"https://a.example","prompt":"x"}`, "builtin:fetch  [] https://a.example"},
		{"claude-code", "Grep", `{"pattern":"x","path":"src"}`, "builtin:read  [src] "},
		{"codex", "write_stdin", `{"chars":"ls"}`, "builtin:shell ls [] "},
		{"copilot", "str_replace_editor", `{"command":"view","path":"a"}`, "builtin:read  [a] "},
		{"copilot", "str_replace_editor", `{"command":"create","path":"a"}`, "builtin:edit  [a] "},
		{"copilot", "apply_patch", `{"patch":"*** Add File: a"}`, "builtin:edit  [a] "},
		{"copilot", "apply_patch", `{"command":"*** Move to: a"}`, "builtin:edit  [a] "},
		{"cursor", "EditNotebook", `{"target_notebook":"a"}`, "builtin:edit  [a] "},
		{"cursor", "Write", `{"relative_path":"a","files":["b",{"path":"c"}]}`, "builtin:edit  [a b c] "},
		{"cursor", "ApplyPatch", `{"input":"*** Delete File: a"}`, "builtin:edit  [a] "},
		{"gemini", "run_shell_command", `{"command":"ls","dir_path":"it's"}`, `builtin:shell cd 'it'\''s' && ls [] `},
		{"gemini", "list_directory", `{"dir_path":"src"}`, "builtin:read  [src] "},
		{"gemini", "read_many_files", `{"include":["a","b"]}`, "builtin:read  [a b] "},
		{"gemini", "web_fetch", `{"prompt":"read https://a.example/x"}`, "builtin:fetch  [] https://a.example/x"},
		{"kiro", "fs_read", `{"operations":[{"path":"a"},{"path":"b"}]}`, "builtin:read  [a b] "},
		{"kiro", "readFile", `{"path":"a"}`, "builtin:read  [a] "},
		{"opencode", "patch", `{"patchText":"*** Update File: a"}`, "builtin:edit  [a] "},
	} {
		a, _ := FindAdapter(test.client)
		m := a.members
		event := fmt.Sprintf(`{%q:%q,%q:"s",%q:"/p",%q:%q,%q:%s}`, m.hook, a.events[PhaseBefore], m.session, m.folder, m.tool, test.tool, m.input, test.input)
		if a == &kiro {
			event = strings.Replace(event, a.events[PhaseBefore], "preToolUse", 1)
		}
		e, err := a.Decode([]byte(event))
		if got := fmt.Sprint(e.Builtin, " ", e.Command, " ", e.Paths, " ", e.URL); err != nil || got != test.want {
			t.Errorf("%s: %s: %s, %v; want %s", test.client, event, got, err, test.want)
		}
	}
}

// FuzzDecode gives the same input to every adapter. Decoded events must be complete, because gates use
// them.
func FuzzDecode(f *testing.F) {
	for _, a := range adapters {
		for _, file := range recorded(f, a.Client) {
			input, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(input)
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, a := range adapters {
			e, err := a.Decode(input)
			if err != nil {
				continue
			}
			if e.Phase != PhaseOther && !filepath.IsAbs(e.Folder) {
				t.Errorf("%s: folder %q", a.Client, e.Folder)
			}
			if e.Phase == PhaseBefore {
				if e.Tool == "" || e.Builtin == "builtin:shell" && e.Command == "" || e.Unknown && e.Builtin != "" {
					t.Errorf("%s: %+v", a.Client, e)
				}
				for _, verdict := range []Verdict{Deny, Ask, Continue} {
					if o := a.Encode(e, Answer{Verdict: verdict, Reason: "REASON"}); !bytes.Contains(append(o.Stdout, o.Stderr...), []byte("REASON")) {
						t.Errorf("%s: %s says %+v", a.Client, verdict, o)
					}
				}
			}
		}
	})
}

// TestCodexOpenShell covers lines of Codex that start an interactive shell, and others.
func TestCodexOpenShell(t *testing.T) {
	for line, want := range map[string]bool{
		"bash": true, "bash -i": true, "cd x && /bin/sh -l": true, "env A=1 zsh": true, "sudo su": true, "exec bash": true,
		"bash x.sh": false, "bash -lc 'ls'": false, "sh -c ls": false, "ls": false, "echo bash": false, "git push": false,
	} {
		if got := opensShell(line); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
	a, _ := FindAdapter("codex")
	e, err := a.Decode([]byte(`{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"bash"}}`))
	if err != nil || len(shell.Read(e.Command).Unknown) == 0 {
		t.Errorf("%+v, %v: a gate would not see that any line may follow", e, err)
	}
}
