package measure

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ReadPromptfoo imports promptfoo tests. The file extension selects the format: a configuration or a list of tests
// in YAML or JSON, tests in JSON Lines, or a table in CSV.
//   - Variables of a test are the data.
//   - An assertion on a verdict's word (equals: reject) is the expected outcome.
//   - Metadata named like a key of a case sets that key. Other metadata becomes tags.
//
// A test without such an assertion is counted as unlabelled. Files that a test refers to are not read.
func ReadPromptfoo(file string, from io.Reader, o Options) (Imported, error) {
	if strings.EqualFold(filepath.Ext(file), ".csv") {
		return readTable(file, from, o, setPromptfooCell)
	}
	source, err := io.ReadAll(io.LimitReader(from, maxImport))
	if err != nil {
		return Imported{}, fmt.Errorf("read %s: %w", file, err)
	}
	if strings.EqualFold(filepath.Ext(file), ".jsonl") {
		return readTests(file, source, o)
	}
	root, err := document.Parse(file, source, document.Limits{Bytes: maxImport})
	if err != nil {
		return Imported{}, err
	}
	tests, shared := root, (*document.Node)(nil)
	if root.Kind == document.Object {
		tests, shared = root.Get("tests"), root.Get("defaultTest")
	}
	switch {
	case tests == nil || tests.Kind != document.Array:
		return Imported{}, fmt.Errorf("%s: there is no list of tests; where tests names a file, import that file", file)
	case shared != nil && shared.Kind != document.Object:
		return Imported{}, fmt.Errorf("%s:%d: defaultTest is no object; write it into this file", file, shared.Line)
	}
	var out Imported
	for _, test := range tests.Items {
		if err := out.addTest(file, test.Line, test, shared, o); err != nil {
			return Imported{}, err
		}
	}
	return out, nil
}

// readTests imports tests in JSON Lines.
func readTests(file string, source []byte, o Options) (out Imported, err error) {
	number := 0
	for line := range bytes.Lines(source) {
		if number++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		test, err := document.Parse("", line, document.Limits{Bytes: eval.MaxLine})
		if err != nil {
			return Imported{}, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		if err := out.addTest(file, number, test, nil, o); err != nil {
			return Imported{}, err
		}
	}
	return out, nil
}

// addTest adds a test as a case. shared holds the defaults of all tests.
func (i *Imported) addTest(file string, line int, test, shared *document.Node, o Options) error {
	at := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %w", file, line, fmt.Errorf(format, args...))
	}
	if test.Kind != document.Object {
		return at("a test is an object; import files that tests names by themselves")
	}
	r := newImportRow(line)
	for _, from := range []*document.Node{shared, test} {
		vars := from.Get("vars")
		if vars != nil && vars.Kind != document.Object {
			return at("vars is no object; write the variables into this file")
		}
		for _, m := range membersOf(vars) {
			switch v := m.Value; {
			case v.Kind == document.Array:
				return at("vars.%s is a list, of which promptfoo makes a test for each item; write these tests out", clip(m.Key))
			case strings.HasPrefix(v.Text, "file://"):
				return at("vars.%s refers to a file; write its content into the test", clip(m.Key))
			default:
				r.setField("data", m.Key, v.JSON())
			}
		}
		for _, m := range membersOf(from.Get("metadata")) {
			if m.Value.Kind != document.Array {
				r.setName(m.Key, m.Value.Text)
				continue
			}
			for _, item := range m.Value.Items {
				r.setName(m.Key, item.Text)
			}
		}
		if asserts := from.Get("assert"); asserts != nil {
			for _, a := range asserts.Items {
				if err := r.expect(textOf(a.Get("type")), textOf(a.Get("value"))); err != nil {
					return at("%w", err)
				}
			}
		}
	}
	if words := test.Get("description"); words != nil && r.names["notes"] == "" {
		r.names["notes"] = words.Text
	}
	return i.add(file, r, o)
}

// verdictAssertions are the assertions that can state the expected outcome.
var verdictAssertions = map[string]bool{"equals": true, "contains": true, "icontains": true, "starts-with": true}

// expect sets the expected outcome from an assertion that states one.
func (r *importRow) expect(kind, value string) error {
	outcome, ok := findOutcome(value)
	if !ok || !verdictAssertions[kind] {
		return nil
	}
	if was, set := findOutcome(r.outcome); set && was != outcome {
		return fmt.Errorf("the assertions want %s and %s; keep one", was, outcome)
	}
	r.outcome = string(outcome)
	return nil
}

// expectation matches an assertion in a table: type(threshold): value. Without a type, it is equals.
var expectation = regexp.MustCompile(`^([a-z][a-z-]*)(?:\([^)]*\))?:(.*)$`)

var expectedColumn = regexp.MustCompile(`^__expected\d*$`)

func setPromptfooCell(r *importRow, column, value string) error {
	switch key, isMetadata := strings.CutPrefix(column, "__metadata:"); {
	case isMetadata:
		key, isList := strings.CutSuffix(key, "[]")
		if !isList {
			r.setName(key, value)
			return nil
		}
		for item := range strings.SplitSeq(value, ",") {
			r.setName(key, strings.TrimSpace(item))
		}
	case expectedColumn.MatchString(column):
		kind, want := "equals", value
		if m := expectation.FindStringSubmatch(value); m != nil {
			kind, want = m[1], m[2]
		}
		return r.expect(kind, want)
	case column == "__description":
		r.names["notes"] = value
	case strings.HasPrefix(column, "__"): // columns for prompts and reports
	default:
		return r.setCell(column, value)
	}
	return nil
}

func membersOf(n *document.Node) []document.Member {
	if n == nil {
		return nil
	}
	return n.Members
}

func textOf(n *document.Node) string {
	if n == nil {
		return ""
	}
	return n.Text
}
