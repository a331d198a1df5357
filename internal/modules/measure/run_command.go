package measure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

type runCommand struct {
	Paths      []string      `arg:"" optional:"" name:"path" help:"Files of golden cases, or folders with .jsonl files."`
	Split      []string      `name:"split" enum:"dev,cal,test" placeholder:"SPLIT" help:"Only cases of this split: dev, cal or test. Repeatable. Default: all."`
	Tags       []string      `name:"tags" placeholder:"TAG" help:"Only cases with one of these tags."`
	Repeat     int           `name:"repeat" default:"1" placeholder:"K" help:"Judge every case K times, for the flip rate. Default: 1."`
	Workers    int           `name:"workers" placeholder:"N" help:"Judge this many cases in parallel. Default: one per processor."`
	Seed       uint64        `name:"seed" default:"1" placeholder:"N" help:"The seed of scripts and of the bootstrap. Default: 1."`
	Structural bool          `name:"structural" help:"Ask no model: check only fields, schemas, scripts and states."`
	Mode       string        `name:"mode" enum:"replay,record,record-missing,live" default:"replay" placeholder:"MODE" help:"Source of the model's answers: replay (the default: only the cassette, nothing is sent), record, record-missing or live. Overrides --llm-cassette-mode and its variable."`
	Models     []string      `name:"model" placeholder:"NAME[@URL]" help:"Measure this model instead of those in the definitions. Several models make a matrix. All but the first may have a URL, as in --llm-also. Default: --llm-model."`
	Edition    string        `name:"prompt" placeholder:"ID" help:"Use this prompt edition: v4 (the default), or with a cassette v3."`
	Tape       string        `name:"cassette" placeholder:"FILE" help:"The model's recorded answers."`
	Gates      string        `name:"gates" placeholder:"FILE" help:"Limits for the figures, as YAML or JSON."`
	Baseline   string        `name:"baseline" placeholder:"FILE" help:"Compare with an earlier run; fail if this one is significantly worse."`
	Out        []string      `name:"out" placeholder:"FILE" help:"Also write the report: .txt, .json (the results), .xml (JUnit), .html, or .jsonl (a line per result, written during the run). Repeatable."`
	MaxErrors  string        `name:"max-errors" default:"1%" placeholder:"SHARE" help:"Maximum share of cases without an outcome. Above it, the run counts as not evaluated. Default: 1%."`
	Unreadable string        `name:"unreadable" enum:"as_decided,as_wrong,excluded" default:"as_decided" placeholder:"POLICY" help:"How to count an unreadable answer: as_decided (the default), as_wrong or excluded."`
	MaxCalls   int           `name:"max-calls" placeholder:"N" help:"Maximum number of model calls."`
	MaxCost    float64       `name:"max-cost" placeholder:"USD" help:"Stop asking the model after this cost. Needs --llm-price-in and --llm-price-out."`
	MaxTime    time.Duration `name:"max-time" placeholder:"TIME" help:"Stop asking the model after this time."`
	Remarks    []string      `name:"remark" sep:"none" placeholder:"TEXT" help:"A sentence for the head of the report, such as the origin of recorded answers. Repeatable."`
	cli.ModelFlags
}

func (runCommand) Help() string {
	return `Every case goes through the real pipeline. Evidence comes from the case; nothing is fetched.
Without a network, the model's answers come from a cassette. The report begins with the
false-approve rate and the upper bound that the cases can show. It ends with PASSED or FAILED
and the gates that failed.

Examples:

    gavel eval run --structural testdata/golden
    gavel eval run --mode record --cassette tape.jsonl --llm-model gpt-5-mini cases.jsonl
    gavel eval run --cassette tape.jsonl --llm-model gpt-5-mini --gates gates.json --out report.html --out results.json cases.jsonl
    gavel eval run --cassette tape.jsonl --model gpt-5-mini,qwen3 --out matrix.html cases.jsonl

If the model is busy, a case is retried up to three times. A run that is stopped (Ctrl-C) reports
the cases judged so far. To continue it, repeat the command with --mode record-missing and the same
--cassette: only missing answers are requested. --out FILE.jsonl gets each result immediately.
Several models make a matrix. It passes if all gates hold in each cell and no cell is significantly
worse than the first.

Exit codes: 0 fine, 1 a gate failed, 2 wrong usage, 3 too many failures,
4 significantly worse than the baseline, 5 fine, but cases without outcome.`
}

func (c *runCommand) Run(ctx context.Context, con *cli.Console) (err error) {
	options, gates, err := c.settings()
	if err != nil {
		return err
	}
	if err := checkExtensions(c.Out, runEndings...); err != nil {
		return err
	}
	cells, err := c.cells()
	if err != nil {
		return err
	}
	before, err := c.readBaseline()
	if err != nil {
		return err
	}
	if err := checkOverwrite(c.Out, c.Gates, c.Tape, c.Cassette); err != nil {
		return err
	}
	if len(c.Paths) == 0 {
		return term.UsageErrorf("gavel eval run --help has examples", "no cases: name files or folders")
	}
	set, err := ReadGolden(ctx, c.Paths, options.Splits, c.Tags)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkOverwrite(c.Out, set.Files...), checkSame(ctx, set, before)); err != nil {
		return err
	}
	b, err := c.openBench(con, set, options, len(cells))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if len(cells) > 1 {
		return b.runMatrix(ctx, con, cells, gates)
	}
	m, err := b.measure(ctx, cells[0])
	if err != nil {
		return err
	}
	return c.conclude(con, b.out, m, gates, before)
}

// lineFiles are the --out files that receive one line per result as soon as it is available.
type lineFiles []*os.File

// splitLineFiles creates these files, and returns the other paths.
func splitLineFiles(paths []string) (files lineFiles, rest []string, err error) {
	for _, path := range paths {
		if filepath.Ext(path) != ".jsonl" {
			rest = append(rest, path)
			continue
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, nil, errors.Join(term.UnknownErrorf("", "cannot write the results: %w", err), files.Close())
		}
		files = append(files, f)
	}
	return files, rest, nil
}

func (f lineFiles) write(cell string, c eval.Case, results []eval.Result) error {
	var b bytes.Buffer
	err := eval.WriteLines(&b, cell, c, results)
	for _, file := range f {
		_, failed := file.Write(b.Bytes())
		err = errors.Join(err, failed)
	}
	if err != nil {
		return term.UnknownErrorf("", "cannot write the results: %w", err)
	}
	return nil
}

func (f lineFiles) Close() (err error) {
	for _, file := range f {
		err = errors.Join(err, file.Close())
	}
	return err
}

// readBaseline reads the earlier run, nil if there is none. Call it before this run costs anything.
func (c *runCommand) readBaseline() (*eval.Measurement, error) {
	if c.Baseline == "" {
		return nil, nil
	}
	m, err := ReadResults(c.Baseline)
	return &m, err
}

func (c *runCommand) settings() (eval.Options, eval.Gates, error) {
	failures, err := parseShare(c.MaxErrors)
	if err != nil {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("", "--max-errors: %w", err)
	}
	if c.Repeat < 1 || c.Repeat > 1000 || c.Workers < 0 || c.Workers > 1000 {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("", "--repeat must be 1 to 1000, and --workers 0 to 1000")
	}
	if c.MaxCalls < 0 || !(c.MaxCost >= 0) || c.MaxTime < 0 {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("drop the flag for no limit", "--max-calls, --max-cost and --max-time must be above 0")
	}
	o := eval.Options{Unreadable: eval.Policy(c.Unreadable), MaxFailures: &failures, Seed: c.Seed}
	for _, s := range c.Split {
		o.Splits = append(o.Splits, eval.Split(s))
	}
	gates, err := readGates(c.Gates)
	return o, gates, err
}

func readGates(path string) (eval.Gates, error) {
	var g eval.Gates
	if path == "" {
		return g, nil
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return g, term.UsageErrorf("", "--gates: %w", err)
	}
	node, err := document.Parse(path, source, document.Limits{})
	if err != nil {
		return g, term.UsageErrorf("", "--gates: %w", err)
	}
	if g, err = eval.ReadGates(node); err != nil {
		return g, term.UsageErrorf("docs/evaluation.md lists the gates", "--gates: %w", err)
	}
	return g, nil
}

func (c *runCommand) openModel(con *cli.Console) (*cli.Model, error) {
	if c.Structural {
		return nil, nil
	}
	if c.Model == "" {
		return nil, term.UsageErrorf("set LLM_JUDGE_MODEL, or ask no model with --structural", "no model is configured")
	}
	if c.MaxCost > 0 && (c.PriceIn == nil || c.PriceOut == nil) {
		return nil, term.UsageErrorf("", "--max-cost needs prices: give --llm-price-in and --llm-price-out")
	}
	if c.Parallel == 0 {
		c.Parallel = max(8, c.Workers) // enough that no worker waits for another
	}
	// The configured cassette is meant for judging moves.
	c.Cassette, c.CassetteFor = cmp.Or(c.Tape, c.Cassette), c.Mode
	if c.Cassette == "" && c.Mode != cli.ModeLive {
		return nil, term.UsageErrorf("--mode live needs no cassette", "--mode %s needs --cassette FILE", c.Mode)
	}
	return c.Open(con.Log)
}

// independent asks the model about each case as if it were the first. It takes no answer from the cache, because cached
// answers would make an inconsistent judge look consistent. No earlier answer, valid or not, prevents the next question.
type independent struct {
	*llm.Client
	asked atomic.Uint64
}

func (i *independent) Complete(ctx context.Context, req llm.Request) (llm.Reply, error) {
	req.Key, req.Caller = "", "case "+strconv.FormatUint(i.asked.Add(1), 10)
	ctx, transcript := llm.WithTranscript(ctx)
	reply, err := i.Client.Complete(ctx, req)
	eval.RecordExchange(ctx, eval.Exchange{System: req.System, User: req.User, Answers: transcript.Answers()})
	return reply, err
}

// bench is shared by the cells of a run.
type bench struct {
	cmd        *runCommand
	out        []string // paths of --out that are written at the end
	set        GoldenSet
	options    eval.Options
	model      *cli.Model // nil if no model is asked
	box        *gavel.Sandbox
	lines      lineFiles
	progress   *term.Progress
	builder    *CaseBuilder
	cells      int
	structural []eval.Result // results of the pipeline without a model, once it has run
}

func (c *runCommand) openBench(con *cli.Console, set GoldenSet, o eval.Options, cells int) (b *bench, err error) {
	b = &bench{
		cmd: c, set: set, options: o, progress: con.Err.NewProgress(), cells: cells,
		builder: &CaseBuilder{Set: set, Seed: int64(c.Seed), Definitions: NewDefinitionCache()}, //nolint:gosec // any number is a seed
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.model, err = c.openModel(con); err != nil {
		return b, err
	}
	if b.box, err = cli.NewSandbox(con.Log); err != nil {
		return b, err
	}
	b.lines, b.out, err = splitLineFiles(c.Out)
	return b, err
}

func (b *bench) Close() error {
	if b.box != nil {
		_ = b.box.Close() // the workers have no state
	}
	return errors.Join(b.lines.Close(), b.model.Close())
}

func (b *bench) run(ctx context.Context, cell Cell, layer judge.Layer, r eval.Runner, add func(eval.Case, []eval.Result) error) error {
	r.Build, r.Decide, r.Workers = b.builder.Build, NewDecider(b.box.Compiler, layer, cell), b.cmd.Workers
	r.Retries, r.Replay = 3, b.cmd.CassetteFor == string(llm.CassetteReplay)
	r.Progress = func(done int) {
		line := strings.TrimSpace(fmt.Sprintf("%s %d of %d cases", cell.Name(), done, b.set.Count))
		if done == b.set.Count {
			b.progress.Finish(line)
			return
		}
		b.progress.Update("%s", line)
	}
	return r.Run(ctx, b.set.All(ctx), add)
}

// measure runs the cases through the judge of a cell, and once through the pipeline without a model.
func (b *bench) measure(ctx context.Context, cell Cell) (m eval.Measurement, err error) {
	c := b.cmd
	m.About = eval.About{Sets: c.Paths, Judge: "structural: no model is asked", Repeats: c.Repeat, Tags: c.Tags, Remarks: slices.Clone(c.Remarks)}
	ledger := eval.Ledger{ViewBytes: eval.MaxViews / b.cells}
	keep := func(of eval.Case, results []eval.Result) error {
		ledger.Add(of, results)
		return b.lines.write(cell.Name(), of, results)
	}
	if b.model == nil {
		err = b.run(ctx, cell, nil, eval.Runner{Repeats: c.Repeat, Budget: eval.Budget{Time: c.MaxTime}}, keep)
		b.structural = ledger.Results
	} else {
		m.About.Judge, m.About.Mode = "model "+cmp.Or(cell.Model, c.Model), c.CassetteFor
		if cell.Prompt != "" {
			m.About.Judge += ", prompt " + cell.Prompt
		}
		err = b.measureModel(ctx, cell, keep)
	}
	if ctx.Err() != nil && len(ledger.Cases) > 0 {
		done := len(ledger.Cases)
		m.About.Remarks = append(m.About.Remarks, fmt.Sprintf("The run was stopped after %d of %d cases.", done, b.set.Count))
		err = addUnjudged(context.WithoutCancel(ctx), b.set, &ledger, done)
	}
	if err != nil {
		return m, interruption(err)
	}
	m.Cases, m.Results, m.Views, m.SystemPrompts = ledger.Cases, ledger.Results, ledger.Views(), ledger.SystemPrompts
	m.About.Prompts = promptsOf(m.Results)
	o := b.options
	o.Structural = b.structural
	m.Report = eval.Evaluate(m.Cases, m.Results, o)
	return m, nil
}

func (b *bench) measureModel(ctx context.Context, cell Cell, keep func(eval.Case, []eval.Result) error) error {
	layer, err := b.model.NewMeasuredLayer(func(c *llm.Client) llm.Completer { return &independent{Client: c} })
	if err != nil {
		return err
	}
	if b.structural == nil {
		err := b.run(ctx, Cell{}, nil, eval.Runner{}, func(of eval.Case, results []eval.Result) error {
			b.structural = append(b.structural, eval.Result{Case: of.ID, Outcome: results[0].Outcome, Failure: results[0].Failure})
			return nil
		})
		if err != nil {
			return err
		}
	}
	n := b.cells // divide the budget equally
	budget := eval.Budget{Calls: (b.cmd.MaxCalls + n - 1) / n, CostUSD: b.cmd.MaxCost / float64(n), Time: b.cmd.MaxTime / time.Duration(n)}
	return b.run(ctx, cell, layer, eval.Runner{Repeats: b.cmd.Repeat, Budget: budget}, keep)
}

// addUnjudged adds the cases that a stopped run did not reach; the report counts them as missing.
func addUnjudged(ctx context.Context, set GoldenSet, ledger *eval.Ledger, done int) error {
	n := 0
	for c, err := range set.All(ctx) {
		if err != nil {
			return err
		}
		if n++; n > done {
			ledger.Add(c, nil)
		}
	}
	return nil
}

// interruption returns nil and a *term.ExitError unchanged. Any other error means that the run was interrupted.
func interruption(err error) error {
	if _, said := errors.AsType[*term.ExitError](err); err == nil || said {
		return err
	}
	return term.UnknownErrorf("", "the run was stopped before a case was judged: %w", err)
}

func promptsOf(results []eval.Result) []string {
	var out []string
	for _, r := range results {
		if r.PromptDigest != "" {
			out = appendNew(out, r.PromptDigest)
		}
	}
	slices.Sort(out)
	return out
}

func (c *runCommand) conclude(con *cli.Console, out []string, m eval.Measurement, gates eval.Gates, before *eval.Measurement) error {
	if before != nil {
		var err error
		if err = compare.CheckSame(*before, m); err == nil {
			m.Baseline, err = compare.Runs(*before, m).Baseline()
		}
		if err != nil {
			return err
		}
	}
	if c.Gates != "" {
		m.Gates, _ = gates.Check(m.Report)
	}
	render, err := renderRun(m)
	if err != nil {
		return err
	}
	return render.finish(con.Out, out, m.Conclude())
}

// checkSame rejects a baseline in which a selected case has a different right outcome. It runs before the judge, so
// that an impossible comparison costs nothing.
func checkSame(ctx context.Context, s GoldenSet, before *eval.Measurement) error {
	if before == nil {
		return nil
	}
	var now eval.Measurement
	for c, err := range s.All(ctx) {
		if err != nil {
			return err
		}
		now.Cases = append(now.Cases, eval.Case{ID: c.ID, Expect: eval.Expect{Outcome: c.Expect.Outcome}})
	}
	return compare.CheckSame(*before, now)
}
