package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/eval"
)

type evalImportCmd struct {
	Format   string `arg:"" name:"format" enum:"tau-airline" help:"What the file is: tau-airline, recorded writes of an airline's agent (tau-bench)."`
	File     string `arg:"" name:"file" help:"The records, JSON Lines."`
	Workflow string `name:"workflow" required:"" placeholder:"REF" help:"The definition that is the gate: a file, as seen from where the cases will lie."`
	Split    string `name:"split" enum:"dev,cal,test" default:"dev" placeholder:"SPLIT" help:"The split of the cases: dev (the default), cal or test."`
}

// Help shows examples.
func (evalImportCmd) Help() string {
	return `Recorded writes become golden cases, on stdout. Of a record only what was known before the
write reaches a case's data and context; the label goes into expect, and whether the write
was executed or failed becomes a tag. Records without a right answer are left out.

Examples:

    gavel eval import tau-airline transitions.jsonl --workflow testdata/workflows/airline.yaml > airline.jsonl
    gavel eval run --structural airline.jsonl

Exit codes: 0 done, 1 the file is none of that format, 2 wrong usage, 3 could not find out.`
}

// Run prints the cases.
func (c *evalImportCmd) Run(con *console) error {
	in, err := os.Open(c.File)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	defer in.Close()
	records, err := eval.ReadTau(c.File, in)
	if err != nil {
		return &term.Failure{Code: term.ExitBad, Err: err}
	}
	if len(records) == 0 {
		return &term.Failure{Code: term.ExitBad, Hint: "a record is a line", Err: fmt.Errorf("there is no record in %s", c.File)}
	}
	cases, err := eval.TauCases(records, eval.TauOptions{Workflow: c.Workflow, Split: eval.Split(c.Split)})
	if err != nil {
		return &term.Failure{Code: term.ExitBad, Err: err}
	}
	if left := len(records) - len(cases); left > 0 {
		con.err.Printf("gavel: %d of %d records have no right answer and were left out\n", left, len(records))
	}
	for _, one := range cases {
		line, err := json.Marshal(one)
		if err != nil {
			return term.UnknownErrorf("", "write case %s: %w", one.ID, err)
		}
		con.out.Printf("%s\n", line)
	}
	return nil
}
