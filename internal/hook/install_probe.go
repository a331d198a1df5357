package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// InstalledEvents are the hooks that gavel answers in a client, the one before a tool first.
func InstalledEvents(client string) (names []string) {
	if client == "opencode" {
		return pluginEvents
	}
	for _, e := range installers[client].events {
		names = append(names, e.name)
	}
	return names
}

// HasFailClosed reports whether a client has a setting that blocks a tool whose hook fails.
func HasFailClosed(client string) bool { return client == "claude-code" || client == "cursor" }

// DescribeFailing says what a client does where the hook before a tool fails, with gavel's settings.
func DescribeFailing(client string) string {
	return map[string]string{
		"claude-code": "fails closed: a tool whose hook fails, hangs or is missing is blocked; before 2.1.295 it runs. A stop whose hook fails ends the agent",
		"cursor":      "fails closed: a tool whose hook fails, hangs or is missing is blocked. A stop whose hook fails ends the agent",
		"gemini":      "fails open: a tool whose hook ends with exit code 1 or by a signal, or hangs past its timeout, runs; where it is missing, the tool is blocked",
		"codex":       "fails open: a tool whose hook crashes, hangs past its timeout, is missing or was never trusted runs",
		"copilot":     "fails closed where the hook crashes or is missing, and open where it hangs past its timeout: then the tool runs",
		"kiro":        "fails open: a tool whose hook crashes, hangs past its timeout or is missing runs",
		"opencode":    "fails closed: the plugin throws whatever goes wrong. A plugin that opencode cannot load is left out, and tools run",
	}[client]
}

// Sample is what a client writes to the hook before a shell runs a line.
func Sample(client, folder, line string) []byte {
	const id = "gavel-doctor"
	shell := map[string]string{"cursor": "Shell", "gemini": "run_shell_command", "kiro": "execute_bash"}
	e := map[string]any{
		"hook_event_name": InstalledEvents(client)[0], "session_id": id, "cwd": folder, "tool_use_id": id,
		"tool_name": cmp.Or(shell[client], "Bash"), "tool_input": map[string]string{"command": line},
	}
	switch client {
	case "claude-code", "codex":
		maps.Copy(e, map[string]any{"turn_id": id, "transcript_path": "", "model": id, "permission_mode": "default"})
	case "copilot", "gemini":
		maps.Copy(e, map[string]any{"transcript_path": "", "timestamp": "2026-01-01T00:00:00Z"})
	case "cursor":
		maps.Copy(e, map[string]any{"conversation_id": id, "generation_id": id, "model": id, "cursor_version": "", "workspace_roots": []string{folder}})
	case "opencode":
		e = map[string]any{"hook": InstalledEvents(client)[0], "directory": folder, "sessionID": id, "callID": id, "tool": "bash", "args": map[string]string{"command": line}}
	}
	raw, _ := encodePlain(e) // texts always encode
	return raw
}

// SampleLine is a line that a gate on the shell is about, "" where its patterns do not show one.
func SampleLine(g gate.Gate) string {
	if g.Builtin != gate.BuiltinShell || len(g.When) == 0 || len(g.When[0].Programs) == 0 || len(g.When[0].Paths)+len(g.When[0].Hosts) > 0 {
		return ""
	}
	line := strings.Join(append([]string{g.When[0].Programs[0]}, g.When[0].Args...), " ")
	if strings.ContainsAny(line, "*?[{") {
		return ""
	}
	return line
}

// CouldNotDecide is in what an agent reads where gavel denies because of a failure.
const CouldNotDecide = "gavel could not decide"

// Reading is how a client takes what a hook answers before a tool.
type Reading string

// The readings.
const (
	ReadNeutral Reading = "neutral" // the client's own rules decide
	ReadDeny    Reading = "deny"
	ReadAsk     Reading = "ask"
	ReadAllow   Reading = "allow"  // the client's own rules are skipped
	ReadFailure Reading = "failed" // the hook failed: see DescribeFailing
)

// ReadAnswer reads an answer as the client does, by its documentation and not by the adapter.
func ReadAnswer(client string, exit int, stdout []byte) Reading {
	empty := len(bytes.TrimSpace(stdout)) == 0
	if client == "gemini" && json.Valid(stdout) {
		exit = 0 // Gemini CLI reads JSON whatever the exit code
	}
	switch {
	case exit == 2, exit != 0 && (client == "copilot" || client == "opencode"), exit > 2 && client == "gemini":
		return ReadDeny
	case exit != 0, empty && client == "cursor":
		return ReadFailure
	case client == "kiro", empty:
		return ReadNeutral // Kiro takes the output for context
	}
	var answer struct {
		Permission         string          `json:"permission"`         // Cursor
		PermissionDecision string          `json:"permissionDecision"` // Copilot
		Decision           string          `json:"decision"`           // Gemini CLI, and the older form of Claude Code and Codex
		Deny               string          `json:"deny"`               // the plugin of opencode
		Continue           *bool           `json:"continue"`
		Specific           json.RawMessage `json:"hookSpecificOutput"`
	}
	var specific struct {
		PermissionDecision string `json:"permissionDecision"`
	}
	if json.Unmarshal(stdout, &answer) != nil || len(answer.Specific) > 0 && json.Unmarshal(answer.Specific, &specific) != nil {
		return ReadFailure
	}
	said := []string{answer.Permission, answer.PermissionDecision, answer.Decision, specific.PermissionDecision}
	switch {
	case answer.Deny != "" && client == "opencode", slices.Contains(said, "deny"), slices.Contains(said, "block"):
		return ReadDeny
	case slices.Contains(said, "ask") && client == "codex":
		return ReadFailure
	case slices.Contains(said, "ask"):
		return ReadAsk
	case slices.Contains(said, "allow"), slices.Contains(said, "approve"):
		return ReadAllow
	}
	return ReadNeutral
}

// SwitchFile is a file of a client in which its hooks can be switched off.
type SwitchFile struct {
	Path string
	// Managed is one of the machine's administrator, which has switches of its own.
	Managed bool
}

// SwitchFiles lists them.
func SwitchFiles(client, home, project string, lookup func(string) string) (all []SwitchFile) {
	add := func(managed bool, elements ...string) {
		all = append(all, SwitchFile{filepath.Join(elements...), managed})
	}
	user := filepath.Dir(SettingsFile(client, ScopeUser, home, project, lookup))
	switch client {
	case "claude-code":
		add(false, user, "settings.json")
		add(false, project, ".claude", "settings.json")
		add(false, project, ".claude", "settings.local.json")
		switch runtime.GOOS {
		case "windows":
			add(true, `C:\Program Files\ClaudeCode\managed-settings.json`)
		case "darwin":
			add(true, "/Library/Application Support/ClaudeCode/managed-settings.json")
		default:
			add(true, "/etc/claude-code/managed-settings.json")
		}
	case "gemini":
		add(false, user, "settings.json")
		add(false, project, ".gemini", "settings.json")
		add(true, "/etc/gemini-cli/settings.json")
	case "codex":
		add(false, user, "config.toml")
		add(false, project, ".codex", "config.toml")
	case "copilot":
		add(false, filepath.Dir(user), "settings.json")
		add(false, project, ".github", "copilot", "settings.json")
		add(false, project, ".github", "copilot", "settings.local.json")
		add(false, project, ".github", "hooks", "gavel.json")
		add(false, user, "gavel.json")
	}
	return all
}

// SwitchedOff is the setting that switches hooks off in the text of a SwitchFile, "" for none.
func SwitchedOff(client string, text []byte, managed bool) string {
	if client == "codex" {
		section := ""
		for line := range strings.Lines(string(text)) {
			line = strings.ReplaceAll(strings.TrimSpace(line), " ", "")
			if strings.HasPrefix(line, "[") {
				section = line
			}
			for _, key := range []string{"hooks", "codex_hooks"} {
				if section == "[features]" && strings.HasPrefix(line, key+"=false") || section == "" && strings.HasPrefix(line, "features."+key+"=false") {
					return "features." + key + " = false"
				}
			}
		}
		return ""
	}
	plain, err := hujson.Standardize(slices.Clone(bytes.TrimPrefix(text, byteOrderMark)))
	if err != nil {
		return ""
	}
	v, err := document.ReadJSON(plain, document.Limits{Bytes: MaxInput, Depth: 256, Lax: true})
	if err != nil {
		return ""
	}
	switch client {
	case "claude-code", "copilot":
		if v.Get("disableAllHooks").Kind() == document.True {
			return "disableAllHooks: true"
		}
		if managed && v.Get("allowManagedHooksOnly").Kind() == document.True {
			return "allowManagedHooksOnly: true"
		}
	case "gemini":
		for _, section := range []string{"hooksConfig", "hooks"} {
			if v.At(section, "enabled").Kind() == document.False {
				return section + ".enabled: false"
			}
			for _, name := range v.At(section, "disabled").Elements() {
				if name.Text() == "gavel" {
					return section + `.disabled: ["gavel"]`
				}
			}
		}
	}
	return ""
}
