package hook

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// kiro speaks the hooks of Kiro (its documentation of October 2026). Only exit code 2 of preToolUse
// refuses something; every other failure is a warning. An agent that stops cannot be sent back.
type kiro struct{}

func (kiro) Client() string { return "kiro" }

var (
	kiroShell = toolForm{builtin: gate.BuiltinShell, command: "command", folder: "working_dir"}
	kiroEdit  = toolForm{builtin: gate.BuiltinEdit, path: "path"}
	kiroRead  = toolForm{pick: func(input document.JSON) toolForm {
		if input.Get("operations").Kind() != 0 {
			return toolForm{builtin: gate.BuiltinRead, path: "operations"}
		}
		return toolForm{builtin: gate.BuiltinRead, path: anyPath}
	}}
	kiroSearch = toolForm{builtin: gate.BuiltinRead}
)

// kiroTools has the names of both its command line and its editor. The tool that calls AWS is unknown
// on purpose: it does what a shell line could.
var kiroTools = toolTable{
	"execute_bash": kiroShell, "execute_cmd": kiroShell, "shell": kiroShell, "executeBash": kiroShell,
	"fs_write": kiroEdit, "write": kiroEdit, "fsWrite": kiroEdit, "fsAppend": kiroEdit, "strReplace": kiroEdit,
	"deleteFile": {builtin: gate.BuiltinEdit, path: anyPath},
	"fs_read":    kiroRead, "read": kiroRead, "readFile": kiroRead, "readMultipleFiles": kiroRead, "fsRead": kiroRead,
	"glob": kiroSearch, "grep": kiroSearch, "code": kiroSearch, "listDirectory": kiroSearch, "fileSearch": kiroSearch, "grepSearch": kiroSearch,
	"web_fetch": {builtin: gate.BuiltinFetch, url: "url"}, "webFetch": {builtin: gate.BuiltinFetch, url: "url"},
	"web_search": {builtin: gate.BuiltinFetch}, "remote_web_search": {builtin: gate.BuiltinFetch},
}.free("delegate", "introspect", "knowledge", "report", "report_issue", "session", "subagent", "thinking", "todo", "todo_list", "use_subagent")

// kiroEvents are the hooks of Kiro, as its older and its newer versions write them; a name that is not
// among them is an error.
var kiroEvents = map[string]Phase{
	"agentSpawn": PhaseStart, "AgentSpawn": PhaseStart, "SessionStart": PhaseStart, "sessionStart": PhaseStart,
	"preToolUse": PhaseBefore, "PreToolUse": PhaseBefore,
	"postToolUse": PhaseAfter, "PostToolUse": PhaseAfter,
	"stop": PhaseStop, "Stop": PhaseStop,
	"userPromptSubmit": PhaseOther, "UserPromptSubmit": PhaseOther, "PostFileSave": PhaseOther, "PostFileCreate": PhaseOther,
	"PostFileDelete": PhaseOther, "PreTaskExecution": PhaseOther, "PostTaskExecution": PhaseOther,
}

func (k kiro) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e := Event{Client: k.Client()}
	if e.Hook, err = requireText(v, "hook_event_name"); err != nil {
		return Event{}, err
	}
	known := false
	if e.Phase, known = kiroEvents[e.Hook]; !known {
		return Event{}, fmt.Errorf("unknown hook event %q; update gavel, or remove gavel from that hook", e.Hook)
	}
	if e.Phase == PhaseOther {
		return e, nil
	}
	if e.Session, err = optionalText(v, "session_id"); err != nil {
		return Event{}, err
	}
	if e.CallID, err = optionalText(v, "tool_use_id"); err != nil {
		return Event{}, err
	}
	if e.Folder, err = requireFolder(v, "cwd"); err != nil {
		return Event{}, err
	}
	if e.Phase != PhaseBefore && e.Phase != PhaseAfter {
		return e, nil
	}
	if e.Tool, err = requireText(v, "tool_name"); err != nil {
		return Event{}, err
	}
	if v.Get("tool_input").Kind() == 0 {
		return Event{}, fmt.Errorf("tool_input is missing")
	}
	if !strings.HasPrefix(e.Tool, "@") && !strings.HasPrefix(e.Tool, "mcp_") { // else a server's tool: the gateway's
		if err := kiroTools.classify(&e, v.Get("tool_input")); err != nil {
			return Event{}, err
		}
	}
	if e.Phase == PhaseAfter {
		endKiro(&e, v)
	}
	return e, nil
}

// endKiro says what came of a tool. A shell line's exit code is not documented: where it is not told,
// the call stays open.
func endKiro(e *Event, v document.JSON) {
	response := v.Get("tool_response")
	e.Result = strictResult(response)
	exit := document.JSON{}
	for _, result := range response.Get("result").Elements() {
		exit = result.Get("exit_status")
		break
	}
	switch {
	case response.Get("success").Kind() == document.False:
		e.Ended = EndedFailed
	case e.Builtin != gate.BuiltinShell, exit.Is("0"), string(exit.Raw()) == "0":
		e.Ended = EndedOK
	case exit.Kind() == 0:
		e.Phase = PhaseOther
	default:
		e.Ended = EndedFailed
	}
}

// Encode denies where it should ask: a hook cannot. What it has for an agent that begins is its plain output.
func (k kiro) Encode(e Event, a Answer) Output {
	a = addressTo(e, a, false)
	text := a.Context
	if a.Verdict != Neutral {
		text = reasonOf(a)
	}
	switch {
	case text == "":
		return Output{}
	case e.Phase == PhaseStart:
		return Output{Stdout: []byte(text + "\n")}
	case a.Verdict == Neutral:
		return Output{}
	case e.Phase == PhaseStop, e.Phase == PhaseAfter: // the person is warned
		return Output{Stderr: []byte(text + "\n"), Exit: 1}
	default:
		return k.EncodeFailure(text)
	}
}

func (kiro) EncodeFailure(reason string) Output { return withExit2(Output{}, reason) }
