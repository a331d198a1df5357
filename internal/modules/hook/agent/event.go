// Package agent answers the hooks of coding agents: before and after the agent's own tools run, when a
// session begins, and when the agent wants to stop.
//
// It promises:
//   - The rules are those of the gates, for every client.
//   - It never allows what the client's own rules would deny or ask about. If it has nothing to decide, it
//     returns the client's neutral answer.
//   - It denies any event that it should decide and cannot.
//
// It must never:
//   - run a tool,
//   - trust a name that it does not know,
//   - let its own failure pass for a decision.
package agent

import (
	"github.com/gavel-mcp/gavel/validators/document"
)

// Phase is the point at which a hook is called.
type Phase string

// The phases.
const (
	PhaseStart  Phase = "start"  // a session begins or continues
	PhaseBefore Phase = "before" // a tool is about to run
	PhaseAfter  Phase = "after"  // a tool ran, or was prevented from running
	PhaseStop   Phase = "stop"   // the agent wants to stop
	PhaseOther  Phase = "other"  // anything else, which gavel does not decide
)

// Ended is how the use of a tool ended, in PhaseAfter.
type Ended string

// The ways in which a use ends.
const (
	EndedOK     Ended = "ok"
	EndedFailed Ended = "failed"
	EndedNotRun Ended = "not_run" // another party denied it
)

// Event is a client's event in a common form.
type Event struct {
	Client  string // such as claude-code
	Hook    string // the client's name of the hook
	Phase   Phase
	Session string // the client's session
	Folder  string // the working folder, absolute
	// Project is the absolute folder in which the session began, or "" if the client does not provide it.
	// The agent can change its working folder, but not this one.
	Project string
	// Places is what the client's side looked up about the names in the event. If Projects is nil, nothing
	// was looked up, and names are used as written.
	Places Places
	// Within is the folder to which the event's credential is limited, or "".
	Within string
	// Tool is the client's name of the tool. Builtin is the gate builtin that it corresponds to. It is ""
	// for a tool of an MCP server, a known tool that no gate can cover, and an unknown tool.
	Tool, Builtin string
	// Unknown reports that the adapter does not know the tool.
	Unknown bool
	// Instance is the instance of which gavel's own tool is asked for a move, or "".
	Instance string
	// Transcript is the file to which the client writes the session, or "". Said is what the user wrote in it; nil if
	// the sender does not know.
	Transcript string
	Said       *Said
	// CallID is the client's id of the use, or "".
	CallID string
	// Command, Paths and URL are what gates inspect before and after a tool, if Builtin is set. The adapter
	// fills in what the client provides; Paths are as given.
	Command string
	Paths   []string
	URL     string
	// Input is the input of the tool, and Result its result.
	Input, Result document.JSON
	Ended         Ended
	// Continued reports that the agent continues because a hook did not let it stop.
	Continued bool
	// Headless reports that no person is at the client to be asked.
	Headless bool
	// Subagent reports that a subagent wants to stop, not the whole agent.
	Subagent bool
}

// Verdict is the decision for a client.
type Verdict string

// The verdicts. None of them allows a tool.
const (
	Neutral  Verdict = "neutral" // no decision: the client's own rules apply
	Deny     Verdict = "deny"    // denies a tool
	Ask      Verdict = "ask"     // asks the person at the client; denies if the client cannot ask
	Continue Verdict = "go_on"   // the agent must not stop yet
)

// Answer is gavel's answer to an event.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	// Reason is for the agent: the problem, and the next step.
	Reason string `json:"reason,omitempty"`
	// NeedsTranscript asks for the event again, with what ReadSaid returns.
	NeedsTranscript bool `json:"needsTranscript,omitempty"`
	// Context is passed to the agent without a verdict, if the client supports it; at a stop, to its user.
	Context string `json:"context,omitempty"`
}

// Output is what a hook's process writes, and its exit code. Stdout is the response body if the client asks
// over HTTP.
type Output struct {
	Stdout, Stderr []byte
	Exit           int
}
