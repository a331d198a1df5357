package chain

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

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/script"
)

// callFlags select what a chain may call.
type callFlags struct {
	Repeatable []string `name:"repeatable" placeholder:"SERVER/TOOL" sep:"none" help:"A tool that may be called again if the answer was lost, in addition to those in the configuration. Repeat for several."`
	cli.ConfigFlag
	settings *Settings // the section chains of the configuration, or nil
}

func (f callFlags) isRepeatable(server, tool string) bool {
	return f.settings.IsRepeatable(server, tool) || slices.Contains(f.Repeatable, server+"/"+tool)
}

// openServers opens the upstreams of the configuration file. Without a file there are none, and the pinned
// items are unknown.
func (f *callFlags) openServers() (*upstream.Manager, map[string]ServerItems, error) {
	file, err := f.Load()
	if err != nil || file == nil {
		return nil, nil, err
	}
	if f.settings, err = ParseSettings(file.Section(sectionChains)); err != nil {
		return nil, nil, module.ConfigError(err)
	}
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		return nil, nil, module.ConfigError(err)
	}
	opts := upstream.Options{Watcher: cli.ThisProgram(), Version: cli.ReadBuild().Version}
	if opts.Gates, err = gate.ParseConfig(file.Section(config.SectionGates)); err != nil {
		return nil, nil, module.ConfigError(err)
	}
	if opts.Pins, err = upstream.LoadPins(upstream.PinsPath(f.Config)); err != nil {
		return nil, nil, term.UsageErrorf("", "%w", err)
	}
	servers, err := upstream.Open(declared, opts)
	if err != nil {
		return nil, nil, module.ConfigError(err)
	}
	items := listPinned(declared, opts.Pins)
	cli.HideSecrets()
	return servers, items, nil
}

// configFlagText returns the flag that repeats the configuration file in a suggested command line.
func configFlagText(f cli.ConfigFlag) string {
	if f.Config == "" {
		return ""
	}
	return " --config " + term.ShellWord(f.Config)
}

// parseChain reads a definition. The error is a *workflow.ParseError if the file is not a valid one.
func parseChain(path string) (*Definition, error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return nil, term.UsageErrorf("", "%w", err)
	}
	return Parse(path, doc)
}

type lintCommand struct {
	Files  []string `arg:"" name:"file" help:"Definition files, folders or patterns."`
	Strict bool     `name:"strict" help:"Fail on warnings too."`
	JSON   bool     `name:"json" help:"Print JSON."`
	callFlags
}

func (lintCommand) Help() string {
	return `Prints nothing if there are no problems. With --config, it also reports servers that are not
declared, and tools and prompts that are not pinned. It starts nothing.

Examples:

    gavel chain lint check-site.json
    gavel chain lint --strict --config gavel.yaml chains/   # every .json, .yaml and .yml in it
    gavel chain lint --json check-site.json | jq '.files[].issues[].rule'

Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 wrong usage.`
}

func (c *lintCommand) Run(con *cli.Console) error {
	files, err := cli.DefinitionFiles(c.Files)
	if err != nil {
		return err
	}
	servers, items, err := c.openServers()
	if err != nil {
		return err
	}
	defer servers.Close()
	report := cli.LintReport{Files: []cli.LintFile{}}
	for _, path := range files {
		f := cli.LintFile{File: path, Issues: []workflow.Issue{}, Schemas: []workflow.SchemaPlace{}}
		d, err := parseChain(path)
		if wrong, ok := errors.AsType[*workflow.ParseError](err); ok {
			f.Issues = wrong.Issues
		} else if err != nil {
			return err
		} else {
			f.Name, f.Hash = d.Name, d.Hash
			f.Issues = append(f.Issues, d.Lint(LintOptions{Servers: items, Writer: c.settings.Writer, Now: time.Now(), Flags: configFlagText(c.ConfigFlag)})...)
		}
		report.Files = append(report.Files, f)
	}
	return report.Finish(con.Out, c.Strict, c.JSON, false)
}

type graphCommand struct {
	File   string `arg:"" name:"file" help:"A definition file."`
	Format string `name:"format" enum:"mermaid,dot,svg" default:"mermaid" placeholder:"FORMAT" help:"The output format: mermaid (default), dot or svg."`
}

func (graphCommand) Help() string {
	return `Examples:

    gavel chain graph check-site.json
    gavel chain graph check-site.json --format svg > chain.svg`
}

func (c *graphCommand) Run(con *cli.Console) error {
	d, err := parseChain(c.File)
	if err != nil {
		return parseError(c.File, err)
	}
	var b strings.Builder
	switch c.Format {
	case "dot":
		err = d.WriteDOT(&b)
	case "svg":
		err = d.WriteSVG(&b)
	default:
		err = d.WriteMermaid(&b)
	}
	con.Out.Text(b.String())
	return err
}

type runCommand struct {
	File   string   `arg:"" name:"file" help:"A definition file."`
	Input  string   `name:"input" placeholder:"JSON" help:"Values of variables.input, as a JSON object."`
	State  string   `name:"state" placeholder:"FILE" help:"Keep runs in this file, so that --run can continue an interrupted one. Default: a temporary file."`
	ID     string   `name:"run" placeholder:"ID" help:"The id of the run. With --state, an interrupted run continues in its last step."`
	Answer []string `name:"answer" placeholder:"STEP=ANSWER" sep:"none" help:"What happened to a call whose answer was lost: STEP=happened, STEP=again or STEP=give-up."`
	JSON   bool     `name:"json" help:"Print JSON."`
	callFlags
	Models cli.ModelFlags `embed:""`
}

func (runCommand) Help() string {
	return `Needs no gavel server. Steps are shown on standard error as they happen, and the result is
printed at the end. The chain can use the tools, resources and prompts that are pinned and allowed
in the upstreams of --config. Gated tools are refused, because their workflows are in a store.
A step with complete asks the model that LLM_JUDGE_MODEL names, or one of --llm-also.

With --state a run survives a kill: the same command continues in the interrupted step, with the
definition that the run was started with. A call that may have been done is repeated only if
--repeatable names its tool; otherwise the command asks you to report with --answer what happened.

Examples:

    gavel chain run check-site.json --config gavel.yaml --input '{"site_url": "https://example.com"}'
    gavel chain run pay.yaml --config gavel.yaml --state chains.db --run invoice-7
    gavel chain run pay.yaml --config gavel.yaml --state chains.db --run invoice-7 --answer pay=happened

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a call may or may not have been done.`
}

func (c *runCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.ID != "" && c.State == "" {
		return term.UsageErrorf("give both", "--run needs --state, the file that keeps the runs")
	}
	d, err := parseChain(c.File)
	if err != nil {
		return parseError(c.File, err)
	}
	servers, items, err := c.openServers()
	if err != nil {
		return err
	}
	defer servers.Close()
	if items == nil {
		items = map[string]ServerItems{}
	}
	asker, models, end, err := c.Models.OpenAsker(con.Log)
	if err != nil {
		return err
	}
	defer end()
	if err := c.check(con, d, items, models); err != nil {
		return err
	}
	if _, err := d.CheckInput(json.RawMessage(c.Input)); err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	if err := checkAnswers(d, c.Answer); err != nil {
		return err
	}
	pool, err := script.NewPool(script.Config{Logger: con.Log})
	if err != nil {
		return term.UnknownErrorf("", "cannot use the script sandbox: %w", err)
	}
	defer func() { _ = pool.Close() }()
	executor := Executor{Upstreams: servers, Scripts: pool}
	if asker != nil {
		executor.Models = promptModel{asker: asker}
	}
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
	s := &progressPrinter{lines: newStepLines(con.Err), ask: cancel, answers: c.Answer}
	defer s.lines.close()
	runs, err := Open(ctx, Config{
		Path: path, Effects: executor, Progress: s.printProgress, Asked: s.findAnswer,
		Writer:     c.settings.Writer,
		Repeatable: func(server, tool string) bool { return c.isRepeatable(server, tool) || servers.IsGated(server, tool) },
	})
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	defer runs.Close()
	run, err := runs.Start(ctx, StartRequest{Run: c.ID, Definition: d, Input: json.RawMessage(c.Input), Principal: localOperator})
	if err != nil {
		return cli.OperationFailure(err)
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
		return term.UnknownErrorf("continue with: "+c.resumeCommand(con, run), "interrupted")
	}
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	return c.print(con, run, result)
}

// warnChanged warns that a run continues with an older definition than the file now contains.
func (c *runCommand) warnChanged(ctx context.Context, con *cli.Console, runs *Runs, run string, d *Definition) error {
	kept, err := runs.ReadDefinition(ctx, run)
	if err != nil {
		return term.UnknownErrorf("", "%w", err)
	}
	if kept.Hash != d.Hash {
		con.Err.Printf("%s: warning: the definition has changed; the run %s keeps the one that it was started with\n", c.File, run)
	}
	return nil
}

// resumeCommand returns the command line that continues a run.
func (c *runCommand) resumeCommand(con *cli.Console, run string) string {
	words := []string{"gavel"}
	for _, arg := range con.Args {
		words = append(words, term.ShellWord(arg))
	}
	if c.ID == "" {
		words = append(words, "--run", term.ShellWord(run))
	}
	return strings.Join(words, " ")
}

// check rejects chains that cannot work, or that need something this command does not have.
func (c *runCommand) check(con *cli.Console, d *Definition, items map[string]ServerItems, models []string) error {
	var wrong []string
	for _, issue := range d.Lint(LintOptions{Servers: items, Models: append([]string{}, models...), Writer: c.settings.Writer, Flags: configFlagText(c.ConfigFlag)}) {
		if issue.Severity == workflow.SeverityError {
			wrong = append(wrong, cli.IssueLine(c.File, issue))
		} else {
			con.Err.Printf("%s\n", cli.IssueLine(c.File, issue))
		}
	}
	for _, s := range d.ListSteps() {
		if s.Kind == KindWorkflow || s.Signal != "" || s.Review != nil {
			wrong = append(wrong, fmt.Sprintf("%s: the step %q needs a gavel server: it moves a workflow, or waits for a signal or a review", c.File, s.ID))
		}
	}
	if len(wrong) > 0 {
		return &term.ExitError{Code: term.ExitUsage, Err: errors.New("the chain cannot run"), Lines: wrong}
	}
	return nil
}

func (c *runCommand) print(con *cli.Console, run string, r *Result) error {
	err := con.Print(c.JSON, map[string]any{"run": run, "output": r.Output, "error": r.Err}, func() {
		if raw, err := json.MarshalIndent(r.Output, "", "  "); err == nil && len(r.Output) > 0 {
			con.Out.Text(string(raw) + "\n")
		}
	})
	if err != nil || r.Err == nil {
		return err
	}
	if c.JSON {
		return term.ErrBad
	}
	return &term.ExitError{Code: term.ExitBad, Err: errors.New(explainFailure(*r.Err.View()))}
}

// progressPrinter prints the progress of a run's steps, and stops at a call whose outcome is unknown.
type progressPrinter struct {
	lines   *stepLines
	ask     context.CancelCauseFunc
	answers []string
}

func (s *progressPrinter) printProgress(_ string, p Progress) {
	switch p.Event {
	case "started":
		s.lines.startStep(p.Key)
	case "retrying":
		s.lines.printLine(p.Event, fmt.Sprintf("%s, attempt %d", p.Key, p.Attempt), p.Err.Message)
	default:
		s.lines.endStep(p.Event, p.Key, p.Err.View())
	}
}

// lostAnswerError is a call that may or may not have been done.
type lostAnswerError struct{ Command }

func (l *lostAnswerError) Error() string {
	return fmt.Sprintf("it is unknown whether the call of %s/%s was done: gavel was stopped during the step %q", l.Server, l.Name, l.Step)
}

func (l *lostAnswerError) hint() string {
	return fmt.Sprintf("check the server, then run this again with --answer %s=happened, --answer %s=again or --answer %s=give-up", l.Step, l.Step, l.Step)
}

// findAnswer returns the outcome of a call that the flags state. Without one it stops the program.
func (s *progressPrinter) findAnswer(c Command) (answer string, known bool) {
	for _, given := range s.answers {
		if step, what, _ := strings.Cut(given, "="); step == c.Step {
			return what, true
		}
	}
	s.ask(&lostAnswerError{c})
	return "", false
}

// localOperator runs chains without a server.
var localOperator = engine.Principal{ID: "local:cli", Role: engine.RoleOperator}

// parseError reports why a file is not a chain.
func parseError(file string, err error) error {
	if parse, ok := errors.AsType[*workflow.ParseError](err); ok {
		return &term.ExitError{Code: term.ExitBad, Lines: cli.IssueLines(file, parse.Issues), Err: fmt.Errorf("%s is not a valid chain", file)}
	}
	return err
}

// checkAnswers validates the values of --answer.
func checkAnswers(d *Definition, answers []string) error {
	for _, given := range answers {
		step, what, _ := strings.Cut(given, "=")
		if d.steps[step] == nil || !slices.Contains([]string{AnswerHappened, AnswerAgain, AnswerGiveUp}, what) {
			return term.UsageErrorf("write --answer STEP=happened, STEP=again or STEP=give-up", "%q has an unknown step or answer", given)
		}
	}
	return nil
}
