package main

import (
	"cmp"
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

// judgingFlags are what a command needs that has a move judged: a server, or a store with
// the model and the sources that the server has.
type judgingFlags struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions first, as the operator's: a file, a folder or a pattern. Repeatable."`
	placeFlags
	modelFlags
	notifyFlags
}

// open is placeFlags.open for moves. A move that needs a person waits: gavel review decides it.
// With create, the store is made where it is missing.
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

// openSystem opens the store with what the flags configure, and loads no definitions.
func (f *judgingFlags) openSystem(ctx context.Context, con *console, create bool) (*system, error) {
	flag := f.storeFlag
	if !create {
		path, err := flag.storePath(con.log, false)
		if err != nil {
			return nil, err
		}
		flag.Store = path
	}
	notifier, err := f.notifyFlags.open(con.log, true)
	if err != nil {
		return nil, err
	}
	flags := systemFlags{storeFlag: flag, modelFlags: f.modelFlags}
	return flags.openEquipped(ctx, con, equipment{reviews: true, notifier: notifier})
}

type startCmd struct {
	Workflow string `arg:"" name:"workflow" help:"The workflow's name."`
	Context  string `name:"context" default:"{}" placeholder:"JSON" help:"The start context, or @FILE."`
	Subject  string `name:"subject" placeholder:"TEXT" help:"What the instance is about; only one may be until it ends well."`
	Key      string `name:"idempotency-key" placeholder:"KEY" help:"The same call with the same key is answered and not repeated."`
	JSON     bool   `name:"json" help:"Print JSON."`
	judgingFlags
}

func (startCmd) Help() string {
	return `On the store's machine you are its operator (local:cli). The definitions are those of the
store, and of the configuration file where it names some.

Examples:

    gavel start document-review --config gavel.yaml
    gavel start document-review --context '{"documentId": "DOC-7"}'
    gavel start release --server https://gavel.example --token-file ~/.gavel-token

Exit codes: 0 started, 1 refused, 2 wrong usage, 3 could not find out.`
}

func (c *startCmd) Run(ctx context.Context, con *console) error {
	start, err := jsonArgument("--context", c.Context)
	if err != nil {
		return err
	}
	g, done, err := c.open(ctx, con, len(c.Definitions) > 0)
	if err != nil {
		return err
	}
	defer done()
	r, err := operation.Start.Do(ctx, g, engine.StartRequest{Type: c.Workflow, Context: start, Key: c.Key, Subject: c.Subject})
	if err != nil {
		return engineFailure(err)
	}
	err = con.print(c.JSON, r, func() {
		if r.ID != "" {
			con.out.Printf("%s\n", r.ID)
			printPosition(con.out, r.Position, c.advanceLine)
		}
		printReasons(con.out, r.Decision)
		printOutcome(con.out, r.Decision)
	})
	return cmp.Or(err, badUnless(r.ID != ""))
}

type advanceCmd struct {
	ID       string `arg:"" name:"id" help:"The instance: its id, or the beginning of it."`
	Action   string `arg:"" name:"action" help:"The action."`
	Data     string `name:"data" default:"{}" placeholder:"JSON" help:"The action's data, or @FILE."`
	Expected *int64 `name:"expected-revision" placeholder:"N" help:"Only if the instance is at this revision."`
	Key      string `name:"idempotency-key" placeholder:"KEY" help:"The same call with the same key is answered and not repeated."`
	JSON     bool   `name:"json" help:"Print JSON."`
	judgingFlags
}

func (advanceCmd) Help() string {
	return `The move is judged as a server would judge it: give the --config that the server has, and the
variables of its model. What only a person can decide waits: look at it, and decide it under
your own name, with gavel review. That is refused where notBy asks for another person.

Examples:

    gavel advance wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2 submit --data '{"documentId": "DOC-7", "reviewer": "ada"}'
    gavel advance wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2 approve --data @review.json --config gavel.yaml

Exit codes: 0 the move was made, 1 it was refused, or waits for a person, 2 wrong usage,
3 could not find out.`
}

func (c *advanceCmd) Run(ctx context.Context, con *console) error {
	data, err := jsonArgument("--data", c.Data)
	if err != nil {
		return err
	}
	g, done, err := c.open(ctx, con, false)
	if err != nil {
		return err
	}
	defer done()
	r, err := operation.Advance.Do(ctx, g, engine.AdvanceRequest{ID: c.ID, Action: c.Action, Data: data, ExpectedRevision: c.Expected, Key: c.Key})
	if err != nil {
		return badEnd(err, engine.CodeConflict, engine.CodeInstanceEnded, engine.CodeValuesDestroyed)
	}
	err = con.print(c.JSON, r, func() {
		printPosition(con.out, r.Position, c.advanceLine)
		switch {
		case waitsForPerson(r):
			con.out.Printf("it waits for a person: gavel review show %s\n", r.Review.ID)
		case r.Review != nil:
			con.out.Printf("it was put to a person: gavel review show %s\n", r.Review.ID)
		}
		printReasons(con.out, r.Decision)
		printOutcome(con.out, r.Decision)
	})
	return cmp.Or(err, badUnless(r.Decision.Applied))
}

// waitsForPerson reports whether the move waits for a person, and was not decided by one before.
func waitsForPerson(r engine.AdvanceResult) bool {
	return r.Review != nil && r.Review.Status == record.ReviewOpen
}

type statusCmd struct {
	ID   string `arg:"" name:"id" help:"The instance: its id, or the beginning of it."`
	JSON bool   `name:"json" help:"Print JSON."`
	placeFlags
}

func (statusCmd) Help() string {
	return `gavel instances show tells more, also of the past.

Examples:

    gavel status wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2
    gavel status wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2 --json | jq -r '.nextActions[]'`
}

func (c *statusCmd) Run(ctx context.Context, con *console) error {
	r, err := ask(ctx, con, c.placeFlags, operation.Status, operation.StatusRequest{ID: c.ID})
	if err != nil {
		return err
	}
	return con.print(c.JSON, r, func() {
		printPosition(con.out, r.Position, c.advanceLine)
		printCalls(con.out, r.Calls)
		for _, review := range r.Reviews {
			if review.Status == record.ReviewResolved {
				con.out.Printf("%q was rejected by %s: %s (gavel review show %s)\n", review.Action, review.By, review.Reason, review.ID)
				continue
			}
			con.out.Printf("%q waits for a person: gavel review show %s\n", review.Action, review.ID)
		}
	})
}

// printCalls says which calls of other servers' tools are open, and of which nobody knows the outcome.
func printCalls(out *term.Terminal, calls []engine.CallSummary) {
	for _, c := range calls {
		if c.Unknown {
			out.Printf("whether %s was called, by %s, is for a person to say: gavel review show %s\n", c.Tool, c.Principal, c.ReviewID)
			continue
		}
		out.Printf("%s is being called by %s, at most until %s\n", c.Tool, c.Principal, c.Deadline.UTC().Format(time.RFC3339))
	}
}

// printReasons says what was wrong, and what to do.
func printReasons(out *term.Terminal, d engine.Decision) {
	lines := d.Violations
	if len(lines) == 0 && d.Outcome != judge.Approve {
		lines = []string{d.Reasoning}
	}
	for _, line := range append(append(lines, d.Suggestions...), d.Warnings...) {
		out.Printf("  - %s\n", line)
	}
}

// printOutcome says what was decided, by which layer.
func printOutcome(out *term.Terminal, d engine.Decision) {
	verdict := map[judge.Outcome]string{judge.Approve: "approved", judge.Reject: "refused", judge.Escalate: "not decided"}[d.Outcome]
	out.Printf("%s by %s, confidence %s, assurance %s\n", out.Outcome(verdict), string(d.DecidedBy), judge.FormatConfidence(d.Confidence), string(d.Assurance))
}

// advanceLine is a command line that performs an action, with "..." for what its data require.
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
		text, _ := json.Marshal(data) // texts always marshal
		line += " --data '" + strings.ReplaceAll(string(text), "'", `'\''`) + "'"
	}
	return line + f.again()
}

// tryLine is what gavel try takes for an action.
func tryLine(_ engine.Position, n workflow.NextAction) string {
	line := []string{n.Action}
	for _, field := range n.Requires {
		line = append(line, field+"=...")
	}
	return strings.Join(line, " ")
}

// printPosition says where an instance stands, and what performs each next action.
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
