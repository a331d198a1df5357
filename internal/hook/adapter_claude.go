package hook

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// claudeCode speaks the hooks of Claude Code (2.1.330). They take JSON with exit code 0, or text on
// stderr with exit code 2; the client reads no stdout with exit code 2.
type claudeCode struct{}

func (claudeCode) Client() string { return "claude-code" }

// claudeTools are the built-in tools of Claude Code, those of older versions included.
var claudeTools = toolTable{
	"Bash":       {builtin: gate.BuiltinShell, command: "command"},
	"PowerShell": {builtin: gate.BuiltinShell, command: "command"},
	"Monitor": {pick: func(input document.JSON) toolForm {
		if input.Get("ws").Kind() != 0 {
			return toolForm{builtin: gate.BuiltinFetch, url: "ws.url"}
		}
		return toolForm{builtin: gate.BuiltinShell, command: "command"}
	}},
	"Edit":         {builtin: gate.BuiltinEdit, path: "file_path"},
	"MultiEdit":    {builtin: gate.BuiltinEdit, path: "file_path"},
	"Write":        {builtin: gate.BuiltinEdit, path: "file_path"},
	"NotebookEdit": {builtin: gate.BuiltinEdit, path: "notebook_path"},
	"Read":         {builtin: gate.BuiltinRead, path: "file_path"},
	"NotebookRead": {builtin: gate.BuiltinRead, path: "notebook_path"},
	"Glob":         {builtin: gate.BuiltinRead},
	"Grep":         {builtin: gate.BuiltinRead},
	"LS":           {builtin: gate.BuiltinRead},
	"LSP":          {builtin: gate.BuiltinRead},
	// These send files that they name out of the machine.
	"Artifact":     {builtin: gate.BuiltinRead},
	"Projects":     {builtin: gate.BuiltinRead},
	"SendUserFile": {builtin: gate.BuiltinRead},
	"WebFetch":     {builtin: gate.BuiltinFetch, url: "url"},
	"WebSearch":    {builtin: gate.BuiltinFetch},
}.free(
	"Agent", "AgentOutputTool", "AskUserQuestion", "BashOutput", "ClaudeDesign", "CronCreate", "CronDelete", "CronList",
	"EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "KillBash", "KillShell", "ListAgents",
	"ListMcpResourcesTool", "OfferChromeSetup", "PushNotification", "ReadMcpResourceDirTool", "ReadMcpResourceTool",
	"ReadNotifications", "RemoteTrigger", "ReportFindings", "ScheduleWakeup", "SendFeedback", "SendMessage",
	"SendUserMessage", "SetGoal", "ShareOnboardingGuide", "ShowOnboardingRolePicker", "Skill", "SlashCommand",
	"SubagentHandback", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoWrite",
	"ToolSearch", "WaitForMcpServers", "Workflow", "propose_skills",
)

// claudeEvents are the hooks of Claude Code. A name that is not among them is an error, and so denied:
// it could be a tool's use under a new name.
var claudeEvents = map[string]Phase{
	"SessionStart": PhaseStart,
	"PreToolUse":   PhaseBefore,
	"PostToolUse":  PhaseAfter, "PostToolUseFailure": PhaseAfter, "PermissionDenied": PhaseAfter,
	"Stop": PhaseStop, "SubagentStop": PhaseStop,

	// A PermissionRequest follows a PreToolUse of the same call; to answer it would be to decide for the person.
	"PermissionRequest": PhaseOther,
	"PostToolBatch":     PhaseOther,
	"UserPromptSubmit":  PhaseOther, "UserPromptExpansion": PhaseOther,
	"SubagentStart": PhaseOther, "TeammateIdle": PhaseOther, "TaskCreated": PhaseOther, "TaskCompleted": PhaseOther,
	"SessionEnd": PhaseOther, "StopFailure": PhaseOther, "Setup": PhaseOther, "Notification": PhaseOther,
	"PreCompact": PhaseOther, "PostCompact": PhaseOther, "PreModelSwitch": PhaseOther, "PostModelSwitch": PhaseOther,
	"Elicitation": PhaseOther, "ElicitationResult": PhaseOther, "ConfigChange": PhaseOther, "InstructionsLoaded": PhaseOther,
	"WorktreeCreate": PhaseOther, "WorktreeRemove": PhaseOther, "CwdChanged": PhaseOther, "FileChanged": PhaseOther,
	"DirectoryAdded": PhaseOther, "MessageDisplay": PhaseOther,
}

func (c claudeCode) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	return decodeClaude(c.Client(), v, claudeEvents, claudeTools)
}

// decodeClaude reads the form that Claude Code made and others took over.
func decodeClaude(client string, v document.JSON, events map[string]Phase, tools toolTable) (Event, error) {
	name, err := requireText(v, "hook_event_name")
	if err != nil {
		return Event{}, err
	}
	phase, known := events[name]
	if !known {
		return Event{}, fmt.Errorf("unknown hook event %q; update gavel, or remove gavel from that hook", name)
	}
	e := Event{Client: client, Hook: name, Phase: phase, Session: v.Get("session_id").Text()}
	if phase == PhaseOther {
		return e, nil
	}
	if _, err = requireText(v, "session_id"); err != nil {
		return Event{}, err
	}
	if e.CallID, err = optionalText(v, "tool_use_id"); err != nil {
		return Event{}, err
	}
	if e.Folder, err = requireFolder(v, "cwd"); err != nil {
		return Event{}, err
	}
	switch phase {
	case PhaseStart, PhaseOther:
	case PhaseStop:
		e.Subagent = name == "SubagentStop"
		e.Continued = v.Get("stop_hook_active").Kind() == document.True
		for range v.Get("background_tasks").Elements() { // the client wakes the agent when one ends: it waits, and does not stop
			e.Phase = PhaseOther
		}
	case PhaseBefore, PhaseAfter:
		if e.Tool, err = requireText(v, "tool_name"); err != nil {
			return Event{}, err
		}
		input := v.Get("tool_input")
		if input.Kind() == 0 {
			return Event{}, fmt.Errorf("tool_input is missing")
		}
		if strings.HasPrefix(e.Tool, "mcp__") { // a server's tool: the gateway's
			break
		}
		if err := tools.classify(&e, input); err != nil {
			return Event{}, err
		}
	}
	if phase == PhaseAfter {
		endClaude(&e, name, v)
	}
	return e, nil
}

// endClaude says what came of a tool. A command that goes on in the background, or was interrupted,
// has not ended in a way that anybody knows: its call stays open.
func endClaude(e *Event, name string, v document.JSON) {
	response := v.Get("tool_response")
	e.Result = strictResult(response)
	switch {
	case name == "PermissionDenied":
		e.Ended = EndedNotRun
	case v.Get("is_interrupt").Kind() == document.True, response.Get("interrupted").Kind() == document.True,
		response.Get("backgroundTaskId").Kind() != 0, response.Get("taskId").Kind() != 0 && e.Builtin == gate.BuiltinShell:
		e.Phase = PhaseOther
	case name == "PostToolUseFailure":
		e.Ended, e.Result = EndedFailed, strictResult(v.Get("error"))
	default:
		e.Ended = EndedOK
	}
}

func (c claudeCode) Encode(e Event, a Answer) Output {
	return encodeClaude(e, addressTo(e, a, true), c.EncodeFailure)
}

// claudeOutput is what a hook answers in the form of Claude Code.
type claudeOutput struct {
	Decision string          `json:"decision,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Specific *claudeSpecific `json:"hookSpecificOutput,omitempty"`
}

type claudeSpecific struct {
	Event    string `json:"hookEventName"`
	Decision string `json:"permissionDecision,omitempty"`
	Reason   string `json:"permissionDecisionReason,omitempty"`
	Context  string `json:"additionalContext,omitempty"`
}

// encodeClaude writes the form of Claude Code. No output at all is its neutral answer. It has no
// context at a stop: the client would go on because of it.
func encodeClaude(e Event, a Answer, fail func(string) Output) Output {
	answer := claudeOutput{Specific: &claudeSpecific{Event: e.Hook}}
	switch {
	case a.Verdict == Neutral:
		canTell := e.Phase == PhaseStart || e.Phase == PhaseBefore || e.Phase == PhaseAfter && e.Ended != EndedNotRun
		if a.Context == "" || !canTell {
			return Output{}
		}
		answer.Specific.Context = a.Context
	case e.Phase == PhaseBefore:
		answer.Specific.Decision, answer.Specific.Reason = "deny", reasonOf(a)
		if a.Verdict == Ask {
			answer.Specific.Decision = "ask"
		}
	case e.Phase == PhaseStart: // nothing can be refused: the agent is told
		answer.Specific.Context = reasonOf(a)
	case e.Phase == PhaseStop, e.Phase == PhaseAfter:
		answer = claudeOutput{Decision: "block", Reason: reasonOf(a)}
	default:
		return fail(reasonOf(a))
	}
	return writeJSON(answer)
}

// EncodeFailure denies with the exit code, which needs no name of an event to agree. The body serves
// http hooks, which have no exit code: "block" is an older form that every event with a decision takes.
func (claudeCode) EncodeFailure(reason string) Output {
	return withExit2(writeJSON(claudeOutput{Decision: "block", Reason: reason}), reason)
}
