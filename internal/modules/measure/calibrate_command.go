package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type calibrateCommand struct {
	Results string `arg:"" name:"results" help:"Results of a run over the splits cal and test (.json)."`
	Out     string `name:"out" required:"" placeholder:"FILE" help:"The file of calibrations to write, for --llm-calibration."`
	Fitted  string `name:"date" placeholder:"DATE" help:"The date of the fit, recorded in the file."`
}

func (calibrateCommand) Help() string {
	return `Calibrates the confidence of approvals on the split cal, for each model, prompt and set of criteria.
The gain is measured on the approvals of test. A calibration counts if the fit is good enough
(docs/evaluation.md has the rule). The file has the others too, so that a decision can report why
they do not count.

Examples:

    gavel eval calibrate results.json --out calibration.json
    gavel mcp --llm-calibration calibration.json ...

Exit codes: 0 written, 1 none is good enough, 2 wrong usage, 3 it cannot be written.`
}

func (c *calibrateCommand) Run(_ context.Context, con *cli.Console) error {
	if err := checkOverwrite([]string{c.Out}, c.Results); err != nil {
		return err
	}
	m, err := ReadResults(c.Results)
	if err != nil {
		return err
	}
	dataset := strings.Join(m.About.Sets, ", ") + " " + m.Report.Counts.Digest
	fittings := eval.Calibrate(m.Cases, m.Results, dataset, c.Fitted, m.Report.Options)
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
func (c *calibrateCommand) write(all []judge.Calibration) error {
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
