package agent

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Scope selects the settings of a client into which hooks are written.
type Scope string

// The scopes.
const (
	ScopeUser    Scope = "user"    // every project of the user
	ScopeProject Scope = "project" // one project, on this machine
)

// installer describes where and how a client stores its hooks.
type installer struct {
	user, project string   // the settings file, relative to the home folder and to the project's folder
	homeVar       string   // the environment variable that overrides the first element of user
	events        []string // the events that gavel answers, the one before a tool first
	// hook is added to the list of each event. Words that begin with $ are replaced; see
	// Installation.hookAt. It has no matcher, so that new tools reach the hook too.
	hook       string
	failClosed string // the value of $FAILCLOSED before a tool: blocks a tool whose hook fails
	oneList    bool   // hooks is a single list, not an object with a list for each event
	version    string // the member version of the file
	comments   bool   // the client accepts comments and trailing commas
	powershell bool   // it runs commands with PowerShell on Windows
	failing    string // what the client does if the hook before a tool fails
	after      string // what the user must do or know after an installation
	// switchFiles are the files that may contain switches: settings that disable hooks, as a JSON pointer
	// and its value. "~" is the folder of the user's settings, "." the project's.
	switchFiles, switches []string
}

var installers = map[string]installer{
	// https://code.claude.com/docs/en/hooks. It uses the local settings, because the paths are specific to
	// this machine.
	"claude-code": {
		user: ".claude/settings.json", project: ".claude/settings.local.json", homeVar: "CLAUDE_CONFIG_DIR", powershell: true,
		events:     []string{"PreToolUse", "SessionStart", "PostToolUse", "PostToolUseFailure", "PermissionDenied", "Stop", "SubagentStop"},
		hook:       `{"hooks": [{"type": "command", "command": $COMMAND, "timeout": $SECONDS$FAILCLOSED}]}`,
		failClosed: `, "onFailure": "block"`,
		failing:    "fails closed: a tool whose hook fails, hangs or is missing is blocked; before 2.1.295 it runs. A stop whose hook fails ends the agent",
		switchFiles: []string{
			"~/settings.json", "./.claude/settings.json", "./.claude/settings.local.json", `C:\Program Files\ClaudeCode\managed-settings.json`,
			"/Library/Application Support/ClaudeCode/managed-settings.json", "/etc/claude-code/managed-settings.json",
		},
		switches: []string{"/disableAllHooks=true", "/allowManagedHooksOnly=true"},
	},
	// https://cursor.com/docs/agent/hooks
	"cursor": {
		user: ".cursor/hooks.json", project: ".cursor/hooks.json", powershell: true, version: "1",
		events:     []string{"preToolUse", "sessionStart", "postToolUse", "postToolUseFailure", "stop", "subagentStop"},
		hook:       `{"command": $COMMAND, "timeout": $SECONDS$FAILCLOSED}`,
		failClosed: `, "failClosed": true`,
		failing:    "fails closed: a tool whose hook fails, hangs or is missing is blocked. A stop whose hook fails ends the agent",
	},
	// https://geminicli.com/docs/hooks/reference
	"gemini": {
		user: ".gemini/settings.json", project: ".gemini/settings.json", powershell: true, comments: true,
		events:      []string{"BeforeTool", "SessionStart", "AfterTool", "AfterAgent"},
		hook:        `{"hooks": [{"name": "gavel", "type": "command", "command": $COMMAND, "timeout": $MILLISECONDS}]}`,
		failing:     "fails open: a tool whose hook ends with exit code 1 or by a signal, or hangs past its timeout, runs; if the hook is missing, the tool is blocked",
		after:       "Gemini CLI warns of new hooks of a project, and runs them only in a folder that you trust.",
		switchFiles: []string{"~/settings.json", "./.gemini/settings.json", "/etc/gemini-cli/settings.json"},
		switches:    []string{"/hooksConfig/enabled=false", "/hooks/enabled=false", `/hooksConfig/disabled="gavel"`, `/hooks/disabled="gavel"`},
	},
	// https://developers.openai.com/codex/hooks. Codex itself reports which hooks it runs; gavel hook
	// doctor asks it.
	"codex": {
		user: ".codex/hooks.json", project: ".codex/hooks.json", homeVar: "CODEX_HOME",
		events:  []string{"PreToolUse", "SessionStart", "PostToolUse", "Stop", "SubagentStop"},
		hook:    `{"hooks": [{"type": "command", "command": $COMMAND, "timeout": $SECONDS}]}`,
		failing: "fails open: a tool whose hook crashes, hangs past its timeout, is missing or was never trusted runs",
		after:   "Codex skips a new or changed hook until you trust it: type /hooks in it.",
	},
	// https://docs.github.com/en/copilot/reference/hooks-reference. Events whose names are capitalised are
	// named in their input.
	"copilot": {
		user: ".copilot/hooks/gavel.json", project: ".github/hooks/gavel.json", homeVar: "COPILOT_HOME", powershell: true, version: "1",
		events:      []string{"PreToolUse", "SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop"},
		hook:        `{"type": "command", "$SHELL": $COMMAND, "timeoutSec": $SECONDS}`,
		failing:     "fails closed if the hook crashes or is missing, and open if it hangs past its timeout: then the tool runs",
		after:       "Copilot CLI runs hooks of a project only in a folder that you trust. Do not commit the file: it is for this machine.",
		switchFiles: []string{"~/../settings.json", "~/gavel.json", "./.github/copilot/settings.json", "./.github/copilot/settings.local.json", "./.github/hooks/gavel.json"},
		switches:    []string{"/disableAllHooks=true"},
	},
	// https://kiro.dev/docs/hooks
	"kiro": {
		user: ".kiro/hooks/gavel.json", project: ".kiro/hooks/gavel.json", oneList: true, version: `"v1"`,
		events:  []string{"PreToolUse", "SessionStart", "PostToolUse", "Stop"},
		hook:    `{"name": "gavel $EVENT", "trigger": "$EVENT", "action": {"type": "command", "command": $COMMAND}, "timeout": $SECONDS, "enabled": true}`,
		failing: "fails open: a tool whose hook crashes, hangs past its timeout or is missing runs",
	},
	// opencode has no command hooks: see installPlugin.
	"opencode": {
		user: ".config/opencode/plugins/gavel.js", project: ".opencode/plugins/gavel.js", homeVar: "XDG_CONFIG_HOME",
		events:  []string{"tool.execute.before", "tool.execute.after", "session.created", "session.idle"},
		failing: "fails closed: the plugin throws whatever goes wrong. A plugin that opencode cannot load is left out, and tools run",
		after:   "opencode loads plugins when it starts: start it again.",
	},
}

// InstallClients returns the names of the clients whose settings gavel can write.
func InstallClients() (names []string) {
	for name := range installers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// SettingsFile returns the path of a client's hooks. lookup returns the value of an environment variable.
func SettingsFile(client string, scope Scope, home, project string, lookup func(string) string) string {
	in := installers[client]
	if scope == ScopeProject {
		return filepath.Join(project, filepath.FromSlash(in.project))
	}
	top, rest, _ := strings.Cut(in.user, "/")
	folder := filepath.Join(home, top)
	if in.homeVar != "" && lookup(in.homeVar) != "" {
		folder = lookup(in.homeVar)
	}
	return filepath.Join(folder, filepath.FromSlash(rest))
}

// InstalledEvents returns the hooks that gavel answers in a client, the one before a tool first.
func InstalledEvents(client string) []string { return installers[client].events }

// DescribeFailing describes what a client does if the hook before a tool fails, with gavel's settings.
func DescribeFailing(client string) string { return installers[client].failing }

// AfterInstall returns what the user of a client must do or know after an installation, or "".
func AfterInstall(client string) string { return installers[client].after }

// OnWindows reports whether commands are written for a Windows shell.
const OnWindows = runtime.GOOS == "windows"

// Installation is what gavel writes into a client's settings.
type Installation struct {
	Program string        // the absolute path of gavel
	Args    []string      // arguments after "hook CLIENT": --config and its file
	Limit   time.Duration // the time limit of both the client and gavel, in whole seconds
	// FailClosed asks the client to block a tool if its hook fails, where the client supports that.
	FailClosed bool
	// Windows selects the quoting of the client's shell.
	Windows bool
}

func (in Installation) words(client string) []string {
	return slices.Concat([]string{in.Program, "hook", client}, in.Args, []string{"--limit", fmt.Sprintf("%ds", in.Limit/time.Second)})
}

// command returns the command line that the client runs.
func (in Installation) command(client string) string {
	words := in.words(client)
	for i, word := range words {
		words[i] = quoteWord(word, in.Windows)
	}
	line := strings.Join(words, " ")
	if in.Windows && strings.HasPrefix(line, `"`) && installers[client].powershell {
		return "& " + line // without the &, PowerShell would print the name
	}
	return line
}

// hookAt returns the JSON that is added to the list of an event.
func (in Installation) hookAt(client, event string) (string, error) {
	command, err := document.Marshal(in.command(client))
	sh, failClosed, c := "bash", "", installers[client]
	if in.Windows {
		sh = "powershell"
	}
	if in.FailClosed && event == c.events[0] {
		failClosed = c.failClosed
	}
	return strings.NewReplacer(
		"$COMMAND", string(command), "$EVENT", event, "$SHELL", sh, "$FAILCLOSED", failClosed,
		"$SECONDS", strconv.Itoa(int(in.Limit/time.Second)), "$MILLISECONDS", strconv.Itoa(int(in.Limit.Milliseconds())),
	).Replace(c.hook), err
}

// quoteWord quotes a word for the client's shell.
func quoteWord(word string, windows bool) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./:=+,@", r) || windows && r == '\\'
	}
	switch {
	case word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0:
		return word
	case windows:
		return `"` + word + `"` // Windows paths cannot contain quotes
	default:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
}

var (
	windowsCommand = regexp.MustCompile(`^(?:& )?"?(?:[A-Za-z]:)?\\`)
	windowsWord    = regexp.MustCompile(`"([^"]*)"|([^\s"]+)`)
)

// splitWords splits a command that is a single program with arguments; nil for any other command.
func splitWords(command string) (words []string) {
	if windowsCommand.MatchString(command) {
		for _, m := range windowsWord.FindAllStringSubmatch(strings.TrimPrefix(command, "& "), -1) {
			words = append(words, m[1]+m[2])
		}
		return words
	}
	script := shell.Read(command)
	if script.Whole != 0 || len(script.Commands) != 1 {
		return nil
	}
	for _, word := range script.Commands[0].Words {
		if !word.Known {
			return nil
		}
		words = append(words, word.Text)
	}
	return words
}

// ownWords returns the words of a command that any version of gavel, at any path, has written for a client;
// nil for any other command.
func ownWords(client, command string) []string {
	words := splitWords(command)
	if len(words) < 3 || words[1] != "hook" || words[2] != client {
		return nil
	}
	name := strings.ToLower(words[0][strings.LastIndexAny(words[0], `/\`)+1:])
	if !strings.HasPrefix(name, "gavel") && !slices.Contains(words, "--limit") {
		return nil
	}
	return words
}
