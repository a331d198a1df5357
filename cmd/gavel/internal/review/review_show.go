package review

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

func printReview(ctx context.Context, con *cli.Console, a cli.Answer) error {
	view, _ := a.Result.(engine.ReviewView)
	definition, err := operation.Describe.Do(ctx, a.Caller, engine.DescribeRequest{Name: view.Workflow, Version: view.Position.Version})
	if err != nil {
		return cli.EngineFailure(err)
	}
	past, err := readReviewPast(ctx, a.Caller, view)
	if err != nil {
		return err
	}
	p := reviewPage{con.Out, view, definition.DefinitionSummary, past}
	p.printRequest()
	p.reasons()
	p.layers()
	p.criteria()
	p.document("data", view.Data)
	p.document("context", view.Context)
	p.evidence()
	p.path()
	p.decide(a.Target.FormatFlags(), a.Target.Server == "")
	return nil
}

// reviewPage prints a review for the person who decides it.
type reviewPage struct {
	out *term.Terminal
	engine.ReviewView
	definition engine.DefinitionSummary
	past       reviewPast
}

func (p reviewPage) title(text string) { p.out.Printf("\n%s\n", p.out.Bold(text)) }

func (p reviewPage) printRequest() {
	rows := [][]string{
		{"review", p.ID},
		{"status", cli.DescribeEnd(p.ReviewSummary)},
		{"asked", p.describeRequest()},
		{"requested by", fmt.Sprintf("%s (%s)", p.RequestedBy, p.Escalation.Role)},
		{"workflow", fmt.Sprintf("%s v%d, defined by %s", p.Workflow, p.Position.Version, p.author())},
		{"instance", p.Instance},
		{"current state", fmt.Sprintf("%s, revision %d; asked at revision %d", p.Position.State, p.Position.Revision, p.Revision)},
		{"priority", string(p.Priority)},
		{"waiting since", p.formatMoment(p.ParkedAt)},
		{"expires", p.expiry()},
	}
	if !p.ClosedAt.IsZero() {
		rows = append(rows, []string{"closed", cli.FormatTime(p.ClosedAt)})
	}
	if p.Channel != "" {
		rows = append(rows, []string{"through", string(p.Channel)})
	}
	p.out.Table(rows)
	p.printText("meaning, from the definition", p.Description)
	p.printText("reason", p.Reason)
}

func (p reviewPage) describeRequest() string {
	if p.EndedEarly {
		return fmt.Sprintf("the agent ended early, in %s; the workflow continues if the agent comes back", p.From)
	}
	return fmt.Sprintf("%q, from %s to %s", p.Action, p.From, term.OrNone(p.Target))
}

// formatMoment formats a time. On a terminal it adds the distance from now.
func (p reviewPage) formatMoment(at time.Time) string {
	if !p.out.IsTerminal() {
		return cli.FormatTime(at)
	}
	return fmt.Sprintf("%s (%s)", cli.FormatTime(at), cli.FormatDistance(at, time.Now()))
}

func (p reviewPage) expiry() string {
	if p.ExpiresAt.IsZero() {
		return cli.DescribeExpiry(p.ReviewSummary)
	}
	return p.formatMoment(p.ExpiresAt)
}

// author names the owner of the definition and notes whether it is an operator.
func (p reviewPage) author() string {
	if p.definition.Operator {
		return p.definition.Owner + " (operator)"
	}
	return p.definition.Owner + " (no operator)"
}

func (p reviewPage) printText(name, text string) {
	if text != "" {
		p.out.Printf("%s\n", name)
		p.quote(text)
	}
}

func (p reviewPage) reasons() {
	d := p.Escalation
	p.title("why a person is asked")
	p.out.Table([][]string{
		{"decided by", string(d.DecidedBy)},
		{"code", term.OrNone(d.Code)},
		{"confidence", judge.FormatConfidence(d.Confidence)},
		{"assurance", string(d.Assurance)},
		{"without policy", string(d.Proposed)},
	})
	p.quote(d.Reasoning)
	for _, f := range d.Findings {
		if f.Path == "" && strings.Contains(d.Reasoning, f.Message) {
			continue // already printed
		}
		line := fmt.Sprintf("[%s] ", f.Code)
		if f.Path != "" {
			line += f.Path + ": "
		}
		p.quote(line + f.Message)
	}
	for _, warning := range d.Warnings {
		p.quote("warning: " + warning)
	}
}

func (p reviewPage) layers() {
	rows := [][]string{{"LAYER", "SAYS", "CONFIDENCE", "ASSURANCE", "TOOK"}}
	var because []string
	for _, op := range p.Escalation.Opinions {
		if op.Outcome == "" {
			continue // it did not check anything
		}
		rows = append(rows, []string{
			string(op.Layer), string(op.Outcome), judge.FormatConfidence(op.Confidence), string(op.Assurance), term.ShortDuration(op.Took.Duration()),
		})
		if op.Reasoning != "" { // on one line, so that no layer can imitate another
			because = append(because, fmt.Sprintf("%s: %s", op.Layer, term.Clean(term.Truncate(op.Reasoning, 200))))
		}
	}
	if len(rows) > 1 {
		p.title("the layers' opinions")
		p.out.Table(rows)
		p.printText("because", strings.Join(because, "\n"))
	}
}

// criteria prints the model's result for each criterion, or the criteria alone if no model judged them.
func (p reviewPage) criteria() {
	judged := false
	for _, op := range p.Escalation.Opinions {
		if op.Model == nil || len(op.Model.Criteria) == 0 {
			continue
		}
		judged = true
		p.votes(op.Model.Votes)
		p.title("criteria, as the model " + op.Model.Model + " judged them")
		for _, c := range op.Model.Criteria {
			p.out.Printf("%s\n", p.out.Bold(c.ID+" "+c.Status))
			p.quote(c.Text)
			if c.Evidence != "" {
				p.printText("quoted, "+basisOf(c.Basis), c.Evidence)
			}
			p.printText("why", c.Why)
			p.printText("in its words", c.Says)
		}
	}
	if judged || len(p.Criteria) == 0 {
		return
	}
	p.title("criteria; no model has judged them")
	for i, c := range p.Criteria {
		p.quote(fmt.Sprintf("c%d %s", i+1, c))
	}
}

// votes prints the result of each model of a panel.
func (p reviewPage) votes(all []judge.Vote) {
	if len(all) == 0 {
		return
	}
	rows := [][]string{{"MODEL", "SAYS", "CONFIDENCE", "ASSURANCE", "TOOK"}}
	for _, v := range all {
		rows = append(rows, []string{v.Model, cmp.Or(string(v.Trouble), string(v.Outcome)), judge.FormatConfidence(v.Confidence), string(v.Assurance), term.ShortDuration(v.Took.Duration())})
	}
	p.title("each model's opinion")
	p.out.Table(rows)
}

func basisOf(basis string) string {
	switch basis {
	case judge.BasisEvidence:
		return "fetched by the gate"
	case judge.BasisClaim:
		return "the agent's claim"
	default:
		return "does not count"
	}
}

// Limits for data and context; --json shows everything.
const (
	shownLines = 200
	shownBytes = 16 << 10
)

func (p reviewPage) document(title string, raw json.RawMessage) {
	p.title(title)
	text := term.IndentJSON(raw)
	shown := text
	if len(shown) > shownBytes {
		shown = strings.ToValidUTF8(shown[:shownBytes], "")
	}
	if lines := strings.SplitAfterN(shown, "\n", shownLines+1); len(lines) > shownLines {
		shown = strings.Join(lines[:shownLines], "")
	}
	p.out.PrintBlock(shown)
	if rest := len(text) - len(shown); rest > 0 {
		p.out.Printf("... %d more bytes; gavel review show %s --json shows all\n", rest, p.ID)
	}
}

func (p reviewPage) evidence() {
	for _, e := range p.Escalation.Evidence {
		p.title("evidence " + e.Name + ", fetched by the gate")
		rows := [][]string{{"source", e.Source}}
		if len(e.Arguments) > 0 && string(e.Arguments) != "{}" {
			rows = append(rows, []string{"arguments", string(e.Arguments)})
		}
		rows = append(rows, []string{"required", cli.FormatBool(e.Required)}, []string{"fetched", fmt.Sprintf("%s, took %s", cli.FormatTime(e.At), term.ShortDuration(e.Took.Duration()))})
		if e.Failure != "" {
			p.out.Table(append(rows, []string{"failed", string(e.Failure) + ": " + e.Detail}))
			continue
		}
		if e.Tree != "" {
			rows = append(rows, []string{"tree", e.Tree})
		}
		p.out.Table(append(rows, cli.SizeRows(e.Size, e.Truncated, e.Digest)...))
		if e.Content == nil {
			p.out.Printf("its content is no longer kept\n")
			continue
		}
		p.out.PrintContent(e.Content)
	}
}

func (p reviewPage) decide(more string, local bool) {
	if p.Status != record.ReviewOpen {
		p.title("it is closed")
		p.out.Printf("%s\n", p.Next)
		return
	}
	config := ""
	if len(p.Escalation.Evidence) > 0 && local {
		config = " --config FILE"
	}
	p.title("to decide")
	if p.Kind != "" {
		p.decideStep(more)
		return
	}
	p.out.Printf("gavel review approve %s --reason '...'%s%s\n", p.ID, config, more)
	p.out.Printf("gavel review reject %s --reason '...'%s\n", p.ID, more)
}

// decideStep prints the commands that resolve a chain's step.
func (p reviewPage) decideStep(more string) {
	happened, not := "it happened and returned JSON (null for nothing)", "it did not happen; the run repeats the call"
	if p.Kind == "input" {
		happened, not = "give JSON, the content of the form", "decline"
	}
	for _, way := range [][2]string{
		{happened, "approve " + p.ID + " --output JSON"},
		{not, "reject " + p.ID},
		{"give up; the step fails, and with it the run, unless the chain handles that", "give-up " + p.ID},
	} {
		p.out.Printf("%s:\n    gavel review %s --reason '...'%s\n", way[0], way[1], more)
	}
}

// quote prints a sentence from an untrusted author.
func (p reviewPage) quote(text string) {
	if text != "" {
		p.out.PrintBlock(text)
	}
}
