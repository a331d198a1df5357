package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

type judgeCmd struct {
	Doctor judgeDoctorCmd `cmd:"" help:"Find out whether the configured model works as a judge."`
	Show   judgeShowCmd   `cmd:"" help:"Print the exact prompt that a move would be judged with."`
	Decode judgeDecodeCmd `cmd:"" help:"Read one recorded answer of an endpoint as the judge would."`
	Clear  judgeClearCmd  `cmd:"" help:"Forget the refusals that the loop guard counts."`
}

// Help says what they are for.
func (judgeCmd) Help() string {
	return `The model is configured with LLM_BASE_URL, LLM_JUDGE_MODEL and LLM_API_KEY; docs/judge.md
has the rest.

Examples:

    LLM_JUDGE_MODEL=gpt-5-mini LLM_API_KEY=... gavel judge doctor
    gavel judge show flow.json --state reviewing --action approve --data '{"comments": "..."}'
    gavel judge decode exchange.json`
}

type judgeShowCmd struct {
	File     string `arg:"" name:"file" help:"The workflow definition; - reads stdin."`
	State    string `name:"state" required:"" placeholder:"STATE" help:"The state that the instance is in."`
	Action   string `name:"action" required:"" placeholder:"ACTION" help:"The action that is asked for."`
	Data     string `name:"data" default:"{}" placeholder:"JSON" help:"The action's data, or @FILE."`
	Context  string `name:"context" default:"{}" placeholder:"JSON" help:"The instance's context, or @FILE."`
	Evidence string `name:"evidence" default:"{}" placeholder:"JSON" help:"What the gate would have fetched, by name, or @FILE. Nothing is fetched."`
	Target   string `name:"target" placeholder:"STATE" help:"For an action with routes: the route to show. Default: the first."`
	JSON     bool   `name:"json" help:"Print the prompt as JSON."`
}

// Help shows examples.
func (judgeShowCmd) Help() string {
	return `Nothing is sent. Sensitive values are masked and long ones cut exactly as they would
be; the random marker and nonce are placeholders.

Examples:

    gavel judge show flow.yaml --state reviewing --action approve --data @review.json

Exit codes: 0 printed, 1 the definition is bad or the action is not legal there, 2 wrong usage.`
}

// Run prints the prompt.
func (c *judgeShowCmd) Run(_ context.Context, con *console) error {
	source, err := readSource(con, c.File)
	if err != nil {
		return err
	}
	data, err := jsonArgument("--data", c.Data)
	if err != nil {
		return err
	}
	state, err := jsonArgument("--context", c.Context)
	if err != nil {
		return err
	}
	question, err := caseFor(filepath.Base(c.File), source, c.State, c.Action, data, state)
	if err != nil {
		return err
	}
	fetched, err := jsonArgument("--evidence", c.Evidence)
	if err != nil {
		return err
	}
	if err := pretend(&question, fetched); err != nil {
		return err
	}
	if c.Target != "" {
		if err := chooseTarget(&question, c.Target); err != nil {
			return err
		}
	}
	prompt, err := judge.Show(question)
	if err != nil {
		return term.UsageErrorf("", "cannot make the prompt: %w", err)
	}
	if c.JSON {
		return con.out.JSON(map[string]any{
			"id": prompt.ID, "digest": prompt.Digest, "system": prompt.System, "user": prompt.User,
			"shape": prompt.Shape, "schema": prompt.Schema,
		})
	}
	out := con.out
	for _, part := range []struct{ title, text string }{
		{"=== system", prompt.System},
		{"=== user", prompt.User},
		{"=== appended to system where the endpoint does not enforce the schema", prompt.Shape},
	} {
		out.Printf("%s\n", out.Bold(part.title))
		for line := range strings.Lines(part.text) {
			out.Printf("%s\n", strings.TrimRight(line, "\n"))
		}
		out.Printf("\n")
	}
	out.Printf("%s\n", out.Dim(fmt.Sprintf("prompt %s, %s", prompt.ID, prompt.Digest)))
	if !question.Rubric.UseLLM {
		con.err.Printf("this action asks no model: useLLM is not set\n")
	}
	return nil
}

// caseFor builds the case of an action as the engine would for a fresh instance
// in that state.
func caseFor(name string, source []byte, state, action string, data, document json.RawMessage) (judge.Case, error) {
	def, err := workflow.Parse(name, source)
	if err != nil {
		return judge.Case{}, &term.Failure{Code: term.ExitBad, Err: err, Hint: "gavel lint says more"}
	}
	if def.States[state] == nil {
		return judge.Case{}, term.UsageErrorf("", "%s has no state %q", name, state)
	}
	c, err := def.Case(workflow.CaseInput{
		Operation: judge.Advance, Version: 1, Owner: operatorOwner, Instance: "wf-00000000-0000-7000-8000-000000000000",
		State: state, Action: action, Data: data, Context: document,
		Principal: localCLI.ID, Role: string(engine.RoleOperator), Now: time.Now(), Seed: 1,
	})
	if err != nil {
		return judge.Case{}, term.UsageErrorf("", "cannot build the case: %w", err)
	}
	if len(c.Illegal) > 0 {
		return judge.Case{}, &term.Failure{Code: term.ExitBad, Err: errors.New(c.Illegal[0].Message), Hint: c.Illegal[0].Hint}
	}
	return c, nil
}

func chooseTarget(c *judge.Case, target string) error {
	var known []string
	for _, next := range c.Candidates {
		if next.Target == target {
			c.Candidates = []judge.Candidate{next}
			return nil
		}
		known = append(known, next.Target)
	}
	return term.UsageErrorf("", "this action does not lead to %q; it leads to %s", target, strings.Join(known, ", "))
}
