package measure

import (
	"context"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/tune"
	"github.com/gavel-mcp/gavel/internal/term"
)

type tuneCommand struct {
	Results string `arg:"" name:"results" help:"Results of a run over the splits cal and test (.json)."`
	Target  string `name:"target-risk" default:"0.05" placeholder:"SHARE" help:"The acceptable share of wrong approvals. Default: 0.05."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

func (tuneCommand) Help() string {
	return `Finds the lowest minConfidence at which the share of wrong approvals is provably at most the
target. It is chosen on the split cal and certified on test alone, with a group of cases as one
draw. Otherwise it prints what the data show, and how many more approvals would certify a target.

Examples:

    gavel eval tune results.json --target-risk 0.05

Exit codes: 0 certified, 1 not certifiable or not feasible, 2 wrong usage.`
}

func (c *tuneCommand) Run(_ context.Context, con *cli.Console) error {
	target, err := parseShare(c.Target)
	if err != nil {
		return term.UsageErrorf("", "--target-risk: %w", err)
	}
	m, err := ReadResults(c.Results)
	if err != nil {
		return err
	}
	t, err := tune.Tune(m.Cases, m.Results, target, m.Report.Options)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	if err := con.Print(c.JSON, t, func() { con.Out.Text(t.Text(term.Align)) }); err != nil {
		return err
	}
	if t.Status != tune.Certified {
		return term.ErrBad
	}
	return nil
}
