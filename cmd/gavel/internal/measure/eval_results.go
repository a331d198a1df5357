package measure

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
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/setup"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// renderings are the functions that write a report, by file extension.
type renderings map[string]func(io.Writer) error

// renderPage returns the renderings that every kind of report has.
func renderPage(p eval.Page) renderings {
	return renderings{".txt": func(w io.Writer) error { return p.Text(w, term.Align) }, ".html": p.HTML}
}

func renderMeasurement(m eval.Measurement) renderings {
	all := renderPage(m.Page())
	all[".json"] = func(w io.Writer) error { return eval.WriteJSON(w, m) }
	all[".jsonl"] = func(w io.Writer) error { return writeAllLines(w, "", m) }
	all[".xml"] = func(w io.Writer) error { return eval.JUnit(w, m) }
	return all
}

func writeAllLines(w io.Writer, cell string, m eval.Measurement) error {
	of := make(map[string][]eval.Result, len(m.Cases))
	for _, r := range m.Results {
		of[r.Case] = append(of[r.Case], r)
	}
	for _, c := range m.Cases {
		if err := eval.WriteLines(w, cell, c, of[c.ID]); err != nil {
			return err
		}
	}
	return nil
}

// checkExtensions rejects --out names without a rendering, before the run costs anything.
func checkExtensions(paths []string, known ...string) error {
	for _, path := range paths {
		if !slices.Contains(known, filepath.Ext(path)) {
			return term.UsageErrorf("", "--out %s: the name must end in %s", path, module.OrList(known))
		}
	}
	return nil
}

var measurementExtensions = []string{".txt", ".json", ".xml", ".html", ".jsonl"}

func (r renderings) writeFiles(paths []string) error {
	for _, path := range paths {
		var b bytes.Buffer
		extension := filepath.Ext(path)
		if err := r[extension](&b); err != nil {
			return err
		}
		text := b.String()
		if extension == ".txt" { // it may be printed on a terminal
			text = term.CleanLines(text)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return term.UnknownErrorf("", "cannot write the report: %w", err)
		}
	}
	return nil
}

// compareRuns compares two runs, and notes how many cases themselves have changed.
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
		c.Says += fmt.Sprintf("; %d of the cases have changed (the first is %s), so a difference may come from the cases and not from the judge", changed, first)
	}
	return c
}

type evalCompareCmd struct {
	Before string   `arg:"" name:"before" help:"Results of the first run (.json)."`
	After  string   `arg:"" name:"after" help:"Results of the second run."`
	Out    []string `name:"out" placeholder:"FILE" help:"Also write the comparison: .txt, .json or .html, with the cases that changed. Repeatable."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

func (evalCompareCmd) Help() string {
	return `Compares two runs over the same cases. Changes are tested with McNemar's exact test and a paired
bootstrap; a different number alone is not a regression.

Examples:

    gavel eval compare before.json after.json
    gavel eval compare before.json after.json --out changes.html

Exit codes: 0 not worse, 2 wrong usage, 3 not comparable, 4 significantly worse.`
}

func (c *evalCompareCmd) Run(_ context.Context, con *setup.Console) error {
	if err := cmp.Or(checkExtensions(c.Out, ".txt", ".json", ".html"), module.CheckOverwrite(c.Out, c.Before, c.After)); err != nil {
		return err
	}
	before, err := module.ReadResults(c.Before)
	if err != nil {
		return err
	}
	after, err := module.ReadResults(c.After)
	if err != nil {
		return err
	}
	if err := setup.SameCases(before, after); err != nil {
		return err
	}
	compared := compareRuns(before, after)
	render := renderPage(compared.Page(before, after))
	render[".json"] = func(w io.Writer) error { return writeIndented(w, compared) }
	if err := errors.Join(render.writeFiles(c.Out), printOr(con, c.JSON, compared, render[".txt"])); err != nil {
		return err
	}
	return exitWith(compared.Conclude())
}

func printOr(con *setup.Console, asJSON bool, v any, text func(io.Writer) error) error {
	if asJSON {
		return con.Out.JSON(v)
	}
	var b bytes.Buffer
	if err := text(&b); err != nil {
		return err
	}
	con.Out.Text(b.String())
	return nil
}

type evalCalibrateCmd struct {
	Results string `arg:"" name:"results" help:"Results of a run over the splits cal and test (.json)."`
	Out     string `name:"out" required:"" placeholder:"FILE" help:"The file of calibrations to write, for --llm-calibration."`
	Method  string `name:"method" enum:"platt,isotonic" default:"platt" placeholder:"METHOD" help:"platt (the default) or isotonic, which needs many cases."`
	Fitted  string `name:"date" placeholder:"DATE" help:"The date of the fit, recorded in the file."`
}

func (evalCalibrateCmd) Help() string {
	return `Calibrates the confidence of approvals on the split cal, for each model, prompt and set of criteria.
The gain is measured on the approvals of test. A calibration counts if the fit is good enough
(docs/evaluation.md has the rule). The file has the others too, so that a decision can report why
they do not count.

Examples:

    gavel eval calibrate results.json --out calibration.json
    gavel mcp --llm-calibration calibration.json ...

Exit codes: 0 written, 1 none is good enough, 2 wrong usage, 3 it cannot be written.`
}

func (c *evalCalibrateCmd) Run(_ context.Context, con *setup.Console) error {
	if err := module.CheckOverwrite([]string{c.Out}, c.Results); err != nil {
		return err
	}
	m, err := module.ReadResults(c.Results)
	if err != nil {
		return err
	}
	dataset := strings.Join(m.About.Sets, ", ") + " " + m.Report.Counts.Digest
	fittings, err := eval.Calibrate(m.Cases, m.Results, judge.CalibrationMethod(c.Method), dataset, c.Fitted, m.Report.Options)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	var all []judge.Calibration
	good := false
	for _, f := range fittings {
		con.Out.Printf("%s, prompt %s, criteria %s: %d of %d approvals right on cal, in %d groups\n", f.Model, cmp.Or(f.PromptDigest, "unknown"), cmp.Or(f.CriteriaDigest, "unknown"), f.Right, f.Fitted, f.Groups)
		if f.Before != nil && f.After != nil {
			con.Out.Printf("  on test %d of %d approvals right in %d groups: confidence %.3f before, %.3f after; Brier %.3f before, %.3f after; ECE %.3f before, %.3f after\n",
				f.After.Right.K, f.After.N, f.After.Groups, f.Before.Mean, f.After.Mean, f.Before.Brier, f.After.Brier, *f.Before.ECE.Value, *f.After.ECE.Value)
		}
		for _, w := range f.Warnings {
			con.Out.Printf("  %s\n", w)
		}
		if f.Calibration == nil {
			continue
		}
		all = append(all, *f.Calibration)
		if why := f.Calibration.Shortcoming(); why != "" {
			con.Out.Printf("  not good enough, so its answers stay uncalibrated: %s\n", why)
			continue
		}
		good = true
		con.Out.Printf("  good enough: approvals count as llm_calibrated\n")
	}
	if len(fittings) == 0 {
		con.Out.Printf("The model approved no case of cal or test.\n")
	}
	if len(all) == 0 {
		con.Out.Printf("Nothing could be fitted; nothing was written.\n")
		return term.ErrBad
	}
	if err := c.write(all); err != nil || good {
		return err
	}
	return term.ErrBad
}

// write writes the calibrations, after checking that the judge can read them.
func (c *evalCalibrateCmd) write(all []judge.Calibration) error {
	doc, err := json.MarshalIndent(map[string]any{"v": 1, "calibrations": all}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the calibrations: %w", err)
	}
	if _, err := judge.ParseCalibrations(doc); err != nil {
		return fmt.Errorf("the judge cannot read the calibrations: %w", err)
	}
	if err := os.WriteFile(c.Out, append(doc, '\n'), 0o600); err != nil {
		return term.UnknownErrorf("", "cannot write the calibrations: %w", err)
	}
	return nil
}

type evalReportCmd struct {
	Results string   `arg:"" name:"results" help:"Results of a run (.json)."`
	Out     []string `name:"out" placeholder:"FILE" help:"Write the report: .txt, .json, .jsonl, .xml (JUnit) or .html. Repeatable. Default: text on stdout."`
}

func (evalReportCmd) Help() string {
	return `Examples:

    gavel eval report results.json
    gavel eval report results.json --out report.html --out report.xml

Exit codes: 0 written, 2 wrong usage, 3 it cannot be written.`
}

func (c *evalReportCmd) Run(_ context.Context, con *setup.Console) error {
	if err := checkExtensions(c.Out, measurementExtensions...); err != nil {
		return err
	}
	render, err := c.read()
	if err != nil {
		return err
	}
	if len(c.Out) == 0 {
		return printOr(con, false, nil, render[".txt"])
	}
	return render.writeFiles(c.Out)
}

// read reads the results of a run, or of a matrix.
func (c *evalReportCmd) read() (renderings, error) {
	f, err := os.Open(c.Results)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read the results: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	if matrix, err := eval.ReadMatrix(f); err == nil {
		return renderMatrix(matrix), nil
	}
	m, err := module.ReadResults(c.Results)
	return renderMeasurement(m), err
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
