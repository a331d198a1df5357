package hook

import (
	"fmt"
	"strings"
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

// denyUnasked turns a question into a denial where no person would answer it: in a session without one,
// and at a client that cannot ask for a hook.
func denyUnasked(e Event, a Answer, canAsk bool) Answer {
	if a.Verdict != Ask || canAsk && !e.Headless {
		return a
	}
	why := "This client cannot ask its user for a hook, so the answer is no."
	if e.Headless {
		why = "No person is in this session to be asked, so the answer is no."
	}
	return Answer{Verdict: Deny, Reason: strings.TrimSpace(EndSentence(a.Reason) + " " + why)}
}

// DescribeUnreadable tells an agent that its client's event could not be read, in one sentence.
func DescribeUnreadable(err error) string {
	return fmt.Sprintf("gavel says no: %s; tell the person who runs you that gavel may be too old for this client.", strings.TrimRight(err.Error(), "."))
}
