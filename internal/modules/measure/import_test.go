package measure

import (
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
)

// Input that cannot be imported is an error with its line, and never becomes a different case.
func TestImportErrors(t *testing.T) {
	o := Options{Workflow: "w.yaml", State: "s", Action: "a", Split: eval.Dev, Label: "human"}
	for name, c := range map[string]struct{ file, text, says string }{
		"no head":           {"a.csv", "", "a.csv: there is no row of column names"},
		"column twice":      {"a.csv", "n,n\n1,2\n", `a.csv:1: column 2 is named "n"`},
		"nameless column":   {"a.csv", "n,\n1,2\n", `a.csv:1: column 2 is named ""`},
		"ragged":            {"a.csv", "n,outcome\n1,pass\n2\n", "line 3"},
		"open quote":        {"a.csv", "n,outcome\n\"1,pass\n", "a.csv: "},
		"no UTF-8":          {"a.csv", "n,outcome\n\xff,pass\n", `a.csv:2: the column "n" is not UTF-8`},
		"no JSON":           {"a.csv", "n:json,outcome\n{,pass\n", `a.csv:2: the column "n:json"`},
		"duplicate in JSON": {"a.csv", "n:json,outcome\n\"{\"\"a\"\":1,\"\"a\"\":2}\",pass\n", `the column "n:json"`},
		"split":             {"a.csv", "n,outcome,split\n1,pass,train\n", `a.csv:2: split is "train"`},
		"list of values":    {"p.yaml", "tests:\n  - vars: { n: [1, 2] }\n", "p.yaml:2: vars.n is a list"},
		"file":              {"p.yaml", "- vars: { n: file://secret.txt }\n", "p.yaml:1: vars.n refers to a file"},
		"file of variables": {"p.yaml", "- vars: file://vars.yaml\n", "vars is no object"},
		"file of tests":     {"p.yaml", "- file://tests.yaml\n", "a test is an object"},
		"shared elsewhere":  {"p.yaml", "defaultTest: file://d.yaml\ntests: []\n", "defaultTest is no object"},
		"contradiction":     {"p.yaml", "- assert: [{type: equals, value: approve}, {type: contains, value: reject}]\n", "the assertions want approve and reject"},
		"line":              {"p.jsonl", "{\"vars\": {}}\n{\n", "p.jsonl:2: "},
	} {
		read := ReadPromptfoo
		if strings.HasSuffix(c.file, ".csv") {
			read = ReadCSV
		}
		if _, err := read(c.file, strings.NewReader(c.text), o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An assertion that forbids a word does not define the expected outcome.
func TestPromptfooLines(t *testing.T) {
	text := `{"vars": {"x": 5}, "assert": [{"type": "equals", "value": "reject"}]}
{"vars": {"x": 6}, "assert": [{"type": "not-equals", "value": "reject"}]}`
	got, err := ReadPromptfoo("tests.jsonl", strings.NewReader(text), Options{Workflow: "w.yaml", State: "s", Action: "a", Split: eval.Test, Label: "human"})
	if err != nil || len(got.Cases) != 1 || got.Unlabelled != 1 || string(got.Cases[0].Data) != `{"x":5}` || got.Cases[0].Split != eval.Test {
		t.Fatalf("%v: %+v", err, got)
	}
}
