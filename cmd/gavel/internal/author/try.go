package author

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// tryLine returns the line to type in gavel try for an action.
func tryLine(_ engine.Position, n workflow.NextAction) string {
	line := []string{n.Action}
	for _, field := range n.Requires {
		line = append(line, field+"=...")
	}
	return strings.Join(line, " ")
}

// TryCommand plays a workflow in the terminal.
type TryCommand struct {
	File    string `arg:"" name:"file" help:"The definition's file."`
	Context string `name:"context" default:"{}" placeholder:"JSON" help:"The start context, or @FILE."`
	Role    string `name:"role" enum:"agent,reviewer,operator" default:"agent" placeholder:"ROLE" help:"Who you are: agent (the default), reviewer or operator."`
	cli.ConfigFlag
	cli.ModelFlags
}

// Help returns the detailed help.
func (TryCommand) Help() string {
	return `Type an action with its data. Every move is judged as a server would judge it, and nothing is
stored. The data are fields, or one JSON object:

    submit documentId=DOC-7 pages=3 title="A long one"
    submit {"documentId": "DOC-7", "pages": 3}

` + tryWords + `
Lines are read from stdin, so you can also play a file of moves.

Examples:

    gavel try flows/document-review.yaml
    gavel try flows/release.yaml --config gavel.yaml
    gavel try flows/review.yaml --context '{"documentId": "DOC-7"}' < moves.txt

Exit codes: 0 the input ended, 1 the definition is bad, 2 wrong usage, 3 could not find out.`
}

const moveWords = "    ACTION field=value ...      request an action\n"

const tryWords = `    :approve WHY, :reject WHY   decide the waiting move, as a person
    :context, :history          show the context, and the decisions so far
    :start {...}                start again, with a start context
    :as ROLE                    act as an agent, a reviewer or an operator
    :help (or ?), :quit
`

// player plays one workflow in a temporary store.
type player struct {
	con      *cli.Console
	engine   *engine.Engine
	workflow string
	who      engine.Principal
	id       string // of the instance; "" until the start is approved
	drawn    int64  // the revision that was drawn last
}

// Run starts the workflow in memory and reads moves from stdin.
func (c *TryCommand) Run(ctx context.Context, con *cli.Console) error {
	start, err := cli.ReadJSONArgument("--context", c.Context)
	if err != nil {
		return err
	}
	flags := cli.SystemFlags{StoreFlag: cli.StoreFlag{ConfigFlag: c.ConfigFlag, Store: gavel.Memory}, ModelFlags: c.ModelFlags}
	sys, err := flags.OpenEquipped(ctx, con, cli.SystemOptions{Reviews: true})
	if err != nil {
		return err
	}
	defer sys.Close()
	if !cli.IsFile(c.File) {
		return term.UsageErrorf("name a definition's file, such as flows/document-review.yaml", "%s is not a file", c.File)
	}
	defined, bad, err := cli.DefineFile(ctx, con.Log, sys.Engine, c.File, cli.ReadDefinition, map[string]string{})
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		return &term.ExitError{Code: term.ExitBad, Lines: bad, Err: errors.New("the workflow cannot be played")}
	}
	for _, w := range defined.Warnings {
		if w.Rule == cli.RuleNoModel { // the others are in the log
			con.Err.Printf("%s\n", cli.IssueLine(c.File, w))
		}
	}
	p := &player{con: con, engine: sys.Engine, workflow: defined.Name}
	p.become(engine.Role(c.Role))
	p.con.Out.Text(moveWords + tryWords + "\n")
	if err := p.start(ctx, start); err != nil {
		return cli.EngineFailure(err)
	}
	return p.play(ctx)
}

func (p *player) become(role engine.Role) {
	p.who = engine.Principal{ID: "local:" + string(role), Role: role}
}

// play executes each line of stdin until it ends or :quit.
func (p *player) play(ctx context.Context) error {
	return p.con.Converse(ctx, "> ", func(line string) (bool, error) {
		word, rest, _ := strings.Cut(line, " ")
		if word == ":quit" {
			return true, nil
		}
		if err := p.do(ctx, word, strings.TrimSpace(rest)); err != nil {
			known, ok := errors.AsType[*engine.Error](err)
			if !ok || ctx.Err() != nil {
				return true, cli.EngineFailure(err)
			}
			p.con.Out.Printf("%s\n", known.Error())
		}
		return false, nil
	})
}

// do executes one line. An engine.Error is the player's mistake.
func (p *player) do(ctx context.Context, word, rest string) error {
	switch word {
	case "":
		return nil
	case ":help", "help", "?":
		if word == ":help" || !p.hasAction(ctx, word) {
			p.con.Out.Text(moveWords + tryWords)
			return nil
		}
	case ":as":
		if role := engine.Role(rest); role == engine.RoleAgent || role == engine.RoleReviewer || role == engine.RoleOperator {
			p.become(role)
			return nil
		}
		p.con.Out.Printf("the role must be agent, reviewer or operator\n")
		return nil
	}
	data, err := readMoveData(rest)
	if err != nil && word != ":approve" && word != ":reject" {
		p.con.Out.Printf("cannot read the data: %v; write field=value ..., or a JSON object\n", err)
		return nil
	}
	if word == ":start" || p.id == "" && !strings.HasPrefix(word, ":") {
		if word != ":start" {
			p.con.Out.Printf("the start was refused; use :start with a context, such as :start field=value\n")
			return nil
		}
		return p.start(ctx, data)
	}
	switch word {
	case ":approve", ":reject":
		return p.resolve(ctx, judge.Outcome(word[1:]), rest)
	case ":context":
		s, err := p.engine.Status(ctx, p.who, p.id)
		if err != nil {
			return err
		}
		return p.con.Out.JSON(s.Context)
	case ":history":
		all, err := engine.ReadWholeHistory(ctx, p.engine, p.who, p.id)
		if err != nil {
			return err
		}
		p.con.Out.Table(cli.DecisionRows(all))
		return nil
	}
	if strings.HasPrefix(word, ":") {
		p.con.Out.Printf("unknown command %s; :help lists the commands\n", word)
		return nil
	}
	r, err := p.engine.Advance(ctx, p.who, engine.AdvanceRequest{ID: p.id, Action: word, Data: document.ReadTrusted(data)})
	if err != nil {
		return err
	}
	cli.PrintDecision(p.con.Out, r.Decision)
	if cli.WaitsForPerson(r) {
		p.con.Out.Printf("it waits for a person; decide with :approve WHY or :reject WHY\n")
	}
	return p.show(ctx, r.Position)
}

// show prints a position, after a drawing if the instance has moved.
func (p *player) show(ctx context.Context, at engine.Position) error {
	if at.Revision != p.drawn {
		p.drawn = at.Revision
		drawn, err := p.engine.Diagram(ctx, p.who, engine.DiagramRequest{ID: p.id, Format: "text"})
		if err != nil {
			return err
		}
		p.con.Out.Text(drawn.Diagram)
	}
	cli.PrintPosition(p.con.Out, at, tryLine)
	return nil
}

// hasAction reports whether the current state has an action of this name.
func (p *player) hasAction(ctx context.Context, name string) bool {
	s, err := p.engine.Status(ctx, p.who, p.id)
	return err == nil && slices.Contains(s.NextActions, name)
}

func (p *player) start(ctx context.Context, data json.RawMessage) error {
	r, err := p.engine.Start(ctx, p.who, engine.StartRequest{Type: p.workflow, Context: data})
	if err != nil {
		return err
	}
	if p.id = r.ID; p.id == "" {
		cli.PrintDecision(p.con.Out, r.Decision)
		return nil
	}
	p.drawn = 0
	return p.show(ctx, r.Position)
}

// resolve decides the first open review of the instance.
func (p *player) resolve(ctx context.Context, decision judge.Outcome, why string) error {
	open, err := p.engine.Reviews(ctx, gavel.Operator, engine.ReviewsRequest{Instance: p.id, Status: "open"})
	if err != nil {
		return err
	}
	if len(open.Reviews) == 0 {
		p.con.Out.Printf("nothing waits for a person\n")
		return nil
	}
	r, err := p.engine.Resolve(ctx, engine.Principal{ID: "local:person", Role: engine.RoleReviewer}, engine.ResolveRequest{ID: open.Reviews[0].ID, Decision: decision, Reason: why})
	if err != nil {
		return err
	}
	p.con.Out.Printf("%s\n", r.Message)
	s, err := p.engine.Status(ctx, p.who, p.id)
	if err != nil {
		return err
	}
	return p.show(ctx, s.Position)
}

// fieldPattern matches one field=value. The value is bare, or a quoted JSON string.
var fieldPattern = regexp.MustCompile(`^([^\s=]+)=("(?:[^"\\]|\\.)*"|\S*)(?:\s+|$)`)

// readMoveData parses a JSON object, or fields. Bare values that are valid JSON are used as JSON.
func readMoveData(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "{") {
		return workflow.CheckDocument(json.RawMessage(text))
	}
	out := "{"
	for text != "" {
		m := fieldPattern.FindStringSubmatch(text)
		if m == nil {
			return nil, errors.New("expected field=value, with spaces in quotes: field=\"two words\"")
		}
		text = text[len(m[0]):]
		name, _ := json.Marshal(m[1]) // strings always marshal
		value := []byte(m[2])
		if !json.Valid(value) {
			value, _ = json.Marshal(m[2])
		}
		if out != "{" {
			out += ","
		}
		out += string(name) + ":" + string(value)
	}
	return workflow.CheckDocument(json.RawMessage(out + "}"))
}
