package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// judgingFlags select who judges a move: a server, or a store opened with its own model and evidence sources.
type judgingFlags struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions first, as the operator's: a file, a folder or a pattern. Repeatable."`
	placeFlags
	modelFlags
}

// open is placeFlags.open for commands that judge moves. A move that needs a person is parked until gavel review
// decides it. create makes a missing store.
func (f *judgingFlags) open(ctx context.Context, con *console, create bool) (operation.Caller, func(), error) {
	return f.placeFlags.open(ctx, con, func(ctx context.Context, con *console, _ storeFlag) (*system, error) {
		sys, err := f.openSystem(ctx, con, create)
		if err == nil && len(f.Definitions) > 0 {
			if err = loadDefinitions(ctx, con.log, sys.Engine, f.Definitions); err != nil {
				err = errors.Join(err, sys.Close())
			}
		}
		return sys, err
	})
}

// openSystem opens the store with the configured model and sources. It loads no definitions.
func (f *judgingFlags) openSystem(ctx context.Context, con *console, create bool) (*system, error) {
	flag := f.storeFlag
	if !create {
		path, err := flag.storePath(con.log, false)
		if err != nil {
			return nil, err
		}
		flag.Store = path
	}
	flags := systemFlags{storeFlag: flag, modelFlags: f.modelFlags}
	return flags.openEquipped(ctx, con, equipment{reviews: true})
}

func printStart(_ context.Context, con *console, a answer) error {
	r, _ := a.res.(engine.StartResult)
	if r.ID != "" {
		con.out.Printf("%s\n", r.ID)
		printPosition(con.out, r.Position, a.at.advanceLine)
	}
	printDecision(con.out, r.Decision)
	return nil
}

func printAdvance(_ context.Context, con *console, a answer) error {
	r, _ := a.res.(engine.AdvanceResult)
	printPosition(con.out, r.Position, a.at.advanceLine)
	switch {
	case waitsForPerson(r):
		con.out.Printf("it waits for a person: gavel review show %s\n", r.Review.ID)
	case r.Review != nil:
		con.out.Printf("it was put to a person: gavel review show %s\n", r.Review.ID)
	}
	printDecision(con.out, r.Decision)
	return nil
}

// waitsForPerson reports whether the move has an open review.
func waitsForPerson(r engine.AdvanceResult) bool {
	return r.Review != nil && r.Review.Status == record.ReviewOpen
}

func printStatus(_ context.Context, con *console, a answer) error {
	r, _ := a.res.(engine.StatusResult)
	printPosition(con.out, r.Position, a.at.advanceLine)
	printCalls(con.out, r.Calls)
	for _, review := range r.Reviews {
		if review.Status == record.ReviewResolved {
			con.out.Printf("%q was rejected by %s: %s (gavel review show %s)\n", review.Action, review.By, review.Reason, review.ID)
			continue
		}
		con.out.Printf("%q waits for a person: gavel review show %s\n", review.Action, review.ID)
	}
	return nil
}

// printCalls lists the open calls of other servers' tools and those whose outcome is unknown.
func printCalls(out *term.Terminal, calls []engine.CallSummary) {
	for _, c := range calls {
		if c.Unknown {
			out.Printf("whether %s was called, by %s, is for a person to say: gavel review show %s\n", c.Tool, c.Principal, c.ReviewID)
			continue
		}
		out.Printf("%s is being called by %s, at most until %s\n", c.Tool, c.Principal, c.Deadline.UTC().Format(time.RFC3339))
	}
}

// printDecision prints the problems and suggestions, then the verdict and the layer that decided.
func printDecision(out *term.Terminal, d engine.Decision) {
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

// advanceLine returns the command that performs an action, with "..." for each required data field.
func (f placeFlags) advanceLine(p engine.Position, n workflow.NextAction) string {
	line := "gavel advance " + p.ID + " " + n.Action
	if len(n.Requires) > 0 {
		data := map[string]any{}
		for _, field := range n.Requires {
			into, keys := data, strings.FieldsFunc(field, func(r rune) bool { return r == '/' || r == '.' })
			for _, key := range keys[:max(len(keys)-1, 0)] {
				next, ok := into[key].(map[string]any)
				if !ok {
					next = map[string]any{}
					into[key] = next
				}
				into = next
			}
			if len(keys) > 0 && into[keys[len(keys)-1]] == nil {
				into[keys[len(keys)-1]] = "..."
			}
		}
		text, _ := json.Marshal(data) // strings always marshal
		line += " --data '" + strings.ReplaceAll(string(text), "'", `'\''`) + "'"
	}
	return line + f.again()
}

// tryLine returns the line to type in gavel try for an action.
func tryLine(_ engine.Position, n workflow.NextAction) string {
	line := []string{n.Action}
	for _, field := range n.Requires {
		line = append(line, field+"=...")
	}
	return strings.Join(line, " ")
}

// printPosition prints an instance's state and the command for each next action.
func printPosition(out *term.Terminal, p engine.Position, line func(engine.Position, workflow.NextAction) string) {
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
