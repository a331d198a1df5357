package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

type evalCmd struct {
	Lint      evalLintCmd      `cmd:"" help:"Check golden cases before anything is measured on them."`
	Run       evalRunCmd       `cmd:"" help:"Measure a judge."`
	Compare   evalCompareCmd   `cmd:"" help:"Compare two runs."`
	Tune      evalTuneCmd      `cmd:"" help:"Find the minConfidence that keeps a risk."`
	Calibrate evalCalibrateCmd `cmd:"" help:"Fit what the stated confidence of a model is worth."`
	Report    evalReportCmd    `cmd:"" help:"Render the results of a run again."`
	Label     evalLabelCmd     `cmd:"" help:"Label cases, one at a time."`
	Agree     evalAgreeCmd     `cmd:"" help:"Say how far two people agree, and merge their labels."`
	Import    evalImportCmd    `cmd:"" help:"Turn recorded writes of an agent into golden cases."`
}

func (evalCmd) Help() string {
	return `A judge is measured on golden cases: moves of which it is known whether they are right.
They are kept in JSON Lines files, one case a line; docs/evaluation.md has every key.`
}

type evalRunCmd struct {
	Paths      []string      `arg:"" optional:"" name:"path" help:"Files of golden cases, or folders with .jsonl files."`
	Split      []string      `name:"split" enum:"dev,cal,test" placeholder:"SPLIT" help:"Only cases of this split: dev, cal or test. Repeatable. Default: all."`
	Tags       []string      `name:"tags" placeholder:"TAG" help:"Only cases with one of these tags."`
	Repeat     int           `name:"repeat" default:"1" placeholder:"K" help:"Judge every case this often, for the flip rate. Default: 1."`
	Pool       bool          `name:"pool" help:"Count every repeat as a row of its own, in the group of its case. Default: the first one counts, the others serve the flip rate."`
	Workers    int           `name:"workers" placeholder:"N" help:"Judge this many cases at once. Default: one for each processor."`
	Seed       uint64        `name:"seed" default:"1" placeholder:"N" help:"The seed of scripts and of the bootstrap. Default: 1."`
	Structural bool          `name:"structural" help:"Ask no model: fields, schemas, scripts and states alone."`
	Mode       string        `name:"mode" enum:"replay,record,record-missing,live" default:"replay" placeholder:"MODE" help:"Where the model's answers come from: replay (the default; the cassette alone, nothing is sent), record, record-missing, or live. It counts in place of --llm-cassette-mode, here and in the environment."`
	Prompts    []string      `name:"prompt" placeholder:"ID" help:"Ask with this edition of the prompt, whatever the definitions say: v1, v2 or v3. Several are run one after the other and compared with the first."`
	Tape       string        `name:"cassette" placeholder:"FILE" help:"The model's recorded answers."`
	Gates      string        `name:"gates" placeholder:"FILE" help:"Limits that the figures must keep, as YAML or JSON."`
	Baseline   string        `name:"baseline" placeholder:"FILE" help:"Compare with an earlier run, and fail when this one is significantly worse."`
	Out        []string      `name:"out" placeholder:"FILE" help:"Write the report, too: .txt, .json (the file of results), .xml (JUnit), .md, .html, or .jsonl, a line for each result, written while the run goes. Repeatable."`
	Foreign    string        `name:"foreign" placeholder:"FILE" help:"Measure the recorded judgements of other judges instead."`
	Judge      string        `name:"foreign-judge" placeholder:"NAME" help:"With --foreign: report on this judge in full."`
	MaxErrors  string        `name:"max-errors" default:"1%" placeholder:"SHARE" help:"More cases without an outcome than this, and nothing was evaluated. Default: 1%."`
	Unreadable string        `name:"unreadable" enum:"as_decided,as_wrong,excluded" default:"as_decided" placeholder:"POLICY" help:"What an answer that cannot be read counts as: as_decided (the default), as_wrong or excluded."`
	MaxCalls   int           `name:"max-calls" placeholder:"N" help:"Ask the model no more than this often."`
	MaxCost    float64       `name:"max-cost" placeholder:"USD" help:"Ask no more once this is spent; --llm-price-in and --llm-price-out say what it costs."`
	MaxTime    time.Duration `name:"max-time" placeholder:"TIME" help:"Ask no more after this time."`
	Remarks    []string      `name:"remark" sep:"none" placeholder:"TEXT" help:"A sentence for the head of the report: where recorded answers come from. Repeatable."`
	modelFlags
}

func (evalRunCmd) Help() string {
	return `Every case goes through the real pipeline; evidence is what the case gives, nothing is
fetched. Without a network, the model's answers come from a cassette. The false-approve rate
comes first, with the upper bound that the cases can show.

Examples:

    gavel eval run --structural testdata/golden
    gavel eval run --mode record --cassette tape.jsonl --llm-model gpt-5-mini cases.jsonl
    gavel eval run --cassette tape.jsonl --llm-model gpt-5-mini --gates gates.json --out report.html --out results.json cases.jsonl
    gavel eval run --mode record --cassette tape.jsonl --prompt v2,v3 --llm-model gpt-5-mini cases.jsonl
    gavel eval run --foreign judgements.jsonl

A model that is busy or cannot be reached has not answered: the case is asked again up to
three times, when the endpoint says. What is left then makes the run incomplete.

A run that is stopped (Ctrl-C) reports the cases that were judged; --out FILE.jsonl has each
of them as soon as it is, with the prompt and the model's words. To go on, run the same
command with --mode record-missing and the same --cassette: only what has no answer yet is
asked. The last line says PASSED or FAILED, and which gates did not hold.

Exit codes: 0 fine, 1 a gate failed, 2 wrong usage, 3 not evaluated: too much failed,
4 significantly worse than the baseline, 5 incomplete: fine, but some cases have no outcome.`
}

func (c *evalRunCmd) Run(ctx context.Context, con *console) error {
	options, gates, err := c.settings()
	if err != nil {
		return err
	}
	if err := checkExtensions(c.Out, measurementExtensions...); err != nil {
		return err
	}
	before, err := c.readBaseline()
	if err != nil {
		return err
	}
	if c.Foreign != "" {
		return c.runForeign(con, options, gates, before)
	}
	if len(c.Paths) == 0 {
		return term.UsageErrorf("gavel eval run --help has examples", "which cases? name files or folders")
	}
	set, err := readGolden(ctx, c.Paths, options.Splits, c.Tags)
	if err != nil {
		return err
	}
	if err := set.sameAs(ctx, before); err != nil {
		return err
	}
	all, err := c.measure(ctx, con, set, options)
	switch {
	case err != nil:
		return err
	case len(all) > 1:
		return c.compareAll(con, all, gates)
	}
	return c.conclude(con, all[0], gates, before)
}

// lineFiles are the files of --out that get a line for each result as it comes.
type lineFiles []*os.File

// openLineFiles creates those among the paths.
func openLineFiles(paths []string) (files lineFiles, err error) {
	for _, path := range paths {
		if !isLineFile(path) {
			continue
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, errors.Join(term.UnknownErrorf("", "cannot write the results: %w", err), files.Close())
		}
		files = append(files, f)
	}
	return files, nil
}

func isLineFile(path string) bool { return filepath.Ext(path) == ".jsonl" }

func (f lineFiles) write(c eval.Case, results []eval.Result) error {
	var b bytes.Buffer
	err := eval.WriteLines(&b, c, results)
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

// readBaseline reads the earlier run, nil for none, before anything is spent on this one.
func (c *evalRunCmd) readBaseline() (*eval.Measurement, error) {
	if c.Baseline == "" {
		return nil, nil
	}
	m, err := readResults(c.Baseline)
	return &m, err
}

func (c *evalRunCmd) settings() (eval.Options, eval.Gates, error) {
	failures, err := parseShare(c.MaxErrors)
	if err != nil {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("", "--max-errors: %w", err)
	}
	if c.Repeat < 1 || c.Repeat > 1000 || c.Workers < 0 || c.Workers > 1000 {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("", "--repeat is 1 to 1000, --workers 0 to 1000")
	}
	if c.MaxCalls < 0 || !(c.MaxCost >= 0) || c.MaxTime < 0 {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("leave it out for no limit", "--max-calls, --max-cost and --max-time are above 0")
	}
	for i, name := range c.Prompts {
		if c.Prompts[i], err = prompts.Find(name); err != nil {
			return eval.Options{}, eval.Gates{}, term.UsageErrorf("", "--prompt: %w", err)
		}
		if slices.Contains(c.Prompts[:i], c.Prompts[i]) {
			return eval.Options{}, eval.Gates{}, term.UsageErrorf("", "--prompt: %s is named twice", c.Prompts[i])
		}
	}
	if c.Structural && len(c.Prompts) > 0 {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("leave one of them out", "--structural asks no model, and --prompt says with what one is asked")
	}
	if len(c.Prompts) > 1 && c.Baseline != "" {
		return eval.Options{}, eval.Gates{}, term.UsageErrorf("leave --baseline out, or name one prompt", "of several prompts the first is the baseline")
	}
	o := eval.Options{Pool: c.Pool, Unreadable: eval.Policy(c.Unreadable), MaxFailures: &failures, Seed: c.Seed}
	for _, s := range c.Split {
		o.Splits = append(o.Splits, eval.Split(s))
	}
	if err := o.Validate(); err != nil {
		return o, eval.Gates{}, term.UsageErrorf("", "%w", err)
	}
	gates, err := readGates(c.Gates)
	return o, gates, err
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q is no share; give one such as 1%% or 0.01", text)
	}
	return v, nil
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

func (c *evalRunCmd) openModel(con *console) (*model, error) {
	if c.Structural {
		return nil, nil
	}
	if c.Model == "" {
		return nil, term.UsageErrorf("set LLM_JUDGE_MODEL, or ask no model with --structural", "no model is configured")
	}
	if c.MaxCost > 0 && (c.PriceIn == nil || c.PriceOut == nil) {
		return nil, term.UsageErrorf("", "--max-cost cannot be kept without prices: give --llm-price-in and --llm-price-out")
	}
	if c.Parallel == 0 {
		c.Parallel = max(8, c.Workers) // no worker waits for another
	}
	return c.openMeasured(con.log, c.Mode, c.Tape)
}

// measure runs the cases past the judge, once for each prompt that is asked for, and past the
// pipeline without a model. A run that is stopped has no later ones.
func (c *evalRunCmd) measure(ctx context.Context, con *console, set goldenSet, o eval.Options) (all []eval.Measurement, err error) {
	with, err := c.openModel(con)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, with.Close()) }()
	box, err := newSandbox(con.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = box.Close() }() // the workers hold nothing
	progress := con.err.NewProgress()
	builder := &caseBuilder{set: set, seed: int64(c.Seed), definitions: newDefinitionCache()} //nolint:gosec // any number is a seed
	run := func(layer judge.Layer, prompt string, repeats int, budget eval.Budget, add func(eval.Case, []eval.Result) error) error {
		runner := eval.Runner{Build: builder.build, Decide: decideEval(box.Compiler, layer, prompt), Workers: c.Workers, Repeats: repeats, Retries: 3, Replay: c.CassetteFor == string(llm.CassetteReplay), Budget: budget, Progress: func(done int) {
			if done == set.n {
				progress.Finish(fmt.Sprintf("%d of %d cases", done, set.n))
				return
			}
			progress.Update("%d of %d cases", done, set.n)
		}}
		return runner.Run(ctx, set.all(ctx), add)
	}
	about := eval.About{Sets: c.Paths, Judge: "structural: no model is asked", Repeats: c.Repeat, Tags: c.Tags, Remarks: c.Remarks}
	var layer judge.Layer
	if with != nil {
		about.Judge, about.Mode = "model "+c.Model, c.CassetteFor
		if layer, err = with.measured(false); err != nil {
			return nil, err
		}
		err = run(nil, "", 1, eval.Budget{}, func(of eval.Case, results []eval.Result) error {
			o.Structural = append(o.Structural, eval.Result{Case: of.ID, Outcome: results[0].Outcome, Failure: results[0].Failure})
			return nil
		})
		if err != nil {
			return nil, interruption(err)
		}
	}
	each := c.Prompts
	if len(each) == 0 {
		each = []string{""}
	}
	n := len(each)
	budget := eval.Budget{Calls: (c.MaxCalls + n - 1) / n, CostUSD: c.MaxCost / float64(n), Time: c.MaxTime / time.Duration(n)}
	for _, prompt := range each {
		m := eval.Measurement{About: about}
		if prompt != "" {
			m.About.Judge += ", prompt " + prompt
		}
		lines, err := openLineFiles(c.outFor(prompt))
		if err != nil {
			return nil, err
		}
		var ledger eval.Ledger
		err = run(layer, prompt, c.Repeat, budget, func(of eval.Case, results []eval.Result) error {
			ledger.Add(of, results)
			return lines.write(of, results)
		})
		if ctx.Err() != nil && len(ledger.Cases) > 0 {
			done := len(ledger.Cases)
			m.About.Remarks = append(slices.Clip(m.About.Remarks), fmt.Sprintf("The run was stopped after %d of %d cases.", done, set.n))
			err = addUnjudged(context.WithoutCancel(ctx), set, &ledger, done)
		}
		if err = errors.Join(err, lines.Close()); err != nil {
			return nil, interruption(err)
		}
		if with == nil {
			o.Structural = ledger.Results
		}
		m.Cases, m.Results, m.Views, m.SystemPrompts = ledger.Cases, ledger.Results, ledger.Views(), ledger.SystemPrompts
		m.About.Prompts = promptsOf(m.Results)
		m.Report = eval.Evaluate(m.Cases, m.Results, o)
		if all = append(all, m); ctx.Err() != nil {
			break
		}
	}
	return all, nil
}

// outFor are the files of --out for a prompt: of several each has its own, as results.v2.json.
func (c *evalRunCmd) outFor(prompt string) []string {
	if len(c.Prompts) < 2 {
		return slices.Clone(c.Out)
	}
	var out []string
	for _, file := range c.Out {
		extension := filepath.Ext(file)
		out = append(out, strings.TrimSuffix(file, extension)+"."+path.Base(prompt)+extension)
	}
	return out
}

// addUnjudged adds the cases that a stopped run did not come to: the report counts them as missing.
func addUnjudged(ctx context.Context, set goldenSet, ledger *eval.Ledger, done int) error {
	n := 0
	for c, err := range set.all(ctx) {
		if err != nil {
			return err
		}
		if n++; n > done {
			ledger.Add(c, nil)
		}
	}
	return nil
}

// interruption keeps what is said of files; everything else ended the run from outside.
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

func (c *evalRunCmd) conclude(con *console, m eval.Measurement, gates eval.Gates, before *eval.Measurement) error {
	if before != nil {
		if err := sameCases(*before, m); err != nil {
			return err
		}
		m.Baseline = new(compareRuns(*before, m))
	}
	if c.Gates != "" {
		m.Gates, _ = gates.Check(m.Report)
	}
	// Files come first: whoever reads the text may stop reading, and end this program.
	render := renderMeasurement(m)
	if err := errors.Join(render.writeFiles(slices.DeleteFunc(slices.Clone(c.Out), isLineFile)), printOr(con, false, nil, render[".txt"])); err != nil {
		return err
	}
	return exitWith(m.Conclude())
}

// compareAll compares runs with the first one. The gates are held against each, and the last one,
// which is the candidate, decides the exit code.
func (c *evalRunCmd) compareAll(con *console, all []eval.Measurement, gates eval.Gates) error {
	for i := range all {
		m := &all[i]
		if i > 0 {
			m.Baseline = new(compareRuns(all[0], *m))
		}
		if c.Gates != "" {
			m.Gates, _ = gates.Check(m.Report)
		}
		if err := renderMeasurement(*m).writeFiles(slices.DeleteFunc(c.outFor(c.Prompts[i]), isLineFile)); err != nil {
			return err
		}
	}
	err := printOr(con, false, nil, func(w io.Writer) error { return eval.TextSideBySide(w, all, term.Align) })
	return cmp.Or(err, exitWith(all[len(all)-1].Conclude()))
}

// exitWith is the exit code of a conclusion that was printed.
func exitWith(c eval.Conclusion) error {
	code := map[eval.Status]int{
		eval.StatusNotEvaluated: term.ExitUnknown, eval.StatusGateFailed: term.ExitBad,
		eval.StatusRegression: term.ExitRegression, eval.StatusIncomplete: term.ExitIncomplete,
	}[c.Status]
	if code == term.ExitOK {
		return nil
	}
	return &term.ExitError{Code: code}
}

// runForeign measures recorded judgements: all judges in a table, or one in full.
func (c *evalRunCmd) runForeign(con *console, o eval.Options, gates eval.Gates, before *eval.Measurement) error {
	if len(c.Paths) > 0 {
		return term.UsageErrorf("", "--foreign FILE replaces the cases; leave %s out", c.Paths[0])
	}
	in, err := os.Open(c.Foreign)
	if err != nil {
		return term.UsageErrorf("", "--foreign: %w", err)
	}
	defer func() { _ = in.Close() }() // it was only read
	foreign, err := eval.ReadForeign(in, eval.Test)
	if err != nil {
		return term.UsageErrorf("docs/evaluation.md describes the form", "--foreign %s: %w", c.Foreign, err)
	}
	if len(foreign.Judges) == 0 {
		return term.UsageErrorf("docs/evaluation.md describes the form", "--foreign %s: there is no judgement of a record with a right outcome", c.Foreign)
	}
	rows := [][]string{{"JUDGE", "CASES", "FALSE APPROVE", "UNREADABLE", "ACCURACY", "KAPPA", "ECE", "AUROC"}}
	for _, j := range foreign.Judges {
		cases := foreign.CasesOf(j)
		r := eval.Evaluate(cases, j.Results, o)
		if c.Judge == j.Name {
			return c.conclude(con, eval.Measurement{
				About: eval.About{
					Sets: []string{c.Foreign}, Judge: "recorded: " + j.Name, Repeats: 1,
					Remarks: append([]string{"These judgements were recorded elsewhere, with prompts of their own: they say nothing about the judge of gavel."}, c.Remarks...),
				},
				Cases: cases, Results: j.Results, Report: r,
			}, gates, before)
		}
		var ece, auroc *float64
		if p := r.Probability; p != nil {
			ece, auroc = &p.ECE, p.AUROC.Value
		}
		rows = append(rows, []string{j.Name, strconv.Itoa(r.Counts.Scored), rateText(r.FalseApprove), rateText(r.Unreadable), rateText(r.Accuracy), numberText(r.Kappa.Value), numberText(ece), numberText(auroc)})
	}
	if c.Judge != "" {
		return term.UsageErrorf("without --foreign-judge, all are listed", "%s has no judge %q", c.Foreign, c.Judge)
	}
	if len(c.Out) > 0 || c.Gates != "" || c.Baseline != "" {
		return term.UsageErrorf("", "--out, --gates and --baseline are about one judge: add --foreign-judge NAME")
	}
	con.out.Table(rows)
	con.out.Printf("%d records without a right outcome were left out. These judgements were recorded elsewhere, with prompts of their own.\n", foreign.Unlabelled)
	return nil
}

func rateText(r eval.Rate) string {
	if r.Value == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %% of %d", 100**r.Value, r.N)
}

func numberText(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v)
}

// independent asks a model about each case as if it were the first that anybody asks:
// no answer is taken from the cache, or a judge that wavers would look steady, and no
// earlier answer, good or garbled, keeps the next question from being asked.
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

// measured is the model as the layer that an evaluation measures. Neither a loop guard
// nor a principal's budget stands before it: --max-calls and its like bound what is spent. Untimed is
// for decisions that the gate may have recorded so.
func (m *model) measured(untimed bool) (judge.Layer, error) {
	layer, err := judge.NewModel(judge.ModelConfig{
		Completer: &independent{Client: m.client}, Calibrations: m.calibrations, Prompt: m.prompt(), RefusalLimit: -1, Stable: m.cassette != nil, Untimed: untimed,
	})
	if err != nil {
		return nil, term.UsageErrorf("", "the model cannot be set up: %w", err)
	}
	return layer, nil
}
