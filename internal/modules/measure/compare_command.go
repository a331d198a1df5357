package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/report"
	"github.com/gavel-mcp/gavel/internal/term"
)

type compareCommand struct {
	Before string   `arg:"" name:"before" help:"Results of the first run (.json)."`
	After  string   `arg:"" name:"after" help:"Results of the second run."`
	Out    []string `name:"out" placeholder:"FILE" help:"Also write the comparison: .txt, .json or .html, with the cases that changed. Repeatable."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

func (compareCommand) Help() string {
	return `Compares two runs over the same cases. Changes are tested with McNemar's exact test and a paired
bootstrap; a different number alone is not a regression.

Examples:

    gavel eval compare before.json after.json
    gavel eval compare before.json after.json --out changes.html

Exit codes: 0 not worse, 2 wrong usage, 3 not comparable, 4 significantly worse.`
}

func (c *compareCommand) Run(_ context.Context, con *cli.Console) error {
	if err := cmp.Or(checkExtensions(c.Out, ".txt", ".json", ".html"), checkOverwrite(c.Out, c.Before, c.After)); err != nil {
		return err
	}
	before, err := ReadResults(c.Before)
	if err != nil {
		return err
	}
	after, err := ReadResults(c.After)
	if err != nil {
		return err
	}
	if err := compare.CheckSame(before, after); err != nil {
		return err
	}
	compared := compare.Runs(before, after)
	text := report.ComparisonText(compared, before, after)
	render := renderings{
		".txt":  func(w io.Writer) error { return text.Text(w, term.Align) },
		".html": func(w io.Writer) error { return report.ComparisonPage(compared, before, after).HTML(w) },
		".json": func(w io.Writer) error { return writeIndented(w, compared) },
	}
	if c.JSON {
		if err := errors.Join(render.writeFiles(c.Out), con.Out.JSON(compared)); err != nil {
			return err
		}
		return exitWith(compared.Conclude())
	}
	return render.finish(con.Out, c.Out, compared.Conclude())
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
