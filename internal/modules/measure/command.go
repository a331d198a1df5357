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
			{Parent: "eval", Name: "import", Help: "Convert tables and recorded decisions to golden cases."},
			{Parent: "judge", Name: "agreement", Help: "Compare the model with persons who decided the same moves.", New: func() any { return &agreementCommand{} }},
			{Parent: "eval import", Name: "history", Help: "Turn recorded decisions into golden cases.", New: func() any { return &historyCommand{} }},
			{Parent: "eval import", Name: "csv", Help: "Turn a table into golden cases.", New: func() any { return &csvCommand{} }},
		},
	})
}

const detail = `A judge is measured on golden cases: moves whose right outcome is known. They are kept in
JSON Lines files, one case per line; docs/evaluation.md lists every key.`

//go:embed golden.schema.json
var goldenSchema []byte

func printGolden(con *cli.Console, c eval.Case) error {
	line, err := document.Marshal(c)
	if err != nil {
		return term.UnknownErrorf("", "write case %s: %w", c.ID, err)
	}
	con.Out.Printf("%s\n", line)
	return nil
}
