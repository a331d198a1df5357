package hook

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// gemini speaks the hooks of Gemini CLI (0.61.0). They take JSON with any exit code; without JSON, 2
// and more deny, 0, 1 and an end by a signal do not. It reads stderr where stdout is empty: the
// neutral answer has neither.
type gemini struct{}

func (gemini) Client() string { return "gemini" }

var geminiTools = toolTable{
	"run_shell_command":   {builtin: gate.BuiltinShell, command: "command", folder: "dir_path"},
	"write_file":          {builtin: gate.BuiltinEdit, path: "file_path"},
	"replace":             {builtin: gate.BuiltinEdit, path: "file_path"},
	"read_file":           {builtin: gate.BuiltinRead, path: "file_path"},
	"read_many_files":     {builtin: gate.BuiltinRead, path: "include"},
	"list_directory":      {builtin: gate.BuiltinRead},
	"glob":                {builtin: gate.BuiltinRead},
	"grep_search":         {builtin: gate.BuiltinRead},
	"search_file_content": {builtin: gate.BuiltinRead}, // an older name of grep_search
	"web_fetch":           {builtin: gate.BuiltinFetch},
	"google_web_search":   {builtin: gate.BuiltinFetch},
}.free(
	"activate_skill", "ask_user", "complete_task", "enter_plan_mode", "exit_plan_mode", "get_internal_docs", "invoke_agent",
	"list_background_processes", "list_mcp_resources", "read_background_output", "read_mcp_resource", "save_memory",
	"take_snapshot", "tracker_add_dependency", "tracker_create_task", "tracker_get_task", "tracker_list_tasks",
	"tracker_update_task", "tracker_visualize", "update_topic", "write_todos",
)

// geminiEvents are the hooks of Gemini CLI; a name that is not among them is an error.
var geminiEvents = map[string]Phase{
	"SessionStart": PhaseStart, "BeforeTool": PhaseBefore, "AfterTool": PhaseAfter, "AfterAgent": PhaseStop,
	"BeforeAgent": PhaseOther, "BeforeModel": PhaseOther, "BeforeToolSelection": PhaseOther, "AfterModel": PhaseOther,
	"SessionEnd": PhaseOther, "Notification": PhaseOther, "PreCompress": PhaseOther,
}

func (g gemini) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e, err := decodeClaude(g.Client(), v, geminiEvents, geminiTools)
	if err != nil || e.Phase != PhaseBefore && e.Phase != PhaseAfter {
		return e, err
	}
	if v.Get("mcp_context").Kind() == document.Object { // a server's tool: the gateway's
		e.Unknown, e.Input = false, document.JSON{}
		return e, nil
	}
	if e.Tool == "web_fetch" {
		findGeminiURL(&e)
	}
	if e.Phase == PhaseAfter {
		endGemini(&e)
	}
	return e, nil
}

var geminiURL = regexp.MustCompile(`(?i)https?://[^\s"'<>\x60)\]}]+`)

// findGeminiURL finds the address that a web_fetch is about in its prompt, which may name up to twenty.
// Several hosts cannot be told as one address: the use counts as unknown.
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

// endGemini says what came of a tool. Of a shell line only a text tells it.
func endGemini(e *Event) {
	content := e.Result.Get("llmContent")
	switch {
	case e.Result.Get("error").Kind() == document.Object:
		e.Ended = EndedFailed
	case e.Builtin != gate.BuiltinShell:
		e.Ended = EndedOK
	case content.Kind() != document.String, strings.Contains(content.Text(), "Command moved to background"),
		strings.Contains(content.Text(), "Command was cancelled"), strings.Contains(content.Text(), "Command was automatically cancelled"):
		e.Phase, e.Ended = PhaseOther, ""
	case strings.Contains(content.Text(), "\nExit Code: "), strings.Contains(content.Text(), "\nSignal: "), strings.Contains(content.Text(), "\nError: "):
		e.Ended = EndedFailed
	default:
		e.Ended = EndedOK
	}
}

// geminiOutput is what a hook of Gemini CLI answers.
type geminiOutput struct {
	Decision string          `json:"decision,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Specific *claudeSpecific `json:"hookSpecificOutput,omitempty"`
}

// Encode denies where it should ask: asking is not documented, and a session without a person hangs on it.
func (g gemini) Encode(e Event, a Answer) Output {
	a = addressTo(e, a, false)
	switch {
	case a.Verdict == Neutral:
		if a.Context == "" || e.Phase != PhaseStart && e.Phase != PhaseAfter {
			return Output{}
		}
		return writeJSON(geminiOutput{Specific: &claudeSpecific{Event: e.Hook, Context: a.Context}})
	case e.Phase == PhaseStart: // nothing can be refused: the agent is told
		return writeJSON(geminiOutput{Specific: &claudeSpecific{Event: e.Hook, Context: reasonOf(a)}})
	case e.Phase == PhaseAfter: // to deny would hide the result
		return writeJSON(geminiOutput{Specific: &claudeSpecific{Event: e.Hook, Context: reasonOf(a)}})
	case e.Phase == PhaseBefore, e.Phase == PhaseStop:
		return writeJSON(geminiOutput{Decision: "deny", Reason: reasonOf(a)})
	default:
		return g.EncodeFailure(reasonOf(a))
	}
}

func (gemini) EncodeFailure(reason string) Output {
	return withExit2(writeJSON(geminiOutput{Decision: "deny", Reason: reason}), reason)
}
