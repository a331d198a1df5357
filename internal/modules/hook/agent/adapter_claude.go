package agent

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The clients in this file share the event format of Claude Code.

func claudeMembers(result, line string) members {
	return members{
		hook: "hook_event_name", session: "session_id", folder: "cwd", call: "tool_use_id",
		tool: "tool_name", input: "tool_input", result: result, line: line,
	}
}

// claudeResponses returns the templates for Claude Code's format. They pass the agent no text at a stop, because the
// client would continue. In fail, "block" is an older form that every event with a decision accepts.
func claudeResponses(asks bool) responseTemplates {
	return responseTemplates{
		text: `{"hookSpecificOutput":{"hookEventName":HOOK,"additionalContext":TEXT}}`, textPhases: []Phase{PhaseStart, PhaseBefore, PhaseAfter},
		deny: `{"hookSpecificOutput":{"hookEventName":HOOK,"permissionDecision":"deny","permissionDecisionReason":TEXT}}`, canAsk: asks,
		hold: `{"decision":"block","reason":TEXT}`,
		note: `{"systemMessage":TEXT}`,
		fail: `{"decision":"block","reason":TEXT}`,
	}
}

func isClaudeServers(tool string, _ document.JSON) bool { return strings.HasPrefix(tool, "mcp__") }

// claudeCode supports the hooks of Claude Code (2.1.330). They return JSON with exit code 0, or text on
// stderr with exit code 2; with exit code 2 the client ignores stdout. The tools include those of older
// versions.
//
// A PermissionRequest follows a PreToolUse of the same call. gavel must not answer it, because the decision
// belongs to the person.
var claudeCode = Adapter{
	Client: "claude-code", ProjectVariable: "CLAUDE_PROJECT_DIR", toolPrefix: "mcp__gavel__",
	members: claudeMembers("tool_response", ""), isServers: isClaudeServers, finish: finishClaude, responses: claudeResponses(true),
	events: map[Phase]string{
		PhaseStart:  "SessionStart",
		PhaseBefore: "PreToolUse",
		PhaseAfter:  "PostToolUse PostToolUseFailure PermissionDenied",
		PhaseStop:   "Stop SubagentStop",
		PhaseOther: `PermissionRequest PostToolBatch UserPromptSubmit UserPromptExpansion SubagentStart TeammateIdle TaskCreated
			TaskCompleted SessionEnd StopFailure Setup Notification PreCompact PostCompact PreModelSwitch PostModelSwitch
			Elicitation ElicitationResult ConfigChange InstructionsLoaded WorktreeCreate WorktreeRemove CwdChanged FileChanged
			DirectoryAdded MessageDisplay`,
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "Bash PowerShell Monitor"},
		{gate.BuiltinFetch, "ws.url", "Monitor:ws"},
		{gate.BuiltinEdit, "file_path", "Edit MultiEdit Write"},
		{gate.BuiltinEdit, "notebook_path", "NotebookEdit"},
		{gate.BuiltinRead, "file_path", "Read"},
		{gate.BuiltinRead, "notebook_path", "NotebookRead"},
		{gate.BuiltinRead, "", "Glob Grep LS LSP"},
		{gate.BuiltinRead, "", "Artifact Projects SendUserFile"}, // they send the files they name out of the machine
		{gate.BuiltinFetch, "url", "WebFetch"},
		{gate.BuiltinFetch, "", "WebSearch"},
		{"", "", `Agent AgentOutputTool AskUserQuestion BashOutput ClaudeDesign CronCreate CronDelete CronList EnterPlanMode
			EnterWorktree ExitPlanMode ExitWorktree KillBash KillShell ListAgents ListMcpResourcesTool OfferChromeSetup
			PushNotification ReadMcpResourceDirTool ReadMcpResourceTool ReadNotifications RemoteTrigger ReportFindings
			ScheduleWakeup SendFeedback SendMessage SendUserMessage SetGoal ShareOnboardingGuide ShowOnboardingRolePicker
			Skill SlashCommand SubagentHandback Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoWrite
			ToolSearch WaitForMcpServers Workflow propose_skills`},
	},
}

// finishClaude decodes how a tool use or a turn ended. If a command continues in the background or was
// interrupted, its end is unknown, and its call stays open.
func finishClaude(e *Event, v document.JSON) {
	e.Subagent = e.Hook == "SubagentStop"
	e.Continued = v.Get("stop_hook_active").Kind() == document.True
	response := v.Get("tool_response")
	switch {
	case e.Phase == PhaseStop && v.Get("background_tasks").Len() > 0: // the agent only waits: the client wakes it when a task ends
		e.markEndUnknown()
	case e.Phase != PhaseAfter:
	case e.Hook == "PermissionDenied":
		e.Ended = EndedNotRun
	case v.Get("is_interrupt").Kind() == document.True, response.Get("interrupted").Kind() == document.True,
		response.Get("backgroundTaskId").Kind() != 0, response.Get("taskId").Kind() != 0 && e.Builtin == gate.BuiltinShell:
		e.markEndUnknown()
	case e.Ended == EndedFailed:
		e.Result = strictResult(v.Get("error"))
	}
}

// codex supports the hooks of Codex CLI (0.169.0). Codex continues after every failure of a hook: JSON that
// it does not accept (such as "ask"), a denial without a reason, a crash, a timeout. It calls no hook for
// lines typed into a running program (write_stdin, so far), or for web searches, which run at the provider.
var codex = Adapter{
	Client: "codex", toolPrefix: "mcp__gavel__",
	members: claudeMembers("tool_response", ""), isServers: isClaudeServers, finish: finishCodex, responses: claudeResponses(false),
	events: map[Phase]string{
		PhaseStart: "SessionStart", PhaseBefore: "PreToolUse", PhaseAfter: "PostToolUse", PhaseStop: "Stop SubagentStop",
		PhaseOther: `PermissionRequest UserPromptSubmit SubagentStart SessionEnd PreCompact PostCompact PreModelRequest
			PostModelRequest Interrupt StopFailure`,
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "Bash"},
		{patch, "command", "apply_patch"},
		{gate.BuiltinRead, "path", "view_image"},
		{"", "", `close_agent create_goal get_goal list_agents list_mcp_resource_templates list_mcp_resources
			read_mcp_resource request_permissions request_user_input resume_agent send_input send_message sleep spawn_agent
			tool_search update_goal update_plan wait wait_agent write_stdin`},
		{gate.BuiltinShell, "chars", "write_stdin:chars"},
		{"", "", "write_stdin:chars="}, // only waits for output
	},
}

func finishCodex(e *Event, v document.JSON) {
	finishClaude(e, v)
	if v.Get("agent_id").Kind() != 0 { // what the main agent tells a subagent is marked there as the user's
		e.Transcript = ""
	}
	if e.Builtin != gate.BuiltinShell {
		return
	}
	if strings.Contains(e.Command, "*** Begin Patch") { // apply_patch run as a program
		e.Paths = append(e.Paths, findPatchPaths(e.Command)...)
	}
	if opensShell(e.Command) {
		e.Command += "\neval \"$TYPED_LATER\""
	}
	if e.Phase == PhaseAfter { // the event contains the output, but not whether the line succeeded
		e.markEndUnknown()
	}
}

// opensShell reports whether a line starts an interactive shell. No hook is called for text typed into it,
// so the line counts as running unknown text.
func opensShell(line string) bool {
	return slices.ContainsFunc(shell.Read(line).Commands, func(c shell.Command) bool {
		return len(c.Words) > 0 && slices.Contains(typableShells, path.Base(c.Words[0].Text)) &&
			!slices.ContainsFunc(c.Words[1:], func(w shell.Word) bool { return !strings.HasPrefix(w.Text, "-") })
	})
}

var typableShells = []string{"ash", "bash", "dash", "fish", "ksh", "screen", "script", "sh", "su", "tmux", "zsh"}

// copilot supports the hooks of GitHub Copilot CLI (1.0.102) whose names begin with a capital letter. They
// use Claude Code's format and tool names, with the members of Copilot's own tools. The other hooks do not
// name their event. A nonzero exit code denies a tool; invalid JSON or a timeout does not.
var copilot = Adapter{
	Client: "copilot", toolPrefix: "gavel-",
	members: claudeMembers("tool_result", ""),
	// SERVER-TOOL; the client's own tools have no hyphens.
	isServers: func(tool string, v document.JSON) bool {
		return isClaudeServers(tool, v) || strings.Contains(tool, "-")
	},
	finish: finishCopilot,
	responses: responseTemplates{
		text: `{"additionalContext":TEXT}`, textPhases: []Phase{PhaseStart, PhaseAfter},
		deny: `{"permissionDecision":"deny","permissionDecisionReason":TEXT}`, canAsk: true,
		hold: `{"decision":"block","reason":TEXT}`,
		fail: `{"permissionDecision":"deny","permissionDecisionReason":TEXT,"decision":"block","reason":TEXT}`,
	},
	events: map[Phase]string{
		PhaseStart: "SessionStart", PhaseBefore: "PreToolUse", PhaseAfter: "PostToolUse PostToolUseFailure", PhaseStop: "Stop SubagentStop",
		PhaseOther: "UserPromptSubmit SessionEnd SubagentStart ErrorOccurred Notification PreCompact",
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "Bash PowerShell powershell"},
		{gate.BuiltinShell, "input", "write_bash write_powershell"},
		{gate.BuiltinEdit, "path", "Write Edit str_replace_editor"},
		{patch, "command", "apply_patch"},
		{patch, "input", "apply_patch:input"},
		{patch, "patch", "apply_patch:patch"},
		{gate.BuiltinRead, "path", "Read str_replace_editor:command=view"},
		{gate.BuiltinRead, "", "Glob Grep rg lsp"},
		{gate.BuiltinFetch, "url", "WebFetch web_fetch"},
		{gate.BuiltinFetch, "", "WebSearch web_search"},
		{"", "", `Agent AskUserQuestion Skill Task TodoWrite ask_user exit_plan_mode fetch_copilot_cli_documentation
			list_agents list_bash list_powershell read_agent read_bash read_powershell report_intent session_store_sql skill
			sql stop_bash stop_powershell store_memory task task_complete update_todo write_agent`},
	},
}

var copilotExit = regexp.MustCompile(`completed with exit code (-?\d+)>\s*$`)

// finishCopilot decodes how a tool use ended. The exit code of a shell line appears only at the end of a
// text.
func finishCopilot(e *Event, v document.JSON) {
	finishClaude(e, v)
	if e.Phase != PhaseAfter {
		return
	}
	result := v.Get("tool_result")
	exit := copilotExit.FindStringSubmatch(result.Get("text_result_for_llm").Text())
	switch kind := result.Get("result_type"); {
	case kind.Is("rejected"), kind.Is("denied"):
		e.Ended = EndedNotRun
	case kind.Is("failure"):
		e.Ended = EndedFailed
	case e.Builtin != gate.BuiltinShell || e.Ended != EndedOK:
	case exit == nil: // it continues in the background
		e.markEndUnknown()
	case exit[1] != "0":
		e.Ended = EndedFailed
	}
}

// gemini supports the hooks of Gemini CLI (0.61.0). It accepts JSON with any exit code. Without JSON, exit
// codes from 2 on deny; 0, 1 and an end by a signal do not. It reads stderr if stdout is empty, so the
// neutral answer has neither. Asking is undocumented, and hangs a session without a person. A denial after
// a tool would hide the result.
var gemini = Adapter{
	Client: "gemini", ProjectVariable: "GEMINI_PROJECT_DIR", toolPrefix: "mcp_gavel_",
	members: claudeMembers("tool_response", "dir_path"),
	isServers: func(tool string, v document.JSON) bool {
		return isClaudeServers(tool, v) || v.Get("mcp_context").Kind() == document.Object
	},
	finish: finishGemini,
	responses: responseTemplates{
		text: `{"hookSpecificOutput":{"hookEventName":HOOK,"additionalContext":TEXT}}`, textPhases: []Phase{PhaseStart, PhaseAfter},
		deny: `{"decision":"deny","reason":TEXT}`,
		hold: `{"decision":"deny","reason":TEXT}`,
		fail: `{"decision":"deny","reason":TEXT}`,
	},
	events: map[Phase]string{
		PhaseStart: "SessionStart", PhaseBefore: "BeforeTool", PhaseAfter: "AfterTool", PhaseStop: "AfterAgent",
		PhaseOther: "BeforeAgent BeforeModel BeforeToolSelection AfterModel SessionEnd Notification PreCompress",
	},
	tools: []toolForm{
		{gate.BuiltinShell, "command", "run_shell_command"},
		{gate.BuiltinEdit, "file_path", "write_file replace"},
		{gate.BuiltinRead, "file_path", "read_file"},
		{gate.BuiltinRead, "include", "read_many_files"},
		{gate.BuiltinRead, "", "list_directory glob grep_search search_file_content"}, // the last is an older name of grep_search
		{gate.BuiltinFetch, "", "web_fetch google_web_search"},
		{"", "", `activate_skill ask_user complete_task enter_plan_mode exit_plan_mode get_internal_docs invoke_agent
			list_background_processes list_mcp_resources read_background_output read_mcp_resource save_memory take_snapshot
			tracker_add_dependency tracker_create_task tracker_get_task tracker_list_tasks tracker_update_task
			tracker_visualize update_topic write_todos`},
	},
}

// finishGemini decodes the address of a fetch, and how a tool use ended. The result of a shell line appears
// only in a text.
func finishGemini(e *Event, v document.JSON) {
	finishClaude(e, v)
	if e.Tool == "web_fetch" {
		findGeminiURL(e)
	}
	content := e.Result.Get("llmContent")
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(content.Text(), text) })
	}
	switch {
	case e.Phase != PhaseAfter:
	case e.Result.Get("error").Kind() == document.Object:
		e.Ended = EndedFailed
	case e.Builtin != gate.BuiltinShell:
	case content.Kind() != document.String, says("Command moved to background", "Command was cancelled", "Command was automatically cancelled"):
		e.markEndUnknown()
	case says("\nExit Code: ", "\nSignal: ", "\nError: "):
		e.Ended = EndedFailed
	}
}

var geminiURL = regexp.MustCompile(`(?i)https?://[^\s"'<>\x60)\]}]+`)

// findGeminiURL takes the address of a web_fetch from its prompt, which may name up to twenty. An event holds one
// address, so if the prompt names several hosts, the use counts as unknown.
func findGeminiURL(e *Event) {
	for _, found := range geminiURL.FindAllString(e.Input.Get("prompt").Text(), -1) {
		if e.URL == "" {
			e.URL = found
		}
		first, err1 := url.Parse(e.URL)
		other, err2 := url.Parse(found)
		if err1 != nil || err2 != nil || !strings.EqualFold(first.Host, other.Host) {
			e.Builtin, e.URL, e.Unknown = "", "", true
			return
		}
	}
}
