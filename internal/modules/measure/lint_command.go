package measure

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
)

type lintCommand struct {
	Paths []string `arg:"" name:"path" help:"Files of golden cases, or folders with .jsonl files."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

func (lintCommand) Help() string {
	return `Checks every line: its keys and values, duplicate cases, contradictory labels, groups and texts in
two splits, and states, actions and criteria that the workflow lacks. All paths together are one
set. The last line of the output has the digest of the set, which changes with the cases.

Examples:

    gavel eval lint testdata/golden
    gavel eval lint cases.jsonl more/*.jsonl
    gavel eval lint --json cases.jsonl | jq '.issues[].rule'

Exit codes: 0 no issue, 1 issues, 2 wrong usage, 3 could not find out.`
}

// LintReport is the JSON result of gavel eval lint.
type LintReport struct {
	OK     bool         `json:"ok"`
	Issues []eval.Issue `json:"issues"`
	eval.Summary
}

func (c *lintCommand) Run(ctx context.Context, con *cli.Console) error {
	files, err := GoldenFiles(c.Paths)
	if err != nil {
		return err
	}
	linter := eval.NewLinter(NewDefinitionCache().Criteria)
	for _, file := range files {
		if err := lintGolden(ctx, linter, file); err != nil {
			return err
		}
	}
	issues, summary := linter.Finish()
	if summary.Cases == 0 && len(issues) == 0 {
		return term.UsageErrorf("each line is a case; docs/evaluation.md lists every key", "there are no cases in %s", strings.Join(c.Paths, " "))
	}
	report := LintReport{OK: len(issues) == 0, Issues: issues, Summary: summary}
	err = con.Print(c.JSON, report, func() { printGoldenLint(con, report) })
	return cmp.Or(err, cli.ExitBadUnless(report.OK))
}

func lintGolden(ctx context.Context, linter *eval.Linter, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the cases: %w", err)
	}
	defer func() { _ = in.Close() }() // read only
	cases := eval.ReadCases(file, in)
	err = linter.Lint(func(yield func(eval.Golden, error) bool) {
		for g, err := range cases {
			if ctx.Err() != nil || !yield(g, err) {
				return
			}
		}
	})
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return term.UnknownErrorf("", "cannot read the cases: %w", err)
	}
	return nil
}

func printGoldenLint(con *cli.Console, r LintReport) {
	for _, i := range r.Issues {
		con.Out.Printf("%s:%d: %s [%s]\n", i.File, i.Line, i.Message, i.Rule)
	}
	con.Out.Printf("%s (dev %d, cal %d, test %d): approve %d, reject %d, escalate %d; %s; %s\n",
		term.Count(r.Cases, "case"), r.Splits[eval.Dev], r.Splits[eval.Cal], r.Splits[eval.Test],
		r.Outcomes["approve"], r.Outcomes["reject"], r.Outcomes["escalate"], term.Count(len(r.Issues), "issue"), r.Digest)
}
