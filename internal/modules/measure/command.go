// Package measure is the module that measures a judge (gavel eval): on golden cases, whose right outcome is
// known. It has calibration, comparison, tuning, reports, labels of people, and imports.
//
// Promises:
//   - the judge never sees the expected outcome of a case
//   - evidence comes from the case; nothing is fetched
//   - a report states how much its cases can show
//
// It must never decide a move.
package measure

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

func init() {
	module.Register(module.Module{
		Name:    "measure",
		Formats: []module.Format{{Name: "golden", About: "one line of a file of golden cases, for gavel eval", Schema: func() any { return json.RawMessage(goldenSchema) }}},
		Extend:  extend,
		Commands: []module.Command{
			{Name: "eval", Group: "judge", Help: "Measure a judge on cases with known outcomes.", Detail: detail},
			{Parent: "eval", Name: "lint", Help: "Check golden cases before anything is measured on them.", New: func() any { return &lintCommand{} }},
			{Parent: "eval", Name: "run", Help: "Measure a judge.", New: func() any { return &runCommand{} }},
			{Parent: "eval", Name: "calibrate", Help: "Calibrate the confidence that a model states.", New: func() any { return &calibrateCommand{} }},
			{Parent: "eval", Name: "report", Help: "Render the results of a run again.", New: func() any { return &reportCommand{} }},
			{Parent: "eval", Name: "compare", Help: "Compare two runs.", New: func() any { return &compareCommand{} }},
			{Parent: "eval", Name: "tune", Help: "Find the minConfidence that keeps a target risk.", New: func() any { return &tuneCommand{} }},
			{Parent: "eval", Name: "label", Help: "Label cases, one at a time.", New: func() any { return &labelCommand{} }},
			{Parent: "eval", Name: "agree", Help: "Measure how far two people agree, and merge their labels.", New: func() any { return &agreeCommand{} }},
			{Parent: "eval", Name: "import", Help: "Convert tables and promptfoo tests to golden cases."},
			{Parent: "judge", Name: "agreement", Help: "Compare the model with persons who decided the same moves.", New: func() any { return &agreementCommand{} }},
			{Parent: "eval import", Name: "history", Help: "Turn recorded decisions into golden cases.", New: func() any { return &historyCommand{} }},
			{Parent: "eval import", Name: "csv", Help: "Turn a table into golden cases.", New: func() any { return &csvCommand{} }},
			{Parent: "eval import", Name: "promptfoo", Help: "Turn tests of promptfoo into golden cases.", New: func() any { return &promptfooCommand{} }},
		},
	})
}

const detail = `A judge is measured on golden cases: moves whose right outcome is known. They are kept in
JSON Lines files, one case per line; docs/evaluation.md lists every key.`

//go:embed golden.schema.json
var goldenSchema []byte

// importFlags are the flags of the import commands.
type importFlags struct {
	File     string `arg:"" name:"file" help:"The file."`
	Workflow string `name:"workflow" required:"" placeholder:"REF" help:"The definition file that is the gate, relative to the folder of the cases."`
	Split    string `name:"split" enum:"dev,cal,test" default:"dev" placeholder:"SPLIT" help:"The split of the cases: dev (the default), cal or test."`
	State    string `name:"state" placeholder:"NAME" help:"The state before the move, if the file has none."`
	Action   string `name:"action" placeholder:"NAME" help:"The move, if the file has none."`
	Label    string `name:"label" required:"" enum:"human,adjudicated,synthetic" placeholder:"SOURCE" help:"The source of the labels, if the file names none: human, adjudicated or synthetic."`
}

func (f importFlags) run(con *cli.Console, read func(string, io.Reader, Options) (Imported, error)) error {
	in, err := os.Open(f.File)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	defer in.Close()
	imported, err := read(f.File, in, Options{Workflow: f.Workflow, State: f.State, Action: f.Action, Split: eval.Split(f.Split), Label: f.Label})
	if err != nil {
		return &term.ExitError{Code: term.ExitBad, Err: err}
	}
	if len(imported.Cases) == 0 {
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("no record in %s has a right answer", f.File), Hint: "docs/evaluation.md lists the keys and columns that are read; separate the columns of a CSV file with commas"}
	}
	if left := imported.Unlabelled; left > 0 {
		con.Err.Printf("gavel: %d of %d records have no right answer and were left out\n", left, left+len(imported.Cases))
	}
	for _, c := range imported.Cases {
		if err := printGolden(con, c); err != nil {
			return err
		}
	}
	return nil
}

func printGolden(con *cli.Console, c eval.Case) error {
	line, err := document.Marshal(c)
	if err != nil {
		return term.UnknownErrorf("", "write case %s: %w", c.ID, err)
	}
	con.Out.Printf("%s\n", line)
	return nil
}

type csvCommand struct{ importFlags }

func (csvCommand) Help() string {
	return `Prints one golden case for each row. Rows without a right answer are left out, and counted.

The columns id, group, tags, state, action, outcome, split, risk, principal, role, label
and notes are about the case. context.NAME and evidence.NAME are fields of these documents.
Every other column is a field of the data, as text, or as JSON if its name ends in :json.

Examples:

    gavel eval import csv refunds.csv --workflow refund.yaml --state requested --action pay --label human > refunds.jsonl
    gavel eval lint refunds.jsonl

Exit codes: 0 done, 1 the file is no such table, 2 wrong usage, 3 could not find out.`
}

func (c *csvCommand) Run(con *cli.Console) error { return c.run(con, ReadCSV) }

type promptfooCommand struct{ importFlags }

func (promptfooCommand) Help() string {
	return `Prints one golden case for each test (YAML, JSON, JSON Lines or CSV). Tests without a right
answer are left out, and counted.

vars are the data, and an assertion such as equals: reject is the right outcome. Metadata with a
name that a column of a table has is about the case; other metadata becomes tags.

Examples:

    gavel eval import promptfoo promptfooconfig.yaml --workflow refund.yaml --state requested --action pay --label human > refunds.jsonl
    gavel eval run --structural refunds.jsonl

Exit codes: 0 done, 1 the file has no such tests, 2 wrong usage, 3 could not find out.`
}

func (c *promptfooCommand) Run(con *cli.Console) error { return c.run(con, ReadPromptfoo) }
