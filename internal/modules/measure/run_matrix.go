package measure

import (
	"context"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/modules/measure/report"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/prompts"
)

// maxCells keeps a mistyped matrix from running for days.
const maxCells = 16

// cells returns the judges that a run measures, one for each model.
func (c *runCommand) cells() ([]Cell, error) {
	edition := ""
	if c.Edition != "" {
		id, err := prompts.Find(c.Edition, prompts.RecordedIDs())
		if err != nil {
			return nil, term.UsageErrorf("", "--prompt: %w", err)
		}
		if id != prompts.IDs()[0] && c.Mode == cli.ModeLive {
			return nil, term.UsageErrorf("use it with a cassette only, to compare recorded answers", "--prompt %s: gates no longer ask with this edition", c.Edition)
		}
		edition = id
	}
	var models []string
	for i, spec := range c.Models {
		name, _, elsewhere := cli.CutModel(spec)
		switch {
		case name == "" || slices.Contains(models, name):
			return nil, term.UsageErrorf("", "--model %q is empty or repeated", name)
		case i == 0 && elsewhere:
			return nil, term.UsageErrorf("give its URL with --llm-base-url", "--model %s: the first model cannot have a URL here", spec)
		case i == 0:
			c.Model = name
		default:
			c.Also = appendNew(c.Also, spec)
		}
		models = append(models, name)
	}
	if len(models) == 0 {
		models = []string{""}
	}
	var all []Cell
	for _, model := range models {
		all = append(all, Cell{Model: model, Prompt: edition})
	}
	switch several := len(all) > 1; {
	case c.Structural && (len(c.Models) > 0 || edition != ""):
		return nil, term.UsageErrorf("drop --structural, or --model and --prompt", "--structural asks no model, so --model and --prompt have no effect")
	case len(all) > maxCells:
		return nil, term.UsageErrorf("", "%d cells are too many; a run measures at most %d", len(all), maxCells)
	case several && c.Baseline != "":
		return nil, term.UsageErrorf("a matrix compares its cells with the first", "--baseline needs a single judge; drop it, or give only one model")
	}
	return all, nil
}

// runMatrix measures the cells one after the other and reports on all of them.
func (b *bench) runMatrix(ctx context.Context, con *cli.Console, cells []Cell, gates eval.Gates) error {
	var done []eval.Cell
	for _, cell := range cells {
		m, err := b.measure(ctx, cell)
		if err != nil {
			return err
		}
		if b.cmd.Gates != "" {
			m.Gates, _ = gates.Check(m.Report)
		}
		done = append(done, eval.Cell{Name: cell.Name(), Run: m})
		if left := len(cells) - len(done); ctx.Err() != nil && left > 0 {
			if len(done) < 2 {
				return term.UnknownErrorf("to continue, use --mode record-missing and the same cassette", "the run was stopped before two cells were measured")
			}
			last := &done[len(done)-1].Run.About
			last.Remarks = append(last.Remarks, fmt.Sprintf("%d of %d cells were not started.", left, len(cells)))
			break
		}
	}
	m, err := report.NewMatrix(done)
	if err != nil {
		return err
	}
	return renderMatrix(m).finish(con.Out, b.out, m.Conclude())
}
