package hook

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
)

// ToolName is the name under which a client's agent sees a tool of gavel's MCP server, which is called
// gavel in the client's settings.
func ToolName(client, tool string) string {
	name := strings.ReplaceAll(tool, ".", "_")
	switch client {
	case "claude-code", "codex":
		return "mcp__gavel__" + name
	case "copilot":
		return "gavel-" + name
	case "gemini":
		return "mcp_gavel_" + name
	case "kiro":
		return "@gavel/" + name
	case "opencode":
		return "gavel_" + name
	case "cursor":
		return name
	default:
		return tool
	}
}

// IsHeadless reports whether a client's session has no person to ask, by the environment that the
// client gives to a hook.
func IsHeadless(client string, getenv func(string) string) bool {
	if client == "claude-code" {
		switch getenv("CLAUDE_CODE_SESSION_ATTENDED") {
		case "0":
			return true
		case "1":
			return false
		}
		switch getenv("CLAUDE_CODE_ENTRYPOINT") { // of versions without the variable above
		case "sdk-cli", "sdk-ts", "sdk-py", "mcp", "claude-code-github-action":
			return true
		}
	}
	ci := getenv("CI")
	return ci != "" && ci != "0" && ci != "false"
}

// addressTo makes an answer one for a client's agent. A question becomes a denial where no person would
// answer it: in a session without one, and at a client that cannot ask for a hook. gavel's own tools
// get the names that the client shows.
func addressTo(e Event, a Answer, canAsk bool) Answer {
	if a.Verdict == Ask && (e.Headless || !canAsk) {
		why := "This client cannot ask its user for a hook, so the answer is no."
		if e.Headless {
			why = "No person is in this session to be asked, so the answer is no."
		}
		a.Verdict, a.Reason = Deny, strings.TrimSpace(EndSentence(a.Reason)+" "+why)
	}
	a.Reason, a.Context = nameTools(e.Client, a.Reason), nameTools(e.Client, a.Context)
	return a
}

var ownTools = regexp.MustCompile(`\bworkflow\.(advance|cancel|define|judge\.clear|start|status)\b`)

func nameTools(client, text string) string {
	return ownTools.ReplaceAllStringFunc(text, func(tool string) string { return ToolName(client, tool) })
}

// AnswerUnreadable answers an event that could not be read: denied in one sentence, unless the rules say
// otherwise. Without rules, how is "".
func AnswerUnreadable(a Adapter, how gate.OnFailure, err error) Output {
	if how == gate.OnFailureNeutral {
		return a.Encode(Event{Client: a.Client()}, Answer{Verdict: Neutral})
	}
	return a.EncodeFailure(fmt.Sprintf(CouldNotDecide+", so the answer is no: %s; tell the person who runs you that gavel may be too old for this client.", strings.TrimRight(err.Error(), ".")))
}
