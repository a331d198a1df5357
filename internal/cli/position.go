package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// WaitsForPerson reports whether the move has an open review.
func WaitsForPerson(r engine.AdvanceResult) bool {
	return r.Review != nil && r.Review.Status == record.ReviewOpen
}

// PrintCalls lists the open calls of other servers' tools and those whose outcome is unknown.
func PrintCalls(out *term.Terminal, calls []engine.CallSummary) {
	for _, c := range calls {
		if c.Unknown {
			out.Printf("unknown outcome of the call of %s by %s; a person decides: gavel review show %s\n", c.Tool, c.Principal, c.ReviewID)
			continue
		}
		out.Printf("a call of %s by %s is in progress, until %s at the latest\n", c.Tool, c.Principal, c.Deadline.UTC().Format(time.RFC3339))
	}
}

// PrintDecision prints the problems and suggestions, then the verdict and the layer that decided.
func PrintDecision(out *term.Terminal, d engine.Decision) {
	lines := d.Violations
	if len(lines) == 0 && d.Outcome != judge.Approve {
		lines = []string{d.Reasoning}
	}
	for _, line := range append(append(lines, d.Suggestions...), d.Warnings...) {
		out.Printf("  - %s\n", line)
	}
	verdict := map[judge.Outcome]string{judge.Approve: "approved", judge.Reject: "refused", judge.Escalate: "not decided"}[d.Outcome]
	out.Printf("%s by %s, confidence %s, assurance %s\n", out.Outcome(verdict), string(d.DecidedBy), judge.FormatConfidence(d.Confidence), string(d.Assurance))
}

// PrintPosition prints an instance's state and the command for each next action.
func PrintPosition(out *term.Terminal, p engine.Position, line func(engine.Position, workflow.NextAction) string) {
	state := fmt.Sprintf("in state %s", p.State)
	if p.Outcome != "" {
		state += " (" + p.Outcome + ")"
	}
	switch {
	case p.Complete:
		out.Printf("%s, complete\n", state)
		return
	case len(p.NextActions)+len(p.NextTools) == 0:
		out.Printf("%s, %s\n", state, string(p.Status))
		return
	}
	out.Printf("%s; next:\n", state)
	rows := [][]string{}
	for _, n := range p.Next {
		needs := ""
		for _, need := range n.Needs {
			needs = strings.TrimPrefix(needs+", asks ", ", ") + map[string]string{"evidence": "for evidence", "model": "a model", "person": "a person"}[string(need)]
		}
		rows = append(rows, []string{"  " + line(p, n), needs})
	}
	for _, tool := range p.NextTools {
		rows = append(rows, []string{"  " + tool, "a call of the tool"})
	}
	out.Table(rows)
}
