package measure

import (
	"strings"
	"testing"
)

// Input that cannot be imported is an error with its line, and never becomes a different case.
func TestImportErrors(t *testing.T) {
	o := csvCommand{File: "a.csv", Workflow: "w.yaml", State: "s", Action: "a", Split: "dev", Label: "human"}
	for name, c := range map[string]struct{ text, says string }{
		"no head":           {"", "a.csv: there is no row of column names"},
		"column twice":      {"n,n\n1,2\n", `a.csv:1: column 2 is named "n"`},
		"nameless column":   {"n,\n1,2\n", `a.csv:1: column 2 is named ""`},
		"ragged":            {"n,outcome\n1,pass\n2\n", "line 3"},
		"open quote":        {"n,outcome\n\"1,pass\n", "a.csv: "},
		"no UTF-8":          {"n,outcome\n\xff,pass\n", `a.csv:2: the column "n" is not UTF-8`},
		"no JSON":           {"n:json,outcome\n{,pass\n", `a.csv:2: the column "n:json"`},
		"duplicate in JSON": {"n:json,outcome\n\"{\"\"a\"\":1,\"\"a\"\":2}\",pass\n", `the column "n:json"`},
		"split":             {"n,outcome,split\n1,pass,train\n", `a.csv:2: split is "train"`},
	} {
		if _, err := o.read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
