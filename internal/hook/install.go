package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Scope is whose settings of a client hooks are written to.
type Scope string

// The scopes.
const (
	ScopeUser    Scope = "user"    // every project of the user
	ScopeProject Scope = "project" // one project, on this machine
)

// Installation is what gavel writes into the settings of a client.
type Installation struct {
	Program string        // gavel, absolute
	Args    []string      // behind "hook CLIENT": --config and its file
	Limit   time.Duration // the client's and gavel's, whole seconds
	// FailClosed asks the client to block a tool when its hook fails, where it has a setting for that.
	FailClosed bool
	// Windows says how the client's shell reads a command.
	Windows bool
}

// Command is the command line that the client runs.
func (in Installation) Command(client string) string {
	words := append([]string{in.Program, "hook", client}, in.Args...)
	words = append(words, "--limit", fmt.Sprintf("%ds", countSeconds(in.Limit)))
	for i, word := range words {
		words[i] = quoteWord(word, in.Windows)
	}
	line := strings.Join(words, " ")
	if in.Windows && strings.HasPrefix(line, `"`) && installers[client].powershell {
		return "& " + line // else PowerShell prints the name
	}
	return line
}

// hookShape is how a settings file holds hooks, always in its member hooks.
type hookShape int

const (
	shapeNested hookShape = iota // {EVENT: [{matcher, hooks: [{command}]}]}
	shapeFlat                    // {EVENT: [{command, matcher}]}
	shapeList                    // [{trigger, matcher, action: {command}}]
)

// installedEvent is one hook that gavel answers.
type installedEvent struct {
	name string
	tool bool // it is asked before a tool, so its failure must not let the tool run
}

// installer says where and how a client keeps its hooks.
type installer struct {
	user, project string // files, seen from the home and the project's folder
	homeVar       string // the variable that names the folder of user instead, and how many elements of user it replaces
	homeDepth     int
	shape         hookShape
	version       any // the member version of a file, nil where there is none
	comments      bool
	powershell    bool // what runs commands on Windows
	events        []installedEvent
	handler       func(in Installation, e installedEvent, command string) orderedObject
}

func beforeTool(name string) []installedEvent { return []installedEvent{{name, true}} }

func otherEvents(names ...string) (all []installedEvent) {
	for _, name := range names {
		all = append(all, installedEvent{name: name})
	}
	return all
}

// installers are the clients whose settings gavel can write. No entry has a matcher: a tool that is
// new must reach the hook.
var installers = map[string]installer{
	// https://code.claude.com/docs/en/hooks. The local settings, because the paths are this machine's.
	"claude-code": {
		user: ".claude/settings.json", project: ".claude/settings.local.json", homeVar: "CLAUDE_CONFIG_DIR", homeDepth: 1,
		shape: shapeNested, powershell: true,
		events: append(beforeTool("PreToolUse"), otherEvents("SessionStart", "PostToolUse", "PostToolUseFailure", "PermissionDenied", "Stop", "SubagentStop")...),
		handler: func(in Installation, e installedEvent, command string) orderedObject {
			o := orderedObject{{"type", "command"}, {"command", command}, {"timeout", countSeconds(in.Limit)}}
			if e.tool && in.FailClosed {
				o = append(o, orderedMember{"onFailure", "block"})
			}
			return o
		},
	},
	// https://cursor.com/docs/agent/hooks
	"cursor": {
		user: ".cursor/hooks.json", project: ".cursor/hooks.json", shape: shapeFlat, version: 1, powershell: true,
		events: append(beforeTool("preToolUse"), otherEvents("sessionStart", "postToolUse", "postToolUseFailure", "stop", "subagentStop")...),
		handler: func(in Installation, e installedEvent, command string) orderedObject {
			o := orderedObject{{"command", command}, {"timeout", countSeconds(in.Limit)}}
			if e.tool {
				o = append(o, orderedMember{"failClosed", true})
			}
			return o
		},
	},
	// https://geminicli.com/docs/hooks/reference
	"gemini": {
		user: ".gemini/settings.json", project: ".gemini/settings.json", shape: shapeNested, comments: true, powershell: true,
		events: append(beforeTool("BeforeTool"), otherEvents("SessionStart", "AfterTool", "AfterAgent")...),
		handler: func(in Installation, _ installedEvent, command string) orderedObject {
			return orderedObject{{"name", "gavel"}, {"type", "command"}, {"command", command}, {"timeout", in.Limit.Milliseconds()}}
		},
	},
	// https://developers.openai.com/codex/hooks
	"codex": {
		user: ".codex/hooks.json", project: ".codex/hooks.json", homeVar: "CODEX_HOME", homeDepth: 1, shape: shapeNested,
		events: append(beforeTool("PreToolUse"), otherEvents("SessionStart", "PostToolUse", "Stop", "SubagentStop")...),
		handler: func(in Installation, _ installedEvent, command string) orderedObject {
			return orderedObject{{"type", "command"}, {"command", command}, {"timeout", countSeconds(in.Limit)}}
		},
	},
	// https://docs.github.com/en/copilot/reference/hooks-reference. In capitals, an event is named in its input.
	"copilot": {
		user: ".copilot/hooks/gavel.json", project: ".github/hooks/gavel.json", homeVar: "COPILOT_HOME", homeDepth: 1, shape: shapeFlat, version: 1, powershell: true,
		events: append(beforeTool("PreToolUse"), otherEvents("SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop")...),
		handler: func(in Installation, _ installedEvent, command string) orderedObject {
			shell := "bash"
			if in.Windows {
				shell = "powershell"
			}
			return orderedObject{{"type", "command"}, {shell, command}, {"timeoutSec", countSeconds(in.Limit)}}
		},
	},
	// https://kiro.dev/docs/hooks
	"kiro": {
		user: ".kiro/hooks/gavel.json", project: ".kiro/hooks/gavel.json", shape: shapeList, version: "v1",
		events: append(beforeTool("PreToolUse"), otherEvents("SessionStart", "PostToolUse", "Stop")...),
		handler: func(in Installation, e installedEvent, command string) orderedObject {
			return orderedObject{
				{"name", "gavel " + e.name},
				{"trigger", e.name},
				{"action", orderedObject{{"type", "command"}, {"command", command}}},
				{"timeout", countSeconds(in.Limit)},
				{"enabled", true},
			}
		},
	},
}

func countSeconds(d time.Duration) int64 { return int64(d / time.Second) }

// InstallClients are the names of the clients whose settings gavel can write.
func InstallClients() []string {
	names := []string{"opencode"}
	for name := range installers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// SettingsFile is where a client keeps its hooks. lookup finds a variable of the environment.
func SettingsFile(client string, scope Scope, home, project string, lookup func(string) string) string {
	if client == "opencode" {
		if scope == ScopeProject {
			return filepath.Join(project, ".opencode", "plugins", "gavel.js")
		}
		if dir := lookup("XDG_CONFIG_HOME"); dir != "" {
			return filepath.Join(dir, "opencode", "plugins", "gavel.js")
		}
		return filepath.Join(home, ".config", "opencode", "plugins", "gavel.js")
	}
	in := installers[client]
	if scope == ScopeProject {
		return filepath.Join(project, filepath.FromSlash(in.project))
	}
	if in.homeVar != "" && lookup(in.homeVar) != "" {
		return filepath.Join(append([]string{lookup(in.homeVar)}, strings.Split(in.user, "/")[in.homeDepth:]...)...)
	}
	return filepath.Join(home, filepath.FromSlash(in.user))
}

// AfterInstall is what the user of a client has to do or to know then, "" for nothing.
func AfterInstall(client string) string {
	switch client {
	case "codex":
		return "Codex skips a new or changed hook until you trust it: type /hooks in it."
	case "gemini":
		return "Gemini CLI warns of new hooks of a project, and runs them only in a folder that you trust."
	case "copilot":
		return "Copilot CLI runs hooks of a project only in a folder that you trust. Do not commit the file: it is for this machine."
	case "opencode":
		return "opencode loads plugins when it starts: start it again."
	}
	return ""
}

// InstalledHook is one hook in the settings of a client.
type InstalledHook struct {
	Event   string
	Matcher string
	Command string
	Timeout time.Duration // 0 where none is set
	Off     bool
	// FailClosed is the client's setting, false where it has none.
	FailClosed bool
	// Own are the words of the command where it is gavel's for this client, the program first.
	Own []string
}

// Limit is what the command of an own hook has as --limit, 0 for none.
func (h InstalledHook) Limit() time.Duration {
	d, _ := time.ParseDuration(h.Option("limit"))
	return d
}

// Option is the value of a flag of an own hook's command, "" for none.
func (h InstalledHook) Option(name string) string {
	for i, word := range h.Own {
		if value, ok := strings.CutPrefix(word, "--"+name+"="); ok {
			return value
		}
		if word == "--"+name && i+1 < len(h.Own) {
			return h.Own[i+1]
		}
	}
	return ""
}

// orderedObject is a JSON object whose members stay in order.
type orderedObject []orderedMember

type orderedMember struct {
	name  string
	value any
}

func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o {
		b.WriteByte("{,"[min(i, 1)])
		name, _ := json.Marshal(m.name) // a string always encodes
		value, err := encodePlain(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encodePlain is JSON in which a command reads as it is run: & and < are not escaped.
func encodePlain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// quoteWord writes a word of a command so that the client's shell reads it as it is.
func quoteWord(word string, windows bool) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./:=+,@", r) || windows && r == '\\'
	}
	switch {
	case word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0:
		return word
	case windows:
		return `"` + word + `"` // no path of Windows has a quote in it
	default:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
}

var (
	errUnclosedQuote = errors.New("a quote is not closed")
	errNotPlain      = errors.New("more than the words of one command")
)

// splitWords reads a command as quoteWord writes its words, with the forms that people write by hand.
// What a shell would do more than run these words is an error.
func splitWords(line string, windows bool) (words []string, err error) {
	var word []byte
	begun, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && strings.IndexByte(";|&<>()`$#\n", c) >= 0, quote == '"' && (c == '$' || c == '`'):
			return nil, errNotPlain
		case quote == 0 && (c == ' ' || c == '\t' || c == '\r'):
			if begun {
				words = append(words, string(word))
			}
			word, begun = nil, false
		case quote == 0 && (c == '"' || c == '\'' && !windows):
			quote, begun = c, true
		case c == quote:
			quote = 0
		case c == '\\' && !windows && quote != '\'' && i+1 < len(line):
			i++
			word, begun = append(word, line[i]), true
		default:
			word, begun = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, errUnclosedQuote
	}
	if begun {
		words = append(words, string(word))
	}
	return words, nil
}

// ownWords are the words of a command that gavel has written for a client, also an older gavel or one
// at another place; nil for any other command.
func ownWords(client, command string, windows bool) []string {
	words, err := splitWords(strings.TrimPrefix(strings.TrimSpace(command), "& "), windows)
	if err != nil || len(words) < 3 || words[1] != "hook" || words[2] != client {
		return nil
	}
	name := strings.ToLower(words[0][strings.LastIndexAny(words[0], `/\`)+1:])
	if !strings.HasPrefix(name, "gavel") && !slices.ContainsFunc(words, func(w string) bool { return w == "--limit" || strings.HasPrefix(w, "--limit=") }) {
		return nil
	}
	return words
}

// OnWindows reports whether commands are written for a shell of Windows.
const OnWindows = runtime.GOOS == "windows"
