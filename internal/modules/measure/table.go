package measure

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Options supplies what imported tables and tests lack.
type Options struct {
	Workflow      string // a reference to the gate's definition
	State, Action string
	Split         eval.Split
	Label         string // source of the labels: human, adjudicated or synthetic
}

// Imported holds the cases of a file, and the number of rows without an expected outcome.
type Imported struct {
	Cases      []eval.Case
	Unlabelled int
}

// maxNesting is the maximum nesting of a JSON value in a cell.
const maxNesting = 100

// clip shortens text that a message quotes.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// maxImport is the maximum size of an imported file, in bytes.
const maxImport = 64 << 20

// importRow is a table row or a test before it becomes a case.
type importRow struct {
	line    int
	names   map[string]string // id, group, state, …
	tags    []string
	outcome string
	// documents maps data, context and evidence to their fields.
	documents map[string]map[string]json.RawMessage
}

func newImportRow(line int) importRow {
	return importRow{line: line, names: map[string]string{}, documents: map[string]map[string]json.RawMessage{}}
}

// rowNames are the columns and metadata that describe the case and are not part of its data.
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

// setName sets a key of the case. Other names become tags.
func (r *importRow) setName(name, value string) {
	switch {
	case slices.Contains(rowNames, name):
		r.names[name] = value
	case name == "outcome":
		r.outcome = value
	case name == "tags":
		r.tags = append(r.tags, strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ';' || c == ' ' })...)
	default:
		r.tags = append(r.tags, name+":"+value)
	}
}

// setCell sets a field from a cell: text, or JSON if the column name ends in ":json".
func (r *importRow) setCell(column, value string) error {
	name, isJSON := strings.CutSuffix(column, ":json")
	doc, field, dotted := strings.Cut(name, ".")
	if !dotted || doc != "data" && doc != "context" && doc != "evidence" {
		doc, field = "data", name
	}
	if isJSON {
		v, err := document.ReadJSON([]byte(value), document.Limits{Bytes: eval.MaxLine, Depth: maxNesting})
		if err != nil {
			return fmt.Errorf("the column %q: %w", clip(column), err)
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
func (i *Imported) add(file string, r importRow, o Options) error {
	at := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %w", file, r.line, fmt.Errorf(format, args...))
	}
	if strings.TrimSpace(r.outcome) == "" {
		i.Unlabelled++
		return nil
	}
	right, known := findOutcome(r.outcome)
	if !known {
		return at("the outcome %q is unknown; use approve, reject or escalate", clip(r.outcome))
	}
	ref, err := json.Marshal(map[string]string{"ref": o.Workflow})
	if err != nil {
		return at("%w", err)
	}
	base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	c := eval.Case{
		ID: cmp.Or(r.names["id"], fmt.Sprintf("%s-%d", base, len(i.Cases)+i.Unlabelled+1)), Group: r.names["group"], Tags: slices.Compact(slices.Sorted(slices.Values(r.tags))),
		Workflow: ref, State: cmp.Or(r.names["state"], o.State), Action: cmp.Or(r.names["action"], o.Action),
		Principal: r.names["principal"], Role: r.names["role"], Risk: r.names["risk"], Notes: r.names["notes"],
		Expect: eval.Expect{Outcome: right}, Label: eval.Label{Source: cmp.Or(r.names["label"], o.Label)}, Split: eval.Split(cmp.Or(r.names["split"], string(o.Split))),
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

// ReadCSV imports a table of cases:
//   - Columns named like keys of a case (id, group, tags, state, action, outcome, split, risk, principal,
//     role, label, notes) set these keys.
//   - context.NAME and evidence.NAME set fields of these documents.
//   - Every other column is a field of the data.
//
// Empty cells set nothing. Errors name the line.
func ReadCSV(file string, from io.Reader, o Options) (Imported, error) {
	return readTable(file, from, o, func(r *importRow, column, value string) error {
		if column == "outcome" || column == "tags" || slices.Contains(rowNames, column) {
			r.setName(column, value)
			return nil
		}
		return r.setCell(column, value)
	})
}

func readTable(file string, from io.Reader, o Options, set func(r *importRow, column, value string) error) (Imported, error) {
	in := csv.NewReader(io.LimitReader(from, maxImport))
	head, err := in.Read()
	if err != nil {
		return Imported{}, fmt.Errorf("%s: there is no row of column names: %w", file, err)
	}
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	for n, name := range head {
		if head[n] = strings.TrimSpace(name); head[n] == "" || slices.Contains(head[:n], head[n]) {
			return Imported{}, fmt.Errorf("%s:1: column %d is named %q, which is empty or a duplicate", file, n+1, clip(head[n]))
		}
	}
	var out Imported
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return Imported{}, fmt.Errorf("%s: %w", file, err) // the error names the line
		}
		line, _ := in.FieldPos(0)
		r := newImportRow(line)
		for n, value := range cells {
			if strings.TrimSpace(value) == "" {
				continue
			}
			if !utf8.ValidString(value) {
				return Imported{}, fmt.Errorf("%s:%d: the column %q is not UTF-8; save the file as UTF-8", file, line, clip(head[n]))
			}
			if err := set(&r, head[n], value); err != nil {
				return Imported{}, fmt.Errorf("%s:%d: %w", file, line, err)
			}
		}
		if err := out.add(file, r, o); err != nil {
			return Imported{}, err
		}
	}
}
