package hook

import (
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// codex speaks the hooks of Codex CLI (0.169.0), which took over the form of Claude Code. It goes on
// after every failure of a hook: a JSON that it does not take ("ask" among it), a refusal without a
// reason, a crash, a timeout.
type codex struct{}

func (codex) Client() string { return "codex" }

var codexTools = toolTable{
	// Not told are lines typed into a program that is running (write_stdin, so far), and searches of
	// the web, which run at the provider's.
	"Bash":        {builtin: gate.BuiltinShell, command: "command"},
	"apply_patch": {builtin: gate.BuiltinEdit, patch: "command"},
	"view_image":  {builtin: gate.BuiltinRead, path: "path"},
	"write_stdin": {pick: func(input document.JSON) toolForm {
		if input.Get("chars").Text() == "" { // it waits for output
			return toolForm{}
		}
		return toolForm{builtin: gate.BuiltinShell, command: "chars"}
	}},
}.free(
	"close_agent", "create_goal", "get_goal", "list_agents", "list_mcp_resource_templates", "list_mcp_resources",
	"read_mcp_resource", "request_permissions", "request_user_input", "resume_agent", "send_input", "send_message",
	"sleep", "spawn_agent", "tool_search", "update_goal", "update_plan", "wait", "wait_agent",
)

// codexEvents are the hooks of Codex; a name that is not among them is an error.
var codexEvents = map[string]Phase{
	"SessionStart": PhaseStart, "PreToolUse": PhaseBefore, "PostToolUse": PhaseAfter, "Stop": PhaseStop, "SubagentStop": PhaseStop,
	// A PermissionRequest follows a PreToolUse of the same call; to answer it would be to decide for the person.
	"PermissionRequest": PhaseOther, "UserPromptSubmit": PhaseOther, "SubagentStart": PhaseOther, "SessionEnd": PhaseOther,
	"PreCompact": PhaseOther, "PostCompact": PhaseOther, "PreModelRequest": PhaseOther, "PostModelRequest": PhaseOther,
	"Interrupt": PhaseOther, "StopFailure": PhaseOther,
}

func (c codex) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e, err := decodeClaude(c.Client(), v, codexEvents, codexTools)
	if err != nil {
		return e, err
	}
	if e.Builtin == gate.BuiltinShell {
		if strings.Contains(e.Command, "*** Begin Patch") { // apply_patch, run as a program
			e.Paths = append(e.Paths, findPatchPaths(e.Command)...)
		}
		if opensShell(e.Command) {
			e.Command += "\neval \"$TYPED_LATER\""
		}
		if e.Phase == PhaseAfter { // it tells what was written, and not whether the line succeeded
			e.Phase, e.Ended = PhaseOther, ""
		}
	}
	return e, nil
}

// opensShell reports whether a line starts a shell that reads what is typed into it: no hook is asked
// about that, so the line counts as one that runs unknown text.
func opensShell(line string) bool {
	for _, c := range shell.Read(line).Commands {
		isShell := len(c.Words) > 0 && slices.Contains(typableShells, path.Base(c.Words[0].Text))
		if isShell && !slices.ContainsFunc(c.Words[1:], func(w shell.Word) bool { return !strings.HasPrefix(w.Text, "-") }) {
			return true
		}
	}
	return false
}

var typableShells = []string{"ash", "bash", "dash", "fish", "ksh", "screen", "script", "sh", "su", "tmux", "zsh"}

// Encode denies where it should ask: Codex takes "ask" for a failure, and runs the tool.
func (c codex) Encode(e Event, a Answer) Output {
	return encodeClaude(e, addressTo(e, a, false), c.EncodeFailure)
}

func (codex) EncodeFailure(reason string) Output { return claudeCode{}.EncodeFailure(reason) }
