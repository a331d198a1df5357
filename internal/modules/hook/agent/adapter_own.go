package agent

import (
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The clients in this file have their own event formats.

// cursor supports the hooks of Cursor (documentation of October 2026). They return JSON with exit code 0,
// or exit code 2. With failClosed, any other exit code, missing output and invalid JSON deny too, so the
// neutral answer is an empty object. preToolUse accepts "ask" but then runs the tool, so gavel denies
// instead.
//
// Hooks for one kind of tool (beforeShellExecution) are not supported: they run in addition to preToolUse,
// so a use would be decided twice.
var cursor = Adapter{
	Client: "cursor", ProjectVariable: "CURSOR_PROJECT_DIR",
	members: members{
		hook: "hook_event_name", session: "conversation_id", folder: "cwd", call: "tool_use_id",
		tool: "tool_name", input: "tool_input", line: "working_directory",
	},
	isServers: func(tool string, _ document.JSON) bool { return strings.HasPrefix(tool, "MCP:") },
	finish:    finishCursor,
	responses: responseTemplates{
		neutral: "{}",
		text:    `{"additional_context":TEXT}`, textPhases: []Phase{PhaseStart, PhaseAfter},
		deny: `{"permission":"deny","user_message":TEXT,"agent_message":TEXT}`,
		hold: `{"followup_message":TEXT}`,
		fail: `{"permission":"deny","user_message":TEXT,"agent_message":TEXT}`,
	},
	events: map[Phase]string{
		PhaseStart: "sessionStart", PhaseBefore: "preToolUse", PhaseAfter: "postToolUse postToolUseFailure", PhaseStop: "stop subagentStop",
		PhaseOther: `afterShellExecution afterMCPExecution afterFileEdit afterTabFileEdit beforeSubmitPrompt afterAgentResponse
			afterAgentThought subagentStart sessionEnd preCompact workspaceOpen`,
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "Shell"},
		{gate.BuiltinEdit, anyPath, "Write StrReplace Edit MultiEdit Delete TabWrite"},
		{gate.BuiltinEdit, "target_notebook", "EditNotebook"},
		{patch, "command", "ApplyPatch"},
		{patch, "input", "ApplyPatch:input"},
		{patch, "patch", "ApplyPatch:patch"},
		{gate.BuiltinRead, anyPath, "Read TabRead"},
		{gate.BuiltinRead, "", "Grep Glob LS ReadLints SemanticSearch"},
		{gate.BuiltinFetch, "url", "WebFetch"},
		{gate.BuiltinFetch, "", "WebSearch"},
		{"", "", "AskQuestion Await CallMcpTool CreatePlan FetchMcpResource SwitchMode Task TodoWrite UpdateCurrentStep"},
	},
}

// finishCursor decodes how a tool use or a turn ended. The output of a tool is a string that contains JSON.
func finishCursor(e *Event, v document.JSON) {
	loops := v.Get("loop_count")
	e.Subagent, e.Continued = e.Hook == "subagentStop", loops.Kind() == document.Number && string(loops.Raw()) != "0"
	failure := v.Get("failure_type")
	switch status := v.Get("status"); {
	case e.Phase == PhaseStop && status.Kind() != 0 && !status.Is("completed"): // cancelled by the user, or failed
		e.markEndUnknown()
	case e.Phase != PhaseAfter:
	case e.Ended == EndedFailed && failure.Is("permission_denied"):
		e.Ended = EndedNotRun
	case e.Ended == EndedFailed && (failure.Is("timeout") || v.Get("is_interrupt").Kind() == document.True):
		e.markEndUnknown()
	case e.Ended == EndedFailed:
		e.Result = strictResult(v.Get("error_message"))
	default:
		output := document.ReadTrusted(v.Get("tool_output").Bytes())
		e.Result = strictResult(output)
		e.setLineEnd(output.Get("exitCode"))
	}
}

// kiro supports the hooks of Kiro (documentation of October 2026), in its command line and its editor, in older
// and newer versions. Only exit code 2 of preToolUse denies; any other failure is a warning. An agent that stops
// cannot be made to continue. Only an agent that is starting reads plain output. The tool that calls AWS is
// unknown on purpose: it can do anything that a shell line can.
var kiro = Adapter{
	Client: "kiro", toolPrefix: "@gavel/",
	members: claudeMembers("tool_response", "working_dir"), noSession: true,
	isServers: func(tool string, _ document.JSON) bool {
		return strings.HasPrefix(tool, "@") || strings.HasPrefix(tool, "mcp_")
	},
	finish:    finishKiro,
	responses: responseTemplates{text: "LINE", textPhases: []Phase{PhaseStart}},
	events: map[Phase]string{
		PhaseStart:  "agentSpawn AgentSpawn SessionStart sessionStart",
		PhaseBefore: "preToolUse PreToolUse",
		PhaseAfter:  "postToolUse PostToolUse",
		PhaseStop:   "stop Stop",
		PhaseOther: `userPromptSubmit UserPromptSubmit PostFileSave PostFileCreate PostFileDelete PreTaskExecution
			PostTaskExecution`,
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "execute_bash execute_cmd shell executeBash"},
		{gate.BuiltinEdit, "path", "fs_write write fsWrite fsAppend strReplace"},
		{gate.BuiltinEdit, anyPath, "deleteFile"},
		{gate.BuiltinRead, anyPath, "fs_read read readFile readMultipleFiles fsRead"},
		{gate.BuiltinRead, "operations", "fs_read:operations read:operations readFile:operations readMultipleFiles:operations fsRead:operations"},
		{gate.BuiltinRead, "", "glob grep code listDirectory fileSearch grepSearch"},
		{gate.BuiltinFetch, "url", "web_fetch webFetch"},
		{gate.BuiltinFetch, "", "web_search remote_web_search"},
		{"", "", "delegate introspect knowledge report report_issue session subagent thinking todo todo_list use_subagent"},
	},
}

// finishKiro decodes how a tool use ended. The exit code of a shell line is undocumented; without it, the
// call stays open.
func finishKiro(e *Event, v document.JSON) {
	response := v.Get("tool_response")
	if e.Phase == PhaseAfter && response.Get("success").Kind() == document.False {
		e.Ended = EndedFailed
	}
	e.setLineEnd(response.At("result", "0", "exit_status"))
}

// opencode supports the plugin that gavel installs in opencode (1.18.33), which has no command hooks. The plugin
// throws on any failure, and opencode then does not run the tool. opencode calls no hook after a tool that failed.
// The plugin lists the MCP servers, whose tools are named SERVER_TOOL.
var opencode = Adapter{
	Client: "opencode", toolPrefix: "gavel_",
	members: members{
		hook: "hook", session: "sessionID", folder: "directory", call: "callID",
		tool: "tool", input: "args", result: "output", line: "workdir",
	},
	isServers: func(tool string, v document.JSON) bool {
		for _, server := range v.Get("servers").Elements() {
			if server.Text() != "" && strings.HasPrefix(tool, server.Text()+"_") {
				return true
			}
		}
		return false
	},
	finish: func(e *Event, v document.JSON) {
		e.Subagent, e.Continued = v.Get("subagent").Kind() == document.True, v.Get("continued").Kind() == document.True
		e.setLineEnd(v.At("metadata", "exit"))
	},
	responses: responseTemplates{
		neutral: "{}",
		text:    `{"context":TEXT}`, textPhases: []Phase{PhaseStart, PhaseBefore, PhaseAfter, PhaseStop},
		deny: `{"deny":TEXT}`, hold: `{"goOn":TEXT}`, fail: `{"deny":TEXT}`,
	},
	events: map[Phase]string{
		PhaseStart: "session.created", PhaseBefore: "tool.execute.before", PhaseAfter: "tool.execute.after", PhaseStop: "session.idle",
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "bash"},
		{gate.BuiltinEdit, "filePath", "edit write multiedit"},
		{patch, "patchText", "patch apply_patch"},
		{gate.BuiltinRead, "filePath", "read"},
		{gate.BuiltinRead, "", "glob grep list lsp"},
		{gate.BuiltinFetch, "url", "webfetch"},
		{gate.BuiltinFetch, "", "websearch codesearch"},
		{"", "", "batch invalid plan_enter plan_exit question skill task todoread todowrite"},
	},
}
