package hook

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// opencode speaks with the plugin that gavel installs in opencode (1.18.33): opencode has no hooks
// that are commands. The plugin throws whatever goes wrong, and opencode does not run the tool then.
type opencode struct{}

func (opencode) Client() string { return "opencode" }

var opencodeTools = toolTable{
	"bash":        {builtin: gate.BuiltinShell, command: "command", folder: "workdir"},
	"edit":        {builtin: gate.BuiltinEdit, path: "filePath"},
	"write":       {builtin: gate.BuiltinEdit, path: "filePath"},
	"multiedit":   {builtin: gate.BuiltinEdit, path: "filePath"},
	"patch":       {builtin: gate.BuiltinEdit, patch: "patchText"},
	"apply_patch": {builtin: gate.BuiltinEdit, patch: "patchText"},
	"read":        {builtin: gate.BuiltinRead, path: "filePath"},
	"glob":        {builtin: gate.BuiltinRead},
	"grep":        {builtin: gate.BuiltinRead},
	"list":        {builtin: gate.BuiltinRead},
	"lsp":         {builtin: gate.BuiltinRead},
	"webfetch":    {builtin: gate.BuiltinFetch, url: "url"},
	"websearch":   {builtin: gate.BuiltinFetch},
	"codesearch":  {builtin: gate.BuiltinFetch},
}.free("batch", "invalid", "plan_enter", "plan_exit", "question", "skill", "task", "todoread", "todowrite")

func (o opencode) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e := Event{Client: o.Client(), Subagent: v.Get("subagent").Kind() == document.True}
	if e.Hook, err = requireText(v, "hook"); err != nil {
		return Event{}, err
	}
	if e.Session, err = requireText(v, "sessionID"); err != nil {
		return Event{}, err
	}
	if e.CallID, err = optionalText(v, "callID"); err != nil {
		return Event{}, err
	}
	if e.Folder, err = requireFolder(v, "directory"); err != nil {
		return Event{}, err
	}
	switch e.Hook {
	case "session.created":
		e.Phase = PhaseStart
	case "session.idle":
		e.Phase, e.Continued = PhaseStop, v.Get("continued").Kind() == document.True
	case "tool.execute.before":
		e.Phase = PhaseBefore
	case "tool.execute.after":
		e.Phase = PhaseAfter
	default:
		return Event{}, fmt.Errorf("unknown hook event %q; install the plugin again", e.Hook)
	}
	if e.Phase != PhaseBefore && e.Phase != PhaseAfter {
		return e, nil
	}
	if e.Tool, err = requireText(v, "tool"); err != nil {
		return Event{}, err
	}
	args := v.Get("args")
	if args.Kind() == 0 {
		return Event{}, fmt.Errorf("args is missing")
	}
	if err := opencodeTools.classify(&e, args); err != nil {
		return Event{}, err
	}
	if e.Unknown && isServersTool(v, e.Tool) { // the gateway's
		e.Unknown, e.Input = false, document.JSON{}
	}
	if e.Phase == PhaseAfter {
		endOpencode(&e, v)
	}
	return e, nil
}

// isServersTool reports whether a tool is one of the servers of MCP that the plugin lists: it is called
// SERVER_TOOL then.
func isServersTool(v document.JSON, tool string) bool {
	for _, server := range v.Get("servers").Elements() {
		if server.Text() != "" && strings.HasPrefix(tool, server.Text()+"_") {
			return true
		}
	}
	return false
}

// endOpencode says what came of a tool; a tool that fails has no such hook.
func endOpencode(e *Event, v document.JSON) {
	e.Result, e.Ended = strictResult(v.Get("output")), EndedOK
	if e.Builtin != gate.BuiltinShell {
		return
	}
	switch exit := v.At("metadata", "exit"); {
	case exit.Kind() != document.Number: // interrupted, or still running
		e.Phase, e.Ended = PhaseOther, ""
	case string(exit.Raw()) != "0":
		e.Ended = EndedFailed
	}
}

// opencodeOutput is what the plugin reads.
type opencodeOutput struct {
	Deny    string `json:"deny,omitempty"`
	GoOn    string `json:"goOn,omitempty"`
	Context string `json:"context,omitempty"`
}

// Encode denies where it should ask: a plugin cannot.
func (o opencode) Encode(e Event, a Answer) Output {
	a = addressTo(e, a, false)
	switch {
	case a.Verdict == Neutral:
		return writeJSON(opencodeOutput{Context: a.Context})
	case e.Phase == PhaseBefore:
		return writeJSON(opencodeOutput{Deny: reasonOf(a)})
	case e.Phase == PhaseStop:
		return writeJSON(opencodeOutput{GoOn: reasonOf(a)})
	case e.Phase == PhaseStart, e.Phase == PhaseAfter: // nothing can be refused: the agent is told
		return writeJSON(opencodeOutput{Context: reasonOf(a)})
	default:
		return o.EncodeFailure(reasonOf(a))
	}
}

func (opencode) EncodeFailure(reason string) Output {
	return withExit2(writeJSON(opencodeOutput{Deny: reason}), reason)
}
