package hook

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
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

// Sample is what a client writes to the hook before a use of a tool: what a shell is to run, the file
// to edit or read, or the address to fetch.
func Sample(client, builtin, folder, text string) []byte {
	const id = "gavel-doctor"
	use := func(name, member string, more ...orderedMember) orderedObject {
		return orderedObject{{"tool_name", name}, {"tool_input", append(orderedObject{{member, text}}, more...)}}
	}
	var tools map[string]orderedObject
	var common orderedObject
	switch client {
	case "claude-code":
		common = orderedObject{{"hook_event_name", "PreToolUse"}, {"session_id", id}, {"transcript_path", ""}, {"cwd", folder}, {"permission_mode", "default"}, {"tool_use_id", id}}
		tools = map[string]orderedObject{
			gate.BuiltinShell: use("Bash", "command"), gate.BuiltinEdit: use("Write", "file_path", orderedMember{"content", ""}),
			gate.BuiltinRead: use("Read", "file_path"), gate.BuiltinFetch: use("WebFetch", "url", orderedMember{"prompt", ""}),
		}
	case "codex":
		common = orderedObject{{"hook_event_name", "PreToolUse"}, {"session_id", id}, {"turn_id", id}, {"transcript_path", nil}, {"cwd", folder}, {"model", id}, {"permission_mode", "default"}, {"tool_use_id", id}}
		tools = map[string]orderedObject{gate.BuiltinShell: use("Bash", "command")}
	case "copilot":
		common = orderedObject{{"hook_event_name", "PreToolUse"}, {"session_id", id}, {"timestamp", "2026-01-01T00:00:00Z"}, {"cwd", folder}}
		tools = map[string]orderedObject{gate.BuiltinShell: use("Bash", "command"), gate.BuiltinEdit: use("Write", "path", orderedMember{"file_text", ""}), gate.BuiltinRead: use("Read", "path"), gate.BuiltinFetch: use("WebFetch", "url")}
	case "cursor":
		common = orderedObject{{"hook_event_name", "preToolUse"}, {"conversation_id", id}, {"generation_id", id}, {"model", id}, {"cursor_version", ""}, {"workspace_roots", []string{folder}}, {"cwd", folder}, {"tool_use_id", id}}
		tools = map[string]orderedObject{gate.BuiltinShell: use("Shell", "command"), gate.BuiltinEdit: use("Write", "file_path"), gate.BuiltinRead: use("Read", "file_path")}
	case "gemini":
		common = orderedObject{{"hook_event_name", "BeforeTool"}, {"session_id", id}, {"transcript_path", ""}, {"cwd", folder}, {"timestamp", "2026-01-01T00:00:00Z"}}
		tools = map[string]orderedObject{gate.BuiltinShell: use("run_shell_command", "command"), gate.BuiltinEdit: use("write_file", "file_path", orderedMember{"content", ""}), gate.BuiltinRead: use("read_file", "file_path"), gate.BuiltinFetch: use("web_fetch", "prompt")}
	case "kiro":
		common = orderedObject{{"hook_event_name", "PreToolUse"}, {"session_id", id}, {"cwd", folder}}
		tools = map[string]orderedObject{gate.BuiltinShell: use("execute_bash", "command")}
	case "opencode":
		common = orderedObject{{"hook", "tool.execute.before"}, {"directory", folder}, {"sessionID", id}, {"callID", id}}
		tools = map[string]orderedObject{gate.BuiltinShell: {{"tool", "bash"}, {"args", orderedObject{{"command", text}}}}, gate.BuiltinEdit: {{"tool", "write"}, {"args", orderedObject{{"filePath", text}, {"content", ""}}}}}
	}
	tool, ok := tools[builtin]
	if !ok {
		return nil
	}
	raw, _ := encodePlain(slices.Concat(common, tool)) // texts always encode
	return raw
}

// MatchSample finds the gates that a Sample is about; nil where the client has no adapter.
func MatchSample(client string, gates gate.Config, sample []byte) []gate.Match {
	adapter, ok := FindAdapter(client)
	if !ok {
		return nil
	}
	e, err := adapter.Decode(sample)
	if err != nil {
		return nil
	}
	e.Places = FindPlaces(e)
	return gates.Match(NewUse(e, shell.Read(e.Command)))
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

// SampleTexts are texts for Sample of uses that a gate on a builtin tool is about, as far as its
// patterns show: one for each entry.
func SampleTexts(g gate.Gate, project, home string) (all []string) {
	entries := g.When
	if len(entries) == 0 {
		entries = []gate.When{{}}
	}
	for _, w := range entries {
		path := ""
		if len(w.Paths) > 0 {
			path = samplePath(w.Paths[0], project, home)
		}
		address := ""
		if len(w.Hosts) > 0 {
			address = "https://" + fillPattern(w.Hosts[0]) + "/"
		}
		text := path
		switch g.Builtin {
		case gate.BuiltinShell:
			program := "cat"
			if len(w.Programs) > 0 {
				program = fillPattern(w.Programs[0])
			}
			words := []string{program}
			for _, word := range append(slices.Clone(w.Args), path, address) {
				if word != "" {
					words = append(words, quoteWord(fillPattern(word), false))
				}
			}
			text = strings.Join(words, " ")
		case gate.BuiltinFetch:
			text = address
			if text == "" {
				text = "https://example.invalid/"
			}
		default:
			if text == "" {
				text = filepath.Join(project, "gavel-doctor")
			}
		}
		all = append(all, text)
	}
	return all
}

// samplePath is a file that a pattern of paths is about.
func samplePath(pattern, project, home string) string {
	name := filepath.FromSlash(fillPattern(pattern))
	switch rest, ok := strings.CutPrefix(name, "~"); {
	case ok:
		return filepath.Join(home, rest)
	case filepath.IsAbs(name):
		return name
	default:
		return filepath.Join(project, name)
	}
}

var anyText = strings.NewReplacer("**", "gavel", "*", "gavel", "?", "g")

// fillPattern puts texts where a pattern has wildcards, and the first of its alternatives.
func fillPattern(pattern string) string {
	for {
		begin := strings.IndexByte(pattern, '{')
		end := strings.IndexByte(pattern, '}')
		if begin < 0 || end < begin {
			return anyText.Replace(pattern)
		}
		first, _, _ := strings.Cut(pattern[begin+1:end], ",")
		pattern = pattern[:begin] + first + pattern[end+1:]
	}
}
