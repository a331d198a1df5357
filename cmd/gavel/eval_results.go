package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// reportFormats are the renderings by the extension of a file.
var reportFormats = map[string]func(io.Writer, eval.Measurement) error{
	".txt": eval.Text, ".json": eval.WriteJSON, ".xml": eval.JUnit, ".md": eval.Markdown, ".html": eval.HTML,
}

func knownFormats(paths []string) error {
	for _, path := range paths {
		if reportFormats[filepath.Ext(path)] == nil {
			return term.UsageErrorf("", "--out %s: the name must end in .txt, .json, .xml, .md or .html", path)
		}
	}
	return nil
}

func printReport(con *console, m eval.Measurement) error {
	var b bytes.Buffer
	if err := eval.Text(&b, m); err != nil {
		return err
	}
	con.out.Text(b.String())
	return nil
}

func writeReports(paths []string, m eval.Measurement) error {
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return term.UnknownErrorf("", "cannot write the report: %w", err)
		}
		if err := errors.Join(writeReport(f, filepath.Ext(path), m), f.Close()); err != nil {
			return term.UnknownErrorf("", "cannot write the report: %w", err)
		}
	}
	return nil
}

func writeReport(w io.Writer, format string, m eval.Measurement) error {
	if format != ".txt" {
		return reportFormats[format](w, m)
	}
	var b bytes.Buffer
	if err := eval.Text(&b, m); err != nil {
		return err
	}
	_, err := io.WriteString(w, term.CleanLines(b.String())) // somebody will print it
	return err
}

// readResults reads what --out FILE.json wrote.
func readResults(path string) (eval.Measurement, error) {
	f, err := os.Open(path)
	if err != nil {
		return eval.Measurement{}, term.UsageErrorf("", "cannot read the results: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	m, err := eval.ReadMeasurement(f)
	if err != nil {
		return m, term.UsageErrorf("gavel eval run --out FILE.json writes one", "%s: %w", path, err)
	}
	return m, nil
}

// sameCases refuses to compare runs of which a case has changed its right outcome: a
// difference would be one of the labels.
func sameCases(before, after eval.Measurement) error {
	expected := map[string]judge.Outcome{}
	for _, c := range before.Cases {
		expected[c.ID] = c.Expect.Outcome
	}
	for _, c := range after.Cases {
		if was, ok := expected[c.ID]; ok && was != c.Expect.Outcome {
			return term.UsageErrorf("run the earlier judge on the cases of today", "the case %q has another right outcome than before (%s, was %s)", c.ID, c.Expect.Outcome, was)
		}
	}
	return nil
}

// compareRuns compares, and says of how many cases more than the answer changed.
func compareRuns(before, after eval.Measurement) eval.Comparison {
	c := eval.Compare(after.Cases, before.Results, after.Results, after.Report.Options)
	was := map[string]string{}
	for _, of := range before.Cases {
		was[of.ID] = of.Digest
	}
	changed, first := 0, ""
	for _, of := range after.Cases {
		if old := was[of.ID]; old != "" && of.Digest != "" && old != of.Digest {
			if changed++; changed == 1 {
				first = of.ID
			}
		}
	}
	if changed > 0 {
		c.Says += fmt.Sprintf("; %d of the cases are not what they were before (the first is %s), so a difference may come from them and not from the judge", changed, first)
	}
	return c
}

type evalCompareCmd struct {
	Before string `arg:"" name:"before" help:"Results of the first run (.json)."`
	After  string `arg:"" name:"after" help:"Results of the second run."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Help says what is compared.
func (evalCompareCmd) Help() string {
	return `Both runs judged the same cases. What changed is tested with McNemar's exact test and a
paired bootstrap; another number alone is no regression.

Examples:

    gavel eval compare before.json after.json

Exit codes: 0 not worse, 2 wrong usage, 3 not comparable, 4 significantly worse.`
}

// Run compares.
func (c *evalCompareCmd) Run(_ context.Context, con *console) error {
	before, err := readResults(c.Before)
	if err != nil {
		return err
	}
	after, err := readResults(c.After)
	if err != nil {
		return err
	}
	if err := sameCases(before, after); err != nil {
		return err
	}
	compared := compareRuns(before, after)
	if err := printOr(con, c.JSON, compared, func(w io.Writer) error { return eval.TextComparison(w, compared) }); err != nil {
		return err
	}
	switch {
	case !compared.Compared:
		return &term.ExitError{Code: term.ExitUnknown}
	case compared.Regression:
		return &term.ExitError{Code: term.ExitRegression}
	}
	return nil
}

// printOr prints JSON or a text.
func printOr(con *console, asJSON bool, v any, text func(io.Writer) error) error {
	if asJSON {
		return con.out.JSON(v)
	}
	var b bytes.Buffer
	if err := text(&b); err != nil {
		return err
	}
	con.out.Text(b.String())
	return nil
}

type evalTuneCmd struct {
	Results string  `arg:"" name:"results" help:"Results of a run over the splits cal and test (.json)."`
	Target  float64 `name:"target-risk" default:"0.05" placeholder:"SHARE" help:"The share of wrong approvals that is bearable. Default: 0.05."`
	JSON    bool    `name:"json" help:"Print JSON."`
}

// Help says what is looked for.
func (evalTuneCmd) Help() string {
	return `Looks for the lowest minConfidence at which the share of wrong approvals can be shown to be
at most the target: chosen on the split cal, certified on test. With too few approvals
there is no threshold, and it says how many are missing.

Examples:

    gavel eval tune results.json --target-risk 0.05

Exit codes: 0 certified, 1 not certifiable or not feasible, 2 wrong usage.`
}

// Run tunes.
func (c *evalTuneCmd) Run(_ context.Context, con *console) error {
	m, err := readResults(c.Results)
	if err != nil {
		return err
	}
	t, err := eval.Tune(m.Cases, m.Results, c.Target, m.Report.Options)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	if err := printOr(con, c.JSON, t, func(w io.Writer) error { return eval.TextTuning(w, t) }); err != nil {
		return err
	}
	if t.Status != eval.Certified {
		return term.ErrBad
	}
	return nil
}

type evalCalibrateCmd struct {
	Results string `arg:"" name:"results" help:"Results of a run over the splits cal and test (.json)."`
	Out     string `name:"out" required:"" placeholder:"FILE" help:"The file of calibrations to write, for --llm-calibration."`
	Method  string `name:"method" enum:"platt,isotonic" default:"platt" placeholder:"METHOD" help:"platt (the default) or isotonic, which needs many cases."`
	Fitted  string `name:"date" placeholder:"DATE" help:"What the file says of when it was fitted."`
}

// Help says what is fitted.
func (evalCalibrateCmd) Help() string {
	return `Fits, for each model, prompt and set of criteria, what its stated confidence is worth: on
the cases of the split cal. What it gains is measured on test.

Examples:

    gavel eval calibrate results.json --out calibration.json
    gavel mcp --llm-calibration calibration.json ...

Exit codes: 0 written, 1 nothing could be fitted, 2 wrong usage, 3 it cannot be written.`
}

// Run calibrates.
func (c *evalCalibrateCmd) Run(_ context.Context, con *console) error {
	m, err := readResults(c.Results)
	if err != nil {
		return err
	}
	dataset := strings.Join(m.About.Sets, ", ") + " " + m.Report.Counts.Digest
	fittings, err := eval.Calibrate(m.Cases, m.Results, judge.CalibrationMethod(c.Method), dataset, c.Fitted, m.Report.Options)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	var all []judge.Calibration
	for _, f := range fittings {
		con.out.Printf("%s, prompt %s, criteria %s: %d of %d answers right on cal\n", f.Model, cmp.Or(f.PromptDigest, "unknown"), cmp.Or(f.CriteriaDigest, "unknown"), f.Right, f.Fitted)
		if f.Before != nil && f.After != nil {
			con.out.Printf("  on test (%d): Brier %.3f before, %.3f after; ECE %.3f before, %.3f after\n", f.Before.N, f.Before.Brier, f.After.Brier, f.Before.ECE, f.After.ECE)
		}
		for _, w := range f.Warnings {
			con.out.Printf("  %s\n", w)
		}
		if f.Calibration != nil {
			all = append(all, *f.Calibration)
		}
	}
	if len(all) == 0 {
		con.out.Printf("Nothing could be fitted; nothing was written.\n")
		return term.ErrBad
	}
	return c.write(all)
}

// write writes only what the judge will read.
func (c *evalCalibrateCmd) write(all []judge.Calibration) error {
	doc, err := json.MarshalIndent(map[string]any{"v": 1, "calibrations": all}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the calibrations: %w", err)
	}
	if _, err := judge.ParseCalibrations(doc); err != nil {
		return fmt.Errorf("the calibrations are not what the judge reads: %w", err)
	}
	if err := os.WriteFile(c.Out, append(doc, '\n'), 0o600); err != nil {
		return term.UnknownErrorf("", "cannot write the calibrations: %w", err)
	}
	return nil
}

type evalReportCmd struct {
	Results string   `arg:"" name:"results" help:"Results of a run (.json)."`
	Out     []string `name:"out" placeholder:"FILE" help:"Write the report: .txt, .json, .xml (JUnit), .md or .html. Repeatable. Default: text on stdout."`
}

// Help shows examples.
func (evalReportCmd) Help() string {
	return `Examples:

    gavel eval report results.json
    gavel eval report results.json --out report.html --out report.md

Exit codes: 0 written, 2 wrong usage, 3 it cannot be written.`
}

// Run renders a report anew.
func (c *evalReportCmd) Run(_ context.Context, con *console) error {
	if err := knownFormats(c.Out); err != nil {
		return err
	}
	m, err := readResults(c.Results)
	if err != nil {
		return err
	}
	if len(c.Out) == 0 {
		return printReport(con, m)
	}
	return writeReports(c.Out, m)
}
