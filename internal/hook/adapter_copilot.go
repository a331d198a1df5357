package hook

import (
	"regexp"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// copilot speaks the hooks of GitHub Copilot CLI (1.0.102) whose names begin with a capital: they have
// Claude Code's form and names of tools, with the members of Copilot's own tools. The others do not say
// which hook they are. An exit code other than 0 denies a tool; no JSON, or an end after the time
// limit, does not.
type copilot struct{}

func (copilot) Client() string { return "copilot" }

var copilotTools = toolTable{
	"Bash":             {builtin: gate.BuiltinShell, command: "command"},
	"PowerShell":       {builtin: gate.BuiltinShell, command: "command"},
	"powershell":       {builtin: gate.BuiltinShell, command: "command"},
	"write_bash":       {builtin: gate.BuiltinShell, command: "input"},
	"write_powershell": {builtin: gate.BuiltinShell, command: "input"},
	"Write":            {builtin: gate.BuiltinEdit, path: "path"},
	"Edit":             {builtin: gate.BuiltinEdit, path: "path"},
	"apply_patch":      {pick: pickPatch},
	"str_replace_editor": {pick: func(input document.JSON) toolForm {
		if input.Get("command").Is("view") {
			return toolForm{builtin: gate.BuiltinRead, path: "path"}
		}
		return toolForm{builtin: gate.BuiltinEdit, path: "path"}
	}},
	"Read":       {builtin: gate.BuiltinRead, path: "path"},
	"Glob":       {builtin: gate.BuiltinRead},
	"Grep":       {builtin: gate.BuiltinRead},
	"rg":         {builtin: gate.BuiltinRead},
	"lsp":        {builtin: gate.BuiltinRead},
	"WebFetch":   {builtin: gate.BuiltinFetch, url: "url"},
	"web_fetch":  {builtin: gate.BuiltinFetch, url: "url"},
	"WebSearch":  {builtin: gate.BuiltinFetch},
	"web_search": {builtin: gate.BuiltinFetch},
}.free(
	"Agent", "AskUserQuestion", "Skill", "Task", "TodoWrite", "ask_user", "exit_plan_mode", "fetch_copilot_cli_documentation",
	"list_agents", "list_bash", "list_powershell", "read_agent", "read_bash", "read_powershell", "report_intent",
	"session_store_sql", "skill", "sql", "stop_bash", "stop_powershell", "store_memory", "task", "task_complete",
	"update_todo", "write_agent",
)

// pickPatch finds the member that has the patch.
func pickPatch(input document.JSON) toolForm {
	for _, name := range []string{"patch", "input"} {
		if input.Get(name).Kind() != 0 {
			return toolForm{builtin: gate.BuiltinEdit, patch: name}
		}
	}
	return toolForm{builtin: gate.BuiltinEdit, patch: "command"}
}

// copilotEvents are the hooks of Copilot CLI; a name that is not among them is an error.
var copilotEvents = map[string]Phase{
	"SessionStart": PhaseStart, "PreToolUse": PhaseBefore, "PostToolUse": PhaseAfter, "PostToolUseFailure": PhaseAfter,
	"Stop": PhaseStop, "SubagentStop": PhaseStop,
	"UserPromptSubmit": PhaseOther, "SessionEnd": PhaseOther, "SubagentStart": PhaseOther,
	"ErrorOccurred": PhaseOther, "Notification": PhaseOther, "PreCompact": PhaseOther,
}

func (c copilot) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e, err := decodeClaude(c.Client(), v, copilotEvents, copilotTools)
	if e.Unknown && strings.Contains(e.Tool, "-") { // SERVER-TOOL: the gateway's; no tool of the client's own has a hyphen
		e.Unknown, e.Input = false, document.JSON{}
	}
	if err == nil && e.Phase == PhaseAfter {
		endCopilot(&e, v.Get("tool_result"))
	}
	return e, err
}

var copilotExit = regexp.MustCompile(`completed with exit code (-?\d+)>\s*$`)

// endCopilot says what came of a tool. Of a shell line only the end of a text tells it.
func endCopilot(e *Event, result document.JSON) {
	e.Result = strictResult(result)
	switch kind := result.Get("result_type"); {
	case kind.Is("rejected"), kind.Is("denied"):
		e.Ended = EndedNotRun
	case kind.Is("failure"):
		e.Ended = EndedFailed
	case e.Builtin == gate.BuiltinShell && e.Ended == EndedOK:
		switch exit := copilotExit.FindStringSubmatch(result.Get("text_result_for_llm").Text()); {
		case exit == nil: // it goes on in the background
			e.Phase, e.Ended = PhaseOther, ""
		case exit[1] != "0":
			e.Ended = EndedFailed
		}
	}
}

// copilotOutput is what a hook of Copilot CLI answers.
type copilotOutput struct {
	Permission string `json:"permissionDecision,omitempty"`
	Why        string `json:"permissionDecisionReason,omitempty"`
	Decision   string `json:"decision,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Context    string `json:"additionalContext,omitempty"`
}

func (c copilot) Encode(e Event, a Answer) Output {
	a = addressTo(e, a, true)
	switch {
	case a.Verdict == Neutral:
		if a.Context == "" || e.Phase != PhaseStart && e.Phase != PhaseAfter {
			return Output{}
		}
		return writeJSON(copilotOutput{Context: a.Context})
	case e.Phase == PhaseBefore && a.Verdict == Ask:
		return writeJSON(copilotOutput{Permission: "ask", Why: reasonOf(a)})
	case e.Phase == PhaseBefore:
		return writeJSON(copilotOutput{Permission: "deny", Why: reasonOf(a)})
	case e.Phase == PhaseStop:
		return writeJSON(copilotOutput{Decision: "block", Reason: reasonOf(a)})
	case e.Phase == PhaseStart, e.Phase == PhaseAfter: // nothing can be refused: the agent is told
		return writeJSON(copilotOutput{Context: reasonOf(a)})
	default:
		return c.EncodeFailure(reasonOf(a))
	}
}

func (copilot) EncodeFailure(reason string) Output {
	return withExit2(writeJSON(copilotOutput{Permission: "deny", Why: reason, Decision: "block", Reason: reason}), reason)
}
