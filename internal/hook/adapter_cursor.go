package hook

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// cursor speaks the hooks of Cursor (its documentation of October 2026). They take JSON with exit code 0,
// or exit code 2; with failClosed, any other exit code, no output and no JSON deny too, so the neutral
// answer is an empty object.
type cursor struct{}

func (cursor) Client() string { return "cursor" }

var cursorTools = toolTable{
	"Shell":          {builtin: gate.BuiltinShell, command: "command", folder: "working_directory"},
	"Write":          {builtin: gate.BuiltinEdit, path: anyPath},
	"StrReplace":     {builtin: gate.BuiltinEdit, path: anyPath},
	"Edit":           {builtin: gate.BuiltinEdit, path: anyPath},
	"MultiEdit":      {builtin: gate.BuiltinEdit, path: anyPath},
	"EditNotebook":   {builtin: gate.BuiltinEdit, path: "target_notebook"},
	"Delete":         {builtin: gate.BuiltinEdit, path: anyPath},
	"TabWrite":       {builtin: gate.BuiltinEdit, path: anyPath},
	"ApplyPatch":     {pick: pickPatch},
	"Read":           {builtin: gate.BuiltinRead, path: anyPath},
	"TabRead":        {builtin: gate.BuiltinRead, path: anyPath},
	"Grep":           {builtin: gate.BuiltinRead},
	"Glob":           {builtin: gate.BuiltinRead},
	"LS":             {builtin: gate.BuiltinRead},
	"ReadLints":      {builtin: gate.BuiltinRead},
	"SemanticSearch": {builtin: gate.BuiltinRead},
	"WebFetch":       {builtin: gate.BuiltinFetch, url: "url"},
	"WebSearch":      {builtin: gate.BuiltinFetch},
}.free("AskQuestion", "Await", "CallMcpTool", "CreatePlan", "FetchMcpResource", "SwitchMode", "Task", "TodoWrite", "UpdateCurrentStep")

// cursorEvents are the hooks of Cursor; a name that is not among them is an error. So are those before
// one kind of tool (beforeShellExecution), which come in addition to preToolUse: a use would be decided twice.
var cursorEvents = map[string]Phase{
	"sessionStart": PhaseStart, "preToolUse": PhaseBefore, "postToolUse": PhaseAfter, "postToolUseFailure": PhaseAfter,
	"stop": PhaseStop, "subagentStop": PhaseStop,
	"afterShellExecution": PhaseOther, "afterMCPExecution": PhaseOther, "afterFileEdit": PhaseOther, "afterTabFileEdit": PhaseOther,
	"beforeSubmitPrompt": PhaseOther, "afterAgentResponse": PhaseOther, "afterAgentThought": PhaseOther,
	"subagentStart": PhaseOther, "sessionEnd": PhaseOther, "preCompact": PhaseOther, "workspaceOpen": PhaseOther,
}

func (c cursor) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e := Event{Client: c.Client()}
	if e.Hook, err = requireText(v, "hook_event_name"); err != nil {
		return Event{}, err
	}
	known := false
	if e.Phase, known = cursorEvents[e.Hook]; !known {
		return Event{}, fmt.Errorf("unknown hook event %q; update gavel, or remove gavel from that hook", e.Hook)
	}
	if e.Phase == PhaseOther {
		return e, nil
	}
	if e.Session, err = requireText(v, "conversation_id"); err != nil {
		return Event{}, err
	}
	if e.CallID, err = optionalText(v, "tool_use_id"); err != nil {
		return Event{}, err
	}
	if e.Folder, err = findCursorFolder(v); err != nil {
		return Event{}, err
	}
	for _, root := range v.Get("workspace_roots").Elements() {
		if filepath.IsAbs(root.Text()) {
			e.Project = root.Text()
			break
		}
	}
	switch e.Phase {
	case PhaseStart, PhaseOther:
	case PhaseStop:
		loops := v.Get("loop_count")
		e.Subagent, e.Continued = e.Hook == "subagentStop", loops.Kind() == document.Number && string(loops.Raw()) != "0"
		if status := v.Get("status"); status.Kind() != 0 && !status.Is("completed") { // the person ended it, or it broke
			e.Phase = PhaseOther
		}
	case PhaseBefore, PhaseAfter:
		if e.Tool, err = requireText(v, "tool_name"); err != nil {
			return Event{}, err
		}
		if v.Get("tool_input").Kind() == 0 {
			return Event{}, fmt.Errorf("tool_input is missing")
		}
		if strings.HasPrefix(e.Tool, "MCP:") { // a server's tool: the gateway's
			break
		}
		if err := cursorTools.classify(&e, v.Get("tool_input")); err != nil {
			return Event{}, err
		}
	}
	if e.Phase == PhaseAfter {
		endCursor(&e, v)
	}
	return e, nil
}

// findCursorFolder finds the working folder: cwd, or the first folder of the workspace.
func findCursorFolder(v document.JSON) (string, error) {
	for _, root := range v.Get("workspace_roots").Elements() {
		if v.Get("cwd").Text() != "" {
			break
		}
		if !filepath.IsAbs(root.Text()) {
			return "", fmt.Errorf("workspace_roots must have absolute paths")
		}
		return root.Text(), nil
	}
	return requireFolder(v, "cwd")
}

// endCursor says what came of a tool. Its output is a string with JSON in it.
func endCursor(e *Event, v document.JSON) {
	if e.Hook == "postToolUseFailure" {
		switch kind := v.Get("failure_type"); {
		case kind.Is("permission_denied"):
			e.Ended = EndedNotRun
		case kind.Is("timeout"), v.Get("is_interrupt").Kind() == document.True: // nobody knows
			e.Phase = PhaseOther
		default:
			e.Ended, e.Result = EndedFailed, strictResult(v.Get("error_message"))
		}
		return
	}
	output := document.Known(v.Get("tool_output").Bytes())
	e.Result, e.Ended = strictResult(output), EndedOK
	if e.Builtin != gate.BuiltinShell {
		return
	}
	switch exit := output.Get("exitCode"); {
	case exit.Kind() != document.Number: // it goes on in the background
		e.Phase, e.Ended = PhaseOther, ""
	case string(exit.Raw()) != "0":
		e.Ended = EndedFailed
	}
}

// cursorOutput is what a hook of Cursor answers.
type cursorOutput struct {
	Permission string `json:"permission,omitempty"`
	User       string `json:"user_message,omitempty"`
	Agent      string `json:"agent_message,omitempty"`
	Followup   string `json:"followup_message,omitempty"`
	Context    string `json:"additional_context,omitempty"`
}

// Encode denies where it should ask: preToolUse takes "ask", and runs the tool.
func (c cursor) Encode(e Event, a Answer) Output {
	a = addressTo(e, a, false)
	switch {
	case a.Verdict == Neutral && (e.Phase == PhaseStart || e.Phase == PhaseAfter):
		return writeJSON(cursorOutput{Context: a.Context})
	case a.Verdict == Neutral:
		return writeJSON(cursorOutput{})
	case e.Phase == PhaseBefore:
		return writeJSON(cursorOutput{Permission: "deny", User: reasonOf(a), Agent: reasonOf(a)})
	case e.Phase == PhaseStop:
		return writeJSON(cursorOutput{Followup: reasonOf(a)})
	case e.Phase == PhaseStart, e.Phase == PhaseAfter: // nothing can be refused: the agent is told
		return writeJSON(cursorOutput{Context: reasonOf(a)})
	default:
		return c.EncodeFailure(reasonOf(a))
	}
}

func (cursor) EncodeFailure(reason string) Output {
	return withExit2(writeJSON(cursorOutput{Permission: "deny", User: reason, Agent: reason}), reason)
}
