package agent_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

var testInstallation = agent.Installation{
	Program: "/opt/gavel bin/gavel", Args: []string{"--config", "/home/ada/it's here/gavel.yaml"}, Limit: time.Minute, FailClosed: true,
}

// TestInstallKeepsOtherSettings: each file in testdata/install contains settings of the client that its name
// begins with.
func TestInstallKeepsOtherSettings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/install/*.before")
	if err != nil || len(files) == 0 {
		t.Fatal("no settings", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".before")
		client, _, _ := strings.Cut(name, "_")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after, err := agent.Install(client, before, testInstallation)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".before") + ".after"
			if flag.Lookup("update").Value.String() == "true" {
				if err := os.WriteFile(golden, after, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(after)); diff != "" {
				t.Error("installed (-want +got):\n" + diff)
			}
			again, err := agent.Install(client, after, testInstallation)
			if err != nil || string(again) != string(after) {
				t.Errorf("a second installation changes the file: %v\n%s", err, cmp.Diff(string(after), string(again)))
			}
			moved := testInstallation
			moved.Program, moved.Limit = "/usr/bin/gavel-2", 90*time.Second
			other, err := agent.Install(client, after, moved)
			if err != nil || strings.Contains(string(other), testInstallation.Program) || strings.Count(string(other), moved.Program) != strings.Count(string(after), testInstallation.Program) {
				t.Errorf("another gavel does not replace the hooks: %v\n%s", err, other)
			}
			for _, installed := range [][]byte{after, other} {
				removed, err := agent.Uninstall(client, installed)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(minimize(t, before), minimize(t, removed)); diff != "" {
					t.Error("other settings after the removal (-before +after):\n" + diff)
				}
			}
		})
	}
}

func TestInstallRefusesBadSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ client, text, want string }{
		{"claude-code", "{\n  \"model\": \"opus\"\n  \"env\": {}\n}", "line 3, column 3"},
		{"claude-code", "{\n  // mine\n}", "not JSON that claude-code reads"},
		{"codex", `{"hooks": {},}`, "not JSON that codex reads"},
		{"claude-code", "[]", "/hooks cannot be changed"},
		{"claude-code", `{"hooks": []}`, "/hooks/PreToolUse cannot be changed"},
		{"kiro", `{"hooks": {}}`, "/hooks must be an array"},
		{"claude-code", `{"hooks": {"Stop": {}}}`, "/hooks/Stop must be an array"},
		{"claude-code", "{\"hooks\": {},\n\"hooks\": {}}", `duplicate key "hooks" (line 2`},
		{"opencode", "export const Mine = 1", "not a plugin that gavel has written"},
	} {
		after, err := agent.Install(test.client, []byte(test.text), testInstallation)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Install(%s, %q) = %s, %v; want an error with %q", test.client, test.text, after, err, test.want)
		}
	}
}

// TestOwnHooksAreRecognized: gavel's hooks are recognised in any form of the command, and a user's own
// hooks never are.
func TestOwnHooksAreRecognized(t *testing.T) {
	t.Parallel()
	for command, own := range map[string]bool{
		`/usr/bin/gavel hook claude-code --limit 60s`:      true,
		`gavel hook claude-code`:                           true,
		`"/opt/my tools/gavel-1.2" hook claude-code`:       true,
		`/opt/my\ tools/judge hook claude-code --limit 9s`: true,
		`gavel hook cursor`:                                false,
		`gavel lint && gavel hook claude-code`:             false,
		`borg hook claude-code PreToolUse`:                 false,
		`sh -c 'gavel hook claude-code'`:                   false,
		"gavel hook claude-code --limit 60s; rm -r x":      false,
		"gavel hook claude-code --limit 60s &":             false,
		"gavel hook claude-code --limit 60s\nrm -r x":      false,
		"gavel hook claude-code --config \"$(rm x)\"":      false,
		`gavel hook 'claude-code`:                          false,
		``:                                                 false,
	} {
		line, _ := json.Marshal(command)
		text := fmt.Sprintf(`{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":%s}]}]}}`, line)
		all, err := agent.ReadHooks("claude-code", []byte(text))
		if err != nil || (len(all) == 1) != own {
			t.Errorf("%s: %+v, %v; gavel's: %v", command, all, err, own)
		}
		removed, err := agent.Uninstall("claude-code", []byte(text))
		if err != nil || (removed == nil) != own {
			t.Errorf("%s: the removal leaves %s (%v)", command, removed, err)
		}
	}
}

// TestUninstallKeepsOthersOfAGroup: another hook in the same group is kept; a group with only gavel's hook
// is removed with its matcher.
func TestUninstallKeepsOthersOfAGroup(t *testing.T) {
	t.Parallel()
	const own, other = `{"type": "command", "command": "gavel hook claude-code"}`, `{"type": "command", "command": "audit"}`
	const before = `{"hooks": {"Stop": [{"matcher": "x", "hooks": [` + own + `]}], "PreToolUse": [{"matcher": "Bash", "hooks": [` + own + `]}, {"matcher": "Edit", "hooks": [` + own + `, ` + other + `]}]}}`
	const want = `{"hooks": {"PreToolUse": [{"matcher": "Edit", "hooks": [` + other + `]}]}}`
	removed, err := agent.Uninstall("claude-code", []byte(before))
	if diff := cmp.Diff(minimize(t, []byte(want)), minimize(t, removed)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestInstalledCommandsAreQuoted(t *testing.T) {
	t.Parallel()
	for _, windows := range []bool{false, true} {
		in := agent.Installation{Program: "/a b/gavel", Args: []string{"--config", "/it's/$HOME/`x`;&.yaml", "--server", ""}, Limit: time.Second, Windows: windows}
		if windows {
			in.Program, in.Args = `C:\Program Files\gavel\gavel.exe`, []string{"--config", `C:\Users\Ada Lovelace\gavel.yaml`}
		}
		for _, client := range agent.InstallClients() {
			text, err := agent.Install(client, nil, in)
			if err != nil {
				t.Fatal(err)
			}
			all, err := agent.ReadHooks(client, text)
			if err != nil || len(all) != len(agent.InstalledEvents(client)) {
				t.Fatalf("%s: %d hooks, %v", client, len(all), err)
			}
			want := append(append([]string{in.Program, "hook", client}, in.Args...), "--limit", "1s")
			for _, h := range all {
				if diff := cmp.Diff(want, h.Words); diff != "" || h.Limit() != time.Second || h.Option("config") != in.Args[1] {
					t.Errorf("%s %s: %s\n%+v", client, h.Event, diff, h)
				}
			}
		}
	}
}

func TestSettingsFile(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	moved := func(name string) string { return "/moved/" + name }
	for _, test := range []struct {
		client string
		scope  agent.Scope
		lookup func(string) string
		want   string
	}{
		{"claude-code", agent.ScopeUser, none, "/home/ada/.claude/settings.json"},
		{"claude-code", agent.ScopeUser, moved, "/moved/CLAUDE_CONFIG_DIR/settings.json"},
		{"claude-code", agent.ScopeProject, moved, "/p/.claude/settings.local.json"},
		{"copilot", agent.ScopeUser, moved, "/moved/COPILOT_HOME/hooks/gavel.json"},
		{"copilot", agent.ScopeProject, none, "/p/.github/hooks/gavel.json"},
		{"cursor", agent.ScopeUser, moved, "/home/ada/.cursor/hooks.json"},
		{"opencode", agent.ScopeUser, moved, "/moved/XDG_CONFIG_HOME/opencode/plugins/gavel.js"},
		{"opencode", agent.ScopeProject, none, "/p/.opencode/plugins/gavel.js"},
	} {
		if got := agent.SettingsFile(test.client, test.scope, "/home/ada", "/p", test.lookup); filepath.ToSlash(got) != test.want {
			t.Errorf("%s %s: %s, want %s", test.client, test.scope, got, test.want)
		}
	}
}

// minimize removes the layout of JSON with comments.
func minimize(t *testing.T, text []byte) string {
	t.Helper()
	if text = bytes.TrimPrefix(text, []byte("\ufeff")); len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	v, err := hujson.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	v.Standardize()
	v.Minimize()
	return v.String()
}

// FuzzInstallRoundTrip: in any readable file, other hooks are kept, and uninstalling removes all of
// gavel's.
func FuzzInstallRoundTrip(f *testing.F) {
	files, err := filepath.Glob("testdata/install/*.before")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
	}
	for _, text := range []string{
		"{}", "{ }", "{\n}", "{//a\n}", "{\"a\":1,}", "{\"a\":1 /*x*/ , // y\n}", "{\"hooks\":{\"BeforeTool\":[ // x\n]}}", "{\"hooks\":{\"BeforeTool\":[1 , 2 ,]\r\n}}",
		"{\"a\":1,\"hooks\":{\"BeforeTool\":[ // x\n]}}",
	} {
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, before []byte, nested bool) {
		client := "gemini"
		if !nested {
			client = "cursor"
		}
		plain, err := agent.Uninstall(client, before)
		if err != nil || plain == nil || strings.Contains(string(plain), "gavel") {
			return // unreadable, or contains nothing else
		}
		after, err := agent.Install(client, plain, testInstallation)
		if err != nil {
			t.Skip(err)
		}
		if again, err := agent.Install(client, after, testInstallation); err != nil || string(again) != string(after) {
			t.Fatalf("a second installation makes of\n%s\n%s\n%v", after, again, err)
		}
		removed, err := agent.Uninstall(client, after)
		if err != nil {
			t.Fatalf("%v in\n%s", err, after)
		}
		if diff := cmp.Diff(withoutEmptyHooks(t, plain), withoutEmptyHooks(t, removed)); diff != "" {
			t.Fatalf("%s\nbefore\n%q\nafter\n%q", diff, plain, removed)
		}
		if strings.Contains(string(removed), testInstallation.Program) {
			t.Fatalf("left after the removal:\n%s", removed)
		}
	})
}

// withoutEmptyHooks parses settings, without the version that an installation adds, and the empty lists
// that a removal drops.
func withoutEmptyHooks(t *testing.T, text []byte) (settings map[string]any) {
	t.Helper()
	if plain := minimize(t, text); plain != "" {
		if err := json.Unmarshal([]byte(plain), &settings); err != nil {
			t.Fatal(err)
		}
	}
	hooks, ok := settings["hooks"].(map[string]any)
	for event, list := range hooks {
		if list, ok := list.([]any); ok && len(list) == 0 {
			delete(hooks, event)
		}
	}
	if ok && len(hooks) == 0 {
		delete(settings, "hooks")
	}
	delete(settings, "version")
	if len(settings) == 0 {
		return nil
	}
	return settings
}
