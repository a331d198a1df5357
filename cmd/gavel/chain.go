package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

type chainCmd struct {
	Lint        chainLintCmd        `cmd:"" help:"Check definitions of chains."`
	Graph       chainGraphCmd       `cmd:"" help:"Draw a chain."`
	Run         chainRunCmd         `cmd:"" help:"Run a chain to its end here, and show its steps."`
	Start       chainStartCmd       `cmd:"" help:"Start a run of a chain in a server."`
	List        chainListCmd        `cmd:"" help:"List runs, newest first; or the chains."`
	Show        chainShowCmd        `cmd:"" help:"Show a run: its steps, what it waits for, what it gave."`
	Signal      chainSignalCmd      `cmd:"" help:"Give a value to a run that waits for a signal."`
	Cancel      chainCancelCmd      `cmd:"" help:"End a run for good."`
	CancelEntry chainCancelEntryCmd `cmd:"" name:"cancel-entry" help:"Free an instance whose state waits for a chain that never ran."`
	Pause       chainPauseCmd       `cmd:"" help:"Stop a run before its next step."`
	Resume      chainResumeCmd      `cmd:"" help:"Let a paused run go on."`
	Redrive     chainRedriveCmd     `cmd:"" help:"Run a failed run again from the step that failed."`
}

func (chainCmd) Help() string {
	return `A chain is steps across MCP servers: tools, resources and prompts, in sequence, in parallel
or in loops, with what one step gave passed on to the next.

gavel chain run needs no server. The other commands are about the runs of a server: with
--server it is asked, and you see what your token lets you see; on the store's machine you are
its operator (local:cli). A call of which it is not known whether it happened is a review: see
gavel review.`
}

// chainFlags say what a chain may call.
type chainFlags struct {
	Repeatable []string `name:"repeatable" placeholder:"SERVER/TOOL" sep:"none" help:"A tool that may run twice, in addition to those of the configuration: a call whose answer was lost is made again. Repeat for several."`
	configFlag
	settings *chain.Settings // the section chains of the configuration, nil for none
}

func (f chainFlags) isRepeatable(server, tool string) bool {
	return f.settings.IsRepeatable(server, tool) || slices.Contains(f.Repeatable, server+"/"+tool)
}

// openServers opens the upstreams of the configuration file; without one there are none, and what
// is pinned is unknown.
func (f *chainFlags) openServers() (*upstream.Manager, map[string]chain.ServerItems, error) {
	if f.Config == "" {
		return nil, nil, nil
	}
	file, err := config.Load(f.Config)
	if err != nil {
		return nil, nil, badConfig(err)
	}
	if f.settings, err = chain.ParseSettings(file.Section(config.SectionChains)); err != nil {
		return nil, nil, badConfig(err)
	}
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		return nil, nil, badConfig(err)
	}
	opts := upstream.Options{Watcher: thisProgram(), Version: readBuild().Version}
	if opts.Gates, err = gate.ParseConfig(file.Section(config.SectionGates)); err != nil {
		return nil, nil, badConfig(err)
	}
	if opts.Pins, err = upstream.LoadPins(upstream.PinsPath(f.Config)); err != nil {
		return nil, nil, term.UsageErrorf("", "%w", err)
	}
	servers, err := upstream.Open(declared, opts)
	if err != nil {
		return nil, nil, badConfig(err)
	}
	items := listPinned(declared, opts.Pins)
	hideSecrets()
	return servers, items, nil
}

// parseChain reads a definition; the error is a *workflow.ParseError where it is none.
func parseChain(path string) (*chain.Definition, error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	return chain.Parse(path, doc)
}

type chainLintCmd struct {
	Files  []string `arg:"" name:"file" help:"Definition files, folders or patterns."`
	Strict bool     `name:"strict" help:"Fail on warnings too."`
	JSON   bool     `name:"json" help:"Print JSON."`
	chainFlags
}

func (chainLintCmd) Help() string {
	return `Nothing is printed when all is well. With --config, servers that are not declared and tools
and prompts that are not pinned are reported too. Nothing is started.

Examples:

    gavel chain lint check-site.json
    gavel chain lint --strict --config gavel.yaml chains/   # every .json, .yaml and .yml in it
    gavel chain lint --json check-site.json | jq '.files[].issues[].rule'

Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 wrong usage.`
}

func (c *chainLintCmd) Run(con *console) error {
	files, err := definitionFiles(c.Files)
	if err != nil {
		return err
	}
	servers, items, err := c.openServers()
	if err != nil {
		return err
	}
	defer servers.Close()
	report := lintReport{Files: []lintFile{}}
	for _, path := range files {
		f := lintFile{File: path, Issues: []workflow.Issue{}, Schemas: []workflow.SchemaPlace{}}
		d, err := parseChain(path)
		if wrong, ok := errors.AsType[*workflow.ParseError](err); ok {
			f.Issues = wrong.Issues
		} else if err != nil {
			return err
		} else {
			f.Name, f.Hash = d.Name, d.Hash
			f.Issues = append(f.Issues, d.Lint(chain.LintOptions{Servers: items, Writer: c.settings.Writer, Now: time.Now(), Flags: c.again()})...)
		}
		report.Files = append(report.Files, f)
	}
	return report.finish(con, c.Strict, c.JSON, false)
}

type chainGraphCmd struct {
	File   string `arg:"" name:"file" help:"A definition file."`
	Format string `name:"format" enum:"mermaid,dot" default:"mermaid" placeholder:"FORMAT" help:"What to write: mermaid, the default, or dot."`
}

func (chainGraphCmd) Help() string {
	return `Examples:

    gavel chain graph check-site.json
    gavel chain graph check-site.json --format dot | dot -Tsvg > chain.svg`
}

func (c *chainGraphCmd) Run(con *console) error {
	d, err := parseChain(c.File)
	if err != nil {
		return parseError(c.File, "chain", err)
	}
	var b strings.Builder
	if c.Format == "dot" {
		err = d.WriteDOT(&b)
	} else {
		err = d.WriteMermaid(&b)
	}
	con.out.Text(b.String())
	return err
}

type chainRunCmd struct {
	File   string   `arg:"" name:"file" help:"A definition file."`
	Input  string   `name:"input" placeholder:"JSON" help:"Values of variables.input, as a JSON object."`
	State  string   `name:"state" placeholder:"FILE" help:"Keep runs in this file: one that was interrupted goes on with --run. Default: a temporary file."`
	ID     string   `name:"run" placeholder:"ID" help:"The id of the run. With --state, one that was interrupted goes on in the step that it was in."`
	Answer []string `name:"answer" placeholder:"STEP=ANSWER" sep:"none" help:"What became of a call whose answer was lost: STEP=happened, STEP=again or STEP=give-up."`
	JSON   bool     `name:"json" help:"Print JSON."`
	chainFlags
	modelFlags
}

func (chainRunCmd) Help() string {
	return `No server of gavel is needed. The steps are shown on standard error as they happen, the
result is printed at the end. Tools, resources and prompts are called through the upstreams of
--config, as far as they are pinned and allowed there; a tool behind a gate is refused, because
its workflow is in a store. A step with complete asks the model that LLM_JUDGE_MODEL names, or one
of --llm-also.

With --state a run survives a kill: the same command goes on in the step that it was in, with the
definition that it was started with. A call that may have been done is made again only if
--repeatable names its tool; else you are asked, and answer with --answer.

Examples:

    gavel chain run check-site.json --config gavel.yaml --input '{"site_url": "https://example.com"}'
    gavel chain run pay.yaml --config gavel.yaml --state chains.db --run invoice-7
    gavel chain run pay.yaml --config gavel.yaml --state chains.db --run invoice-7 --answer pay=happened

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a call may or may not have been done.`
}

func (c *chainRunCmd) Run(ctx context.Context, con *console) error {
	if c.ID != "" && c.State == "" {
		return term.UsageErrorf("give both", "--run needs --state, which keeps the runs")
	}
	d, err := parseChain(c.File)
	if err != nil {
		return parseError(c.File, "chain", err)
	}
	servers, items, err := c.openServers()
	if err != nil {
		return err
	}
	defer servers.Close()
	if items == nil {
		items = map[string]chain.ServerItems{}
	}
	models, err := c.modelFlags.open(con.log)
	if err != nil {
		return err
	}
	defer models.Close()
	completer, err := models.completer()
	if err != nil {
		return err
	}
	if err := c.check(con, d, items, models.names()); err != nil {
		return err
	}
	if _, err := d.CheckInput(json.RawMessage(c.Input)); err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	if err := checkAnswers(d, c.Answer); err != nil {
		return err
	}
	box, err := newSandbox(con.log)
	if err != nil {
		return err
	}
	defer box.Close()
	path := c.State
	if path == "" {
		folder, err := os.MkdirTemp("", "gavel-chain-")
		if err != nil {
			return term.UnknownErrorf("", "%w", err)
		}
		defer func() { _ = os.RemoveAll(folder) }()
		path = filepath.Join(folder, "chains.db")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &chainShow{lines: newStepLines(con.err), ask: cancel, answers: c.Answer}
	defer s.lines.close()
	runs, err := chain.Open(ctx, chain.Config{
		Path: path, Effects: chain.Door{Upstreams: servers, Scripts: box.Pool, Models: completer}, Progress: s.show, Asked: s.asked,
		Writer:     c.settings.Writer,
		Repeatable: func(server, tool string) bool { return c.isRepeatable(server, tool) || servers.IsGated(server, tool) },
	})
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	defer runs.Close()
	run, err := runs.Start(ctx, chain.StartRequest{Run: c.ID, Definition: d, Input: json.RawMessage(c.Input), Principal: localCLI})
	if err != nil {
		return engineFailure(err)
	}
	if err := c.warnChanged(ctx, con, runs, run, d); err != nil {
		return err
	}
	result, err := runs.Wait(ctx, run)
	s.lines.close()
	if question, ok := errors.AsType[*lostAnswerError](context.Cause(ctx)); ok {
		return term.UnknownErrorf(question.hint(), "%w", question)
	}
	if ctx.Err() != nil && c.State != "" {
		return term.UnknownErrorf("it goes on with: "+c.resumeCommand(con, run), "interrupted")
	}
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	return c.print(con, run, result)
}

// warnChanged says that a run goes on with another definition than the file has now.
func (c *chainRunCmd) warnChanged(ctx context.Context, con *console, runs *chain.Runs, run string, d *chain.Definition) error {
	kept, err := runs.ReadDefinition(ctx, run)
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	if kept.Hash != d.Hash {
		con.err.Printf("%s: warning: the run %s keeps the definition that it was started with, which was another\n", c.File, run)
	}
	return nil
}

// resumeCommand is the command line with which a run goes on.
func (c *chainRunCmd) resumeCommand(con *console, run string) string {
	words := []string{"gavel"}
	for _, arg := range con.args {
		words = append(words, shellWord(arg))
	}
	if c.ID == "" {
		words = append(words, "--run", shellWord(run))
	}
	return strings.Join(words, " ")
}

// check refuses what cannot work, and what this command has nothing for.
func (c *chainRunCmd) check(con *console, d *chain.Definition, items map[string]chain.ServerItems, models []string) error {
	var wrong []string
	for _, issue := range d.Lint(chain.LintOptions{Servers: items, Models: append([]string{}, models...), Writer: c.settings.Writer, Flags: c.again()}) {
		if issue.Severity == workflow.SeverityError {
			wrong = append(wrong, issueLine(c.File, issue))
		} else {
			con.err.Printf("%s\n", issueLine(c.File, issue))
		}
	}
	for _, s := range d.ListSteps() {
		if s.Kind == chain.KindWorkflow || s.Signal != "" || s.Review != nil {
			wrong = append(wrong, fmt.Sprintf("%s: the step %q needs a server of gavel: it moves a workflow, or waits for a signal or a review", c.File, s.ID))
		}
	}
	if len(wrong) > 0 {
		return &term.ExitError{Code: term.ExitUsage, Err: errors.New("the chain cannot run"), Lines: wrong}
	}
	return nil
}

func (c *chainRunCmd) print(con *console, run string, r *chain.Result) error {
	err := con.print(c.JSON, map[string]any{"run": run, "output": r.Output, "error": r.Err}, func() {
		if raw, err := json.MarshalIndent(r.Output, "", "  "); err == nil && len(r.Output) > 0 {
			con.out.Text(string(raw) + "\n")
		}
	})
	if err != nil || r.Err == nil {
		return err
	}
	if c.JSON {
		return term.ErrBad
	}
	return &term.ExitError{Code: term.ExitBad, Err: errors.New(explainFailure(chain.RunError{Step: r.Err.Step, Code: r.Err.Code, Message: r.Err.Message}))}
}

// chainShow shows what happens to the steps of a run, and stops at a call that may have been done.
type chainShow struct {
	lines   *stepLines
	ask     context.CancelCauseFunc
	answers []string
}

func (s *chainShow) show(_ string, p chain.Progress) {
	switch p.Event {
	case "started":
		s.lines.started(p.Key)
	case "retrying":
		s.lines.say(p.Event, fmt.Sprintf("%s, attempt %d", p.Key, p.Attempt), p.Err.Message)
	default:
		s.lines.ended(p.Event, p.Key, p.Err.View())
	}
}

// lostAnswerError is a call of which it is not known whether it was done.
type lostAnswerError struct{ chain.Command }

func (l *lostAnswerError) Error() string {
	return fmt.Sprintf("it is not known whether %s/%s was done: gavel was stopped while the step %q called it", l.Server, l.Name, l.Step)
}

func (l *lostAnswerError) hint() string {
	return fmt.Sprintf("look at the server, and run this again with --answer %s=happened, --answer %s=again or --answer %s=give-up", l.Step, l.Step, l.Step)
}

// asked says what the flags say became of a call; where they do not, it stops the program.
func (s *chainShow) asked(c chain.Command) (answer string, known bool) {
	for _, given := range s.answers {
		if step, what, _ := strings.Cut(given, "="); step == c.Step {
			return what, true
		}
	}
	s.ask(&lostAnswerError{c})
	return "", false
}

// checkAnswers holds --answer to its form.
func checkAnswers(d *chain.Definition, answers []string) error {
	for _, given := range answers {
		step, what, _ := strings.Cut(given, "=")
		if d.Step(step) == nil || !slices.Contains([]string{chain.AnswerHappened, chain.AnswerAgain, chain.AnswerGiveUp}, what) {
			return term.UsageErrorf("write --answer STEP=happened, STEP=again or STEP=give-up", "%q names no step of the chain, or no answer", given)
		}
	}
	return nil
}
