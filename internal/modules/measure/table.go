package measure

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

type csvCommand struct {
	File     string `arg:"" name:"file" help:"The file."`
	Workflow string `name:"workflow" required:"" placeholder:"REF" help:"The definition file that is the gate, relative to the folder of the cases."`
	Split    string `name:"split" enum:"dev,cal,test" default:"dev" placeholder:"SPLIT" help:"The split of the cases: dev (the default), cal or test."`
	State    string `name:"state" placeholder:"NAME" help:"The state before the move, if the file has none."`
	Action   string `name:"action" placeholder:"NAME" help:"The move, if the file has none."`
	Label    string `name:"label" required:"" enum:"human,adjudicated,synthetic" placeholder:"SOURCE" help:"The source of the labels, if the file names none: human, adjudicated or synthetic."`
}

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

func (c *csvCommand) Run(con *cli.Console) error {
	in, err := os.Open(c.File)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	defer in.Close()
	imported, err := c.read(in)
	if err != nil {
		return &term.ExitError{Code: term.ExitBad, Err: err}
	}
	if len(imported.Cases) == 0 {
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("no record in %s has a right answer", c.File), Hint: "docs/evaluation.md lists the columns that are read; separate the columns of a CSV file with commas"}
	}
	if left := imported.Unlabelled; left > 0 {
		con.Err.Printf("gavel: %d of %d records have no right answer and were left out\n", left, left+len(imported.Cases))
	}
	for _, one := range imported.Cases {
		if err := printGolden(con, one); err != nil {
			return err
		}
	}
	return nil
}

// importedTable holds the cases of a file, and the number of rows without an expected outcome.
type importedTable struct {
	Cases      []eval.Case
	Unlabelled int
}

// maxNesting is the maximum nesting of a JSON value in a cell.
const maxNesting = 100

// maxImport is the maximum size of an imported file, in bytes.
const maxImport = 64 << 20

// importRow is a table row before it becomes a case.
type importRow struct {
	line    int
	names   map[string]string // id, group, state, …
	tags    []string
	outcome string
	// documents maps data, context and evidence to their fields.
	documents map[string]map[string]json.RawMessage
}

// rowNames are the columns that describe the case and are not part of its data.
var rowNames = []string{"id", "group", "state", "action", "split", "risk", "principal", "role", "label", "notes"}

// outcomeWords maps the words for expected outcomes in tables to outcomes.
var outcomeWords = map[string]judge.Outcome{
	"approve": judge.Approve, "approved": judge.Approve, "pass": judge.Approve, "yes": judge.Approve, "true": judge.Approve,
	"reject": judge.Reject, "rejected": judge.Reject, "fail": judge.Reject, "no": judge.Reject, "false": judge.Reject,
	"escalate": judge.Escalate, "escalated": judge.Escalate,
}

func findOutcome(word string) (judge.Outcome, bool) {
	o, ok := outcomeWords[strings.ToLower(strings.TrimSpace(word))]
	return o, ok
}

func (r *importRow) setField(doc, field string, value json.RawMessage) {
	if r.documents[doc] == nil {
		r.documents[doc] = map[string]json.RawMessage{}
	}
	r.documents[doc][field] = value
}

// setCell sets what the column stands for. A field is text, or JSON if the column name ends in ":json".
func (r *importRow) setCell(column, value string) error {
	switch {
	case slices.Contains(rowNames, column):
		r.names[column] = value
		return nil
	case column == "outcome":
		r.outcome = value
		return nil
	case column == "tags":
		r.tags = strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ';' || c == ' ' })
		return nil
	}
	name, isJSON := strings.CutSuffix(column, ":json")
	doc, field, dotted := strings.Cut(name, ".")
	if !dotted || doc != "data" && doc != "context" && doc != "evidence" {
		doc, field = "data", name
	}
	if isJSON {
		v, err := document.ReadJSON([]byte(value), document.Limits{Bytes: eval.MaxLine, Depth: maxNesting})
		if err != nil {
			return fmt.Errorf("the column %q: %w", eval.ClipQuote(column), err)
		}
		r.setField(doc, field, v.Raw())
		return nil
	}
	text, err := document.Marshal(value)
	if err != nil {
		return err
	}
	r.setField(doc, field, text)
	return nil
}

// add appends a row as a case. A row without an expected outcome is only counted.
func (i *importedTable) add(r importRow, o *csvCommand) error {
	at := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %w", o.File, r.line, fmt.Errorf(format, args...))
	}
	if strings.TrimSpace(r.outcome) == "" {
		i.Unlabelled++
		return nil
	}
	right, known := findOutcome(r.outcome)
	if !known {
		return at("the outcome %q is unknown; use approve, reject or escalate", eval.ClipQuote(r.outcome))
	}
	ref, err := json.Marshal(map[string]string{"ref": o.Workflow})
	if err != nil {
		return at("%w", err)
	}
	base := strings.TrimSuffix(filepath.Base(o.File), filepath.Ext(o.File))
	c := eval.Case{
		ID: cmp.Or(r.names["id"], fmt.Sprintf("%s-%d", base, len(i.Cases)+i.Unlabelled+1)), Group: r.names["group"], Tags: slices.Compact(slices.Sorted(slices.Values(r.tags))),
		Workflow: ref, State: cmp.Or(r.names["state"], o.State), Action: cmp.Or(r.names["action"], o.Action),
		Principal: r.names["principal"], Role: r.names["role"], Risk: r.names["risk"], Notes: r.names["notes"],
		Expect: eval.Expect{Outcome: right}, Label: eval.Label{Source: cmp.Or(r.names["label"], o.Label)}, Split: eval.Split(cmp.Or(r.names["split"], o.Split)),
		Evidence: r.documents["evidence"],
	}
	for doc, to := range map[string]*json.RawMessage{"data": &c.Data, "context": &c.Context} {
		if fields := r.documents[doc]; fields != nil {
			if *to, err = document.Marshal(fields); err != nil {
				return at("%w", err)
			}
		}
	}
	if err := c.Validate(); err != nil {
		return at("%s", strings.TrimPrefix(err.Error(), "eval: "))
	}
	i.Cases = append(i.Cases, c)
	return nil
}

// read imports a table of cases:
//   - Columns named like keys of a case (id, group, tags, state, action, outcome, split, risk, principal,
//     role, label, notes) set these keys.
//   - context.NAME and evidence.NAME set fields of these documents.
//   - Every other column is a field of the data.
//
// Empty cells set nothing. Errors name the line.
func (c *csvCommand) read(from io.Reader) (importedTable, error) {
	in := csv.NewReader(io.LimitReader(from, maxImport))
	head, err := in.Read()
	if err != nil {
		return importedTable{}, fmt.Errorf("%s: there is no row of column names: %w", c.File, err)
	}
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	for n, name := range head {
		if head[n] = strings.TrimSpace(name); head[n] == "" || slices.Contains(head[:n], head[n]) {
			return importedTable{}, fmt.Errorf("%s:1: column %d is named %q, which is empty or a duplicate", c.File, n+1, eval.ClipQuote(head[n]))
		}
	}
	var out importedTable
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return importedTable{}, fmt.Errorf("%s: %w", c.File, err) // the error names the line
		}
		line, _ := in.FieldPos(0)
		r := importRow{line: line, names: map[string]string{}, documents: map[string]map[string]json.RawMessage{}}
		for n, value := range cells {
			if strings.TrimSpace(value) == "" {
				continue
			}
			if !utf8.ValidString(value) {
				return importedTable{}, fmt.Errorf("%s:%d: the column %q is not UTF-8; save the file as UTF-8", c.File, line, eval.ClipQuote(head[n]))
			}
			if err := r.setCell(head[n], value); err != nil {
				return importedTable{}, fmt.Errorf("%s:%d: %w", c.File, line, err)
			}
		}
		if err := out.add(r, c); err != nil {
			return importedTable{}, err
		}
	}
}
