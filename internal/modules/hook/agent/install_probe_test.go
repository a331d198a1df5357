package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

// TestReadAnswer uses the formats in the clients' documentation; see ReadAnswer.
func TestReadAnswer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		client string
		exit   int
		stdout string
		want   agent.Reading
	}{
		{"claude-code", 0, "", agent.ReadNeutral},
		{"claude-code", 0, " \n", agent.ReadNeutral},
		{"claude-code", 0, `{"systemMessage":"hello"}`, agent.ReadNeutral},
		{"claude-code", 0, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"}}`, agent.ReadDeny},
		{"claude-code", 0, `{"hookSpecificOutput":{"permissionDecision":"ask"}}`, agent.ReadAsk},
		{"claude-code", 0, `{"hookSpecificOutput":{"permissionDecision":"allow"}}`, agent.ReadAllow},
		{"claude-code", 0, `{"decision":"block","reason":"no"}`, agent.ReadDeny},
		{"claude-code", 0, `{"decision":"approve"}`, agent.ReadAllow},
		{"claude-code", 0, `denied`, agent.ReadFailure},
		{"claude-code", 2, "", agent.ReadDeny},
		{"claude-code", 1, `{"decision":"block"}`, agent.ReadFailure},
		{"claude-code", 127, "", agent.ReadFailure},
		{"cursor", 0, `{"permission":"deny"}`, agent.ReadDeny},
		{"cursor", 0, `{"permission":"allow"}`, agent.ReadAllow},
		{"gemini", 0, `{"decision":"deny","reason":"no"}`, agent.ReadDeny},
		{"gemini", 1, "", agent.ReadFailure},
		{"gemini", 127, "", agent.ReadDeny},
		{"gemini", 2, `{"decision":"allow"}`, agent.ReadAllow},
		{"cursor", 0, "", agent.ReadFailure},
		{"cursor", 0, "{}", agent.ReadNeutral},
		{"codex", 0, `{"hookSpecificOutput":{"permissionDecision":"ask"}}`, agent.ReadFailure},
		{"codex", 2, "", agent.ReadDeny},
		{"copilot", 1, "", agent.ReadDeny},
		{"copilot", 0, `{"permissionDecision":"deny"}`, agent.ReadDeny},
		{"kiro", 0, `{"decision":"block"}`, agent.ReadNeutral},
		{"kiro", 2, "", agent.ReadDeny},
		{"opencode", 0, `{"deny":"no"}`, agent.ReadDeny},
		{"opencode", 1, "", agent.ReadDeny},
	} {
		if got := agent.ReadAnswer(test.client, test.exit, []byte(test.stdout)); got != test.want {
			t.Errorf("%s reads exit code %d with %q as %s, want %s", test.client, test.exit, test.stdout, got, test.want)
		}
	}
}

func TestFindSwitches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ client, file, text, want string }{
		{"claude-code", "home/.claude/settings.json", `{"disableAllHooks": true}`, "disableAllHooks=true"},
		{"claude-code", "project/.claude/settings.local.json", `{"disableAllHooks": false}`, ""},
		{"claude-code", "project/.claude/settings.json", `{"allowManagedHooksOnly": true}`, "allowManagedHooksOnly=true"},
		{"claude-code", "home/.claude/settings.json", `{"disableAllHooks": tr`, ""},
		{"copilot", "home/.copilot/settings.json", "\ufeff{\"disableAllHooks\": true}", "disableAllHooks=true"},
		{"copilot", "project/.github/hooks/gavel.json", `{"disableAllHooks": true}`, "disableAllHooks=true"},
		{"gemini", "project/.gemini/settings.json", "{ // off\n\"hooksConfig\": {\"enabled\": false}}", "hooksConfig/enabled=false"},
		{"gemini", "home/.gemini/settings.json", `{"hooksConfig": {"disabled": ["lint", "gavel"]}}`, `hooksConfig/disabled="gavel"`},
		{"gemini", "home/.gemini/settings.json", `{"hooks": {"BeforeTool": []}}`, ""},
		{"cursor", "home/.cursor/hooks.json", `{"disableAllHooks": true}`, ""},
	} {
		top := t.TempDir()
		path := filepath.Join(top, filepath.FromSlash(test.file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := test.want
		if want != "" {
			want += " in " + path
		}
		user := agent.SettingsFile(test.client, agent.ScopeUser, filepath.Join(top, "home"), "", func(string) string { return "" })
		found := agent.FindSwitches(test.client, user, filepath.Join(top, "project"))
		if got := strings.Join(found, ", "); got != want {
			t.Errorf("%s, %s with %q: %q, want %q", test.client, test.file, test.text, got, want)
		}
	}
}

func TestSampleLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		gate gate.Gate
		want string
	}{
		{gate.Gate{Builtin: gate.BuiltinShell}, ""},
		{gate.Gate{Builtin: gate.BuiltinEdit, When: []gate.When{{Programs: []string{"git"}}}}, ""},
		{gate.Gate{Builtin: gate.BuiltinShell, When: []gate.When{{Programs: []string{"git", "hub"}, Args: []string{"push"}}}}, "git push"},
		{gate.Gate{Builtin: gate.BuiltinShell, When: []gate.When{{Programs: []string{"git"}, Args: []string{"--tags*"}}}}, ""},
		{gate.Gate{Builtin: gate.BuiltinShell, When: []gate.When{{Programs: []string{"cat"}, Paths: []string{"secrets/**"}}}}, ""},
	} {
		if got := agent.SampleLine(test.gate); got != test.want {
			t.Errorf("%+v: %q, want %q", test.gate, got, test.want)
		}
	}
}

// TestSamplesAreRead: doctor sends the events that the client would send.
func TestSamplesAreRead(t *testing.T) {
	t.Parallel()
	for _, client := range agent.Clients() {
		adapter, _ := agent.FindAdapter(client)
		e, err := adapter.Decode(agent.Sample(client, "/p", "git push"))
		if err != nil || e.Phase != agent.PhaseBefore || e.Builtin != gate.BuiltinShell || e.Unknown || e.Folder != "/p" || e.Command != "git push" {
			t.Errorf("%s: %+v, %v", client, e, err)
		}
	}
}

// TestInstalledEventsAreThoseOfTheAdapters: the adapter decodes each installed hook, and each hook that it
// decides is installed.
func TestInstalledEventsAreThoseOfTheAdapters(t *testing.T) {
	t.Parallel()
	for _, client := range agent.Clients() {
		adapter, _ := agent.FindAdapter(client)
		installed := agent.InstalledEvents(client)
		for _, event := range installed {
			input := fmt.Sprintf(`{"hook_event_name":%q,"hook":%[1]q,"sessionID":"s","directory":"/p"}`, event)
			if _, err := adapter.Decode([]byte(input)); err != nil && strings.Contains(err.Error(), "unknown hook event") {
				t.Errorf("%s: %v", client, err)
			}
		}
		files, err := filepath.Glob("testdata/" + client + "/*.json")
		if err != nil || len(files) == 0 {
			t.Fatal(client, "has no recorded inputs", err)
		}
		for _, file := range files {
			input, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			e, err := adapter.Decode(input)
			old := client == "kiro" && slices.ContainsFunc(installed, func(name string) bool { return strings.EqualFold(name, e.Hook) }) || e.Hook == "agentSpawn"
			if err == nil && e.Phase != agent.PhaseOther && !slices.Contains(installed, e.Hook) && !old {
				t.Errorf("%s: gavel decides about %s, and is not asked", file, e.Hook)
			}
		}
	}
}
