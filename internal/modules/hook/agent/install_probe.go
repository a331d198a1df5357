package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Sample returns what a client writes to the hook before a shell runs a line. It contains the members of
// all clients.
func Sample(client, folder, line string) []byte {
	const id = "gavel-doctor"
	event, input := InstalledEvents(client)[0], map[string]string{"command": line}
	shell := map[string]string{"cursor": "Shell", "gemini": "run_shell_command", "kiro": "execute_bash", "opencode": "bash"}
	raw, _ := document.Marshal(map[string]any{ // strings always encode
		"hook_event_name": event, "session_id": id, "cwd": folder, "tool_use_id": id, "tool_name": cmp.Or(shell[client], "Bash"), "tool_input": input,
		"turn_id": id, "transcript_path": "", "model": id, "permission_mode": "default", "timestamp": "2026-01-01T00:00:00Z",
		"conversation_id": id, "generation_id": id, "cursor_version": "", "workspace_roots": []string{folder},
		"hook": event, "directory": folder, "sessionID": id, "callID": id, "tool": "bash", "args": input,
	})
	return raw
}

// SampleLine returns a shell line that the gate covers, or "" if none can be derived from its patterns.
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

// UndecidedText is part of each denial that is caused by a failure.
const UndecidedText = "gavel could not decide"

// Reading is how a client interprets a hook's answer before a tool.
type Reading string

// The readings.
const (
	ReadNeutral Reading = "neutral" // the client's own rules decide
	ReadDeny    Reading = "deny"
	ReadAsk     Reading = "ask"
	ReadAllow   Reading = "allow"  // the client's own rules are skipped
	ReadFailure Reading = "failed" // the hook failed: see DescribeFailing
)

// ReadAnswer interprets an answer as the client does. It follows the client's documentation, independently
// of the adapter.
func ReadAnswer(client string, exit int, stdout []byte) Reading {
	empty := len(bytes.TrimSpace(stdout)) == 0
	if client == "gemini" && json.Valid(stdout) {
		exit = 0 // Gemini CLI reads JSON with any exit code
	}
	switch {
	case exit == 2, exit != 0 && (client == "copilot" || client == "opencode"), exit > 2 && client == "gemini":
		return ReadDeny
	case exit != 0, empty && client == "cursor":
		return ReadFailure
	case client == "kiro", empty:
		return ReadNeutral // Kiro treats the output as context
	}
	v, err := document.ReadJSON(stdout, document.Limits{Bytes: MaxInput, Depth: 256, Lax: true})
	if err != nil {
		return ReadFailure
	}
	// In order: Cursor; Copilot; Gemini CLI and the older form of Claude Code and Codex; their current
	// form; the plugin of opencode.
	said := []string{v.Get("permission").Text(), v.Get("permissionDecision").Text(), v.Get("decision").Text(), v.At("hookSpecificOutput", "permissionDecision").Text()}
	switch {
	case v.Get("deny").Text() != "" && client == "opencode", slices.Contains(said, "deny"), slices.Contains(said, "block"):
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

// FindSwitches returns the settings that disable a client's hooks, with their files. user is the path of
// the user's SettingsFile.
func FindSwitches(client, user, project string) (found []string) {
	folders := map[string]string{"~": filepath.Dir(user), ".": project}
	for _, path := range installers[client].switchFiles {
		if top, rest, _ := strings.Cut(path, "/"); folders[top] != "" {
			path = filepath.Join(folders[top], filepath.FromSlash(rest))
		}
		text, err := os.ReadFile(path) //nolint:gosec // the settings of the user's own client
		if err != nil {
			continue
		}
		settings, err := hujson.Parse(bytes.TrimPrefix(text, byteOrderMark))
		if err != nil {
			continue
		}
		for _, setting := range installers[client].switches {
			pointer, value, _ := strings.Cut(setting, "=")
			if v := settings.Find(pointer); v != nil {
				for element := range v.All() { // v itself is the first
					if l, ok := element.Value.(hujson.Literal); ok && string(l) == value {
						found = append(found, setting[1:]+" in "+path)
					}
				}
			}
		}
	}
	return found
}
