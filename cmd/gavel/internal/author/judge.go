package author

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// Operations maps the words of each command that performs one operation to that operation.
var Operations = map[string]*cli.OperationSpec{
	"judge clear": {Operation: operation.ClearRefusals.Operation, Flags: map[string]string{"id": "instance"}},
}

// JudgeCommand has the commands that try the model.
type JudgeCommand struct {
	Doctor judgeDoctorCmd       `cmd:"" help:"Check whether the configured model works as a judge."`
	Show   judgeShowCmd         `cmd:"" help:"Print the exact prompt that a move would be judged with."`
	Decode judgeDecodeCmd       `cmd:"" help:"Read a recorded answer of an endpoint as the judge would."`
	Clear  cli.OperationCommand `cmd:"" help:"Forget the refusals that the loop guard counts."`
	cli.ModuleCommands
}

type judgeShowCmd struct {
	File     string `arg:"" name:"file" help:"The workflow definition; - reads stdin."`
	State    string `name:"state" required:"" placeholder:"STATE" help:"The state of the instance."`
	Action   string `name:"action" required:"" placeholder:"ACTION" help:"The requested action."`
	Data     string `name:"data" default:"{}" placeholder:"JSON" help:"The action's data, or @FILE."`
	Context  string `name:"context" default:"{}" placeholder:"JSON" help:"The instance's context, or @FILE."`
	Evidence string `name:"evidence" default:"{}" placeholder:"JSON" help:"The evidence by name, or @FILE. Nothing is fetched."`
	Target   string `name:"target" placeholder:"STATE" help:"For an action with routes: the route to show. Default: the first."`
	JSON     bool   `name:"json" help:"Print the prompt as JSON."`
}

func (c *judgeShowCmd) Run(_ context.Context, con *cli.Console) error {
	source := engine.DefineRequest{Source: filepath.Base(c.File)}
	var err error
	if c.File != "-" {
		source.Files = gavel.FilesBelow(filepath.Dir(c.File))
	}
	if source.Document, err = cli.ReadSource(con, c.File); err != nil {
		return err
	}
	data, err := cli.ReadJSONArgument("--data", c.Data)
	if err != nil {
		return err
	}
	state, err := cli.ReadJSONArgument("--context", c.Context)
	if err != nil {
		return err
	}
	question, err := caseFor(source, c.State, c.Action, data, state)
	if err != nil {
		return err
	}
	fetched, err := cli.ReadJSONArgument("--evidence", c.Evidence)
	if err != nil {
		return err
	}
	if err := SetEvidence(&question, fetched); err != nil {
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
		return con.Out.JSON(map[string]any{
			"id": prompt.ID, "digest": prompt.Digest, "system": prompt.System, "user": prompt.User, "shape": prompt.Shape, "schema": prompt.Schema,
		})
	}
	out := con.Out
	for _, part := range []struct{ title, text string }{
		{"=== system", prompt.System},
		{"=== user", prompt.User},
		{"=== appended to system if the endpoint does not enforce the schema", prompt.Shape},
	} {
		out.Printf("%s\n", out.Bold(part.title))
		for line := range strings.Lines(part.text) {
			out.Printf("%s\n", strings.TrimRight(line, "\n"))
		}
		out.Printf("\n")
	}
	out.Printf("%s\n", out.Dim(fmt.Sprintf("prompt %s, %s", prompt.ID, prompt.Digest)))
	if !question.Rubric.UseLLM {
		con.Err.Printf("this action asks no model: useLLM is not set\n")
	}
	return nil
}

// caseFor builds the case for an action as the engine would for a new instance in the given state.
func caseFor(source engine.DefineRequest, state, action string, data, document json.RawMessage) (judge.Case, error) {
	def, err := workflow.ParseWithFiles(source.Source, source.Document, source.Files)
	if err != nil {
		return judge.Case{}, &term.ExitError{Code: term.ExitBad, Err: err, Hint: "run gavel lint for details"}
	}
	if def.States[state] == nil {
		return judge.Case{}, term.UsageErrorf("", "%s has no state %q", source.Source, state)
	}
	c, err := def.Case(workflow.CaseInput{
		Operation: judge.Advance, Version: 1, Owner: cli.OperatorOwner, Instance: "wf-00000000-0000-7000-8000-000000000000",
		State: state, Action: action, Data: data, Context: document,
		Principal: gavel.Operator.ID, Role: string(engine.RoleOperator), Now: time.Now(), Seed: 1,
	})
	if err != nil {
		return judge.Case{}, term.UsageErrorf("", "cannot build the case: %w", err)
	}
	if len(c.Illegal) > 0 {
		return judge.Case{}, &term.ExitError{Code: term.ExitBad, Err: errors.New(c.Illegal[0].Message), Hint: c.Illegal[0].Hint}
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

// SetEvidence adds masked evidence to a case as if the gate had fetched it. It rejects evidence that the action
// does not request, because the model would never see it.
func SetEvidence(c *judge.Case, evidence json.RawMessage) error {
	doc, err := json.Marshal(map[string]json.RawMessage{"evidence": evidence})
	if err != nil {
		return term.UsageErrorf("", "--evidence: %w", err)
	}
	if c.Mask != nil {
		if doc, err = c.Mask(doc); err != nil {
			return term.UsageErrorf("", "--evidence: %w", err)
		}
	}
	var masked struct {
		Evidence map[string]json.RawMessage `json:"evidence"`
	}
	if err := json.Unmarshal(doc, &masked); err != nil {
		return term.UsageErrorf("", "--evidence cannot be shown: every value is sensitive")
	}
	for _, r := range c.Evidence {
		content, given := masked.Evidence[r.Name]
		if !given {
			continue
		}
		c.Fetched = append(c.Fetched, judge.Evidence{Name: r.Name, Source: r.Source, Required: r.Required, Content: content, Size: len(content)})
		delete(masked.Evidence, r.Name)
	}
	for name := range masked.Evidence {
		return term.UsageErrorf("", "--evidence: this action does not ask for the evidence %q", name)
	}
	return nil
}

type judgeDecodeCmd struct {
	File string `arg:"" name:"file" help:"A recorded exchange, as JSON; - reads stdin."`
}

func (c *judgeDecodeCmd) Run(_ context.Context, con *cli.Console) error {
	raw, err := cli.ReadSource(con, c.File)
	if err != nil {
		return err
	}
	x, err := parseExchange(raw)
	if err != nil {
		return term.UsageErrorf(`the form is {"status": 200, "headers": {...}, "body": "..."}`, "%s is not a recorded exchange: %w", c.File, err)
	}
	answer, lenient, err := llm.Decode(x)
	if failed, ok := errors.AsType[*llm.Error](err); ok {
		out := decodeFailure{Error: failed.Class, Status: failed.Status, Message: failed.Message, Advice: failed.Advice, Parameter: failed.Param}
		if failed.RetryAfter > 0 {
			out.RetryAfterMs = failed.RetryAfter.Milliseconds()
		}
		return errors.Join(con.Out.JSON(out), term.ErrBad)
	}
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	return con.Out.JSON(decodeVerdict{Answer: answer, Lenient: lenient})
}

type decodeVerdict struct {
	llm.Answer
	Lenient bool `json:"lenient"`
}

type decodeFailure struct {
	Error        llm.Class `json:"error"`
	Status       int       `json:"status,omitempty"`
	Message      string    `json:"message,omitempty"`
	Advice       string    `json:"advice,omitempty"`
	Parameter    string    `json:"parameter,omitempty"`
	RetryAfterMs int64     `json:"retryAfterMs,omitempty"`
}

// parseExchange parses an exchange leniently. Recordings of other tools have extra keys, headers in any case, and
// header values in lists.
func parseExchange(raw []byte) (llm.Exchange, error) {
	var in struct {
		Status  int                        `json:"status"`
		Headers map[string]json.RawMessage `json:"headers"`
		Body    *json.RawMessage           `json:"body"`
		Nonce   string                     `json:"nonce"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&in); err != nil {
		return llm.Exchange{}, err
	}
	if dec.More() {
		return llm.Exchange{}, errors.New("it holds more than one document; give a single exchange")
	}
	if in.Status < 100 || in.Status > 599 {
		return llm.Exchange{}, fmt.Errorf("status %d is not an HTTP status", in.Status)
	}
	if in.Body == nil {
		return llm.Exchange{}, errors.New("it has no body")
	}
	x := llm.Exchange{Status: in.Status, Headers: make(map[string]string, len(in.Headers)), Nonce: in.Nonce}
	if json.Unmarshal(*in.Body, &x.Body) != nil {
		x.Body = string(*in.Body) // the body is JSON, not a string
	}
	for name, value := range in.Headers {
		var one string
		var many []string
		switch {
		case json.Unmarshal(value, &one) == nil:
		case json.Unmarshal(value, &many) == nil && len(many) > 0:
			one = many[0]
		default:
			return llm.Exchange{}, fmt.Errorf("the header %q is not text", name)
		}
		x.Headers[strings.ToLower(name)] = one
	}
	return x, nil
}
