package measure

import (
	"context"
	"os"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/report"
	"github.com/gavel-mcp/gavel/internal/term"
)

type reportCommand struct {
	Results string   `arg:"" name:"results" help:"Results of a run (.json)."`
	Out     []string `name:"out" placeholder:"FILE" help:"Write the report: .txt, .json, .jsonl, .xml (JUnit) or .html. Repeatable. Default: text on stdout."`
}

func (reportCommand) Help() string {
	return `Examples:

    gavel eval report results.json
    gavel eval report results.json --out report.html --out report.xml

Exit codes: 0 written, 2 wrong usage, 3 it cannot be written.`
}

func (c *reportCommand) Run(_ context.Context, con *cli.Console) error {
	if err := checkExtensions(c.Out, runEndings...); err != nil {
		return err
	}
	render, err := c.read()
	if err != nil {
		return err
	}
	if len(c.Out) == 0 {
		return render.print(con.Out)
	}
	return render.writeFiles(c.Out)
}

// read reads the results of a run, or of a matrix.
func (c *reportCommand) read() (renderings, error) {
	f, err := os.Open(c.Results)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read the results: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	if m, err := report.ReadMatrix(f); err == nil {
		return renderMatrix(m), nil
	}
	m, err := ReadResults(c.Results)
	if err != nil {
		return nil, err
	}
	return renderRun(m)
}
