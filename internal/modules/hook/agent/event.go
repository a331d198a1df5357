// Package agent answers the hooks of coding agents: before a tool of the agent's own runs, after it
// ran, when a session begins, and when the agent wants to stop.
//
// It promises that the rules are those of the gates, whatever the client; that it never allows
// what the client's own rules would ask about or deny: where it has nothing to say, it gives the
// client's neutral answer; and that it denies where it should have decided and could not.
//
// It must never run a tool, trust a name that it does not know, or let a failure of its own pass
// for a decision.
package agent

import (
	"github.com/gavel-mcp/gavel/validators/document"
)

// Phase is when a hook is asked.
type Phase string

// The phases.
const (
	PhaseStart  Phase = "start"  // a session begins or goes on
	PhaseBefore Phase = "before" // a tool is about to run
	PhaseAfter  Phase = "after"  // a tool ran, or did not after all
	PhaseStop   Phase = "stop"   // the agent wants to end
	PhaseOther  Phase = "other"  // anything else: gavel has nothing to say
)

// Ended says what came of a use of a tool, in the phase after it.
type Ended string

// The ways in which a use ends.
const (
	EndedOK     Ended = "ok"
	EndedFailed Ended = "failed"
	EndedNotRun Ended = "not_run" // somebody else refused it
)

// Event is what a client tells, in one form.
type Event struct {
	Client  string // its name: claude-code
	Hook    string // the client's name of the hook
	Phase   Phase
	Session string // the client's session
	Folder  string // the working folder, absolute
	// Project is the folder that the session began in, absolute, "" where the client does not say it:
	// the working folder is the agent's to change.
	Project string
	// Places is what the client's side found out about the names in the event, without Projects where
	// nobody looked: then the names are taken as written.
	Places Places
	// Within is the folder for whose sessions the credential is that the event came with, "" for any.
	Within string
	// Tool is the client's name of the tool. Builtin is what it is to gates, "" for a tool of an
	// MCP server, for one of which the adapter knows that no gate can be on it, and for an unknown one.
	Tool, Builtin string
	// Unknown reports that the adapter does not know the tool.
	Unknown bool
	// CallID is the client's id of the use, "" where it has none.
	CallID string
	// Use is what gates look at, before and after, where Builtin is set. The adapter fills in what
	// the client says: Command, Paths as given, URL.
	Command string
	Paths   []string
	URL     string
	// Input is what the client gives the tool, Result what came of it.
	Input, Result document.JSON
	Ended         Ended
	// Continued reports that the agent goes on because a hook did not let it stop.
	Continued bool
	// Headless reports that no person is at the client: nobody can be asked.
	Headless bool
	// Subagent reports that a part of the agent's work wants to stop, and not the agent.
	Subagent bool
}

// Verdict is what a client is told.
type Verdict string

// The verdicts. None allows.
const (
	Neutral Verdict = "neutral" // nothing to say: the client's own rules hold
	Deny    Verdict = "deny"    // a tool
	Ask     Verdict = "ask"     // the person at the client; denies where the client cannot ask
	GoOn    Verdict = "go_on"   // the agent may not stop yet
)

// Answer is what gavel says.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	// Reason is for the agent: what is wrong, and what to do next.
	Reason string `json:"reason,omitempty"`
	// Context is told to the agent without a verdict, where the client can.
	Context string `json:"context,omitempty"`
}

// Output is what a hook's process writes, and how it ends. Stdout is the body where the client asks
// over http.
type Output struct {
	Stdout, Stderr []byte
	Exit           int
}
