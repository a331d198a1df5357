package workflow_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/costtest"
)

// definitionSize is the length of the hostile definitions: the maximum with GAVEL_LONG, else a
// fraction, the maximum divided by part.
func definitionSize(part int) int {
	if os.Getenv("GAVEL_LONG") != "" {
		part = 1
	}
	return (workflow.MaxDefinition - 1<<10) / part
}

// hostileDefinitions are definitions of about size bytes that would take superlinear time to read or lint
// if names were looked up by walking a list.
func hostileDefinitions(size int) map[string]string {
	each := func(share int, item func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < size/share; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String()
	}
	with := func(rest, states string) string {
		return `{"name":"w","initialState":"s0",` + rest + `"states":{` + states + `}}`
	}
	chain := func(share int) string { // each state leads to the next and back to the first
		return each(share, func(i int) string { return fmt.Sprintf(`"s%d":{"transitions":{"n":"s%d","b":"s0"}}`, i, i+1) })
	}
	names := func(share int, format string) string {
		return each(share, func(i int) string { return fmt.Sprintf(format, i) })
	}
	long := strings.Repeat("x", 100)
	return map[string]string{
		"one target, many to pass":   with(`"mustPassThrough":{"s900":[`+names(2, `"s%d"`)+`]},`, chain(2)),
		"one state to pass again":    with(`"mustPassThrough":{"c":[`+each(2, func(int) string { return `"b"` })+`]},`, `"s0":{"transitions":{`+names(2, `"%x":"b"`)+`}},"b":{"transitions":{"x":"c"}},"c":{"final":true}`),
		"many targets":               with(`"mustPassThrough":{`+names(2, `"s%d":["s0"]`)+`},`, chain(2)),
		"many targets, passed by":    with(`"mustPassThrough":{`+names(3, `"s%d":["s1","s2"]`)+`},`, chain(3)+`,"s0x":{"transitions":{`+names(3, `"a%d":"s%[1]d"`)+`}}`),
		"star":                       with(`"mustPassThrough":{`+names(3, `"t%d":["hub"]`)+`},`, `"s0":{"transitions":{"go":"hub"}},"hub":{"transitions":{`+names(3, `"a%d":"t%[1]d"`)+`}},`+names(3, `"t%d":{"final":true}`)),
		"validators of nothing":      with(`"transitionValidators":{`+names(2, `"k%d":"x"`)+`},`, chain(2)),
		"notBy of nothing":           with("", `"s0":{"transitions":{"go":{"target":"e","notBy":[`+names(2, `"k%d"`)+`]},`+names(2, `"a%d":"e"`)+`}},"e":{"final":true}`),
		"unknown targets":            with("", `"s0":{"transitions":{`+names(1, `"a%d":"`+long+`%[1]d"`)+`}}`),
		"unknown keys":               with(names(1, `"key%d":1`)+",", `"s0":{"final":true}`),
		"values of the wrong kind":   with("", `"s0":{"transitions":{"go":{"target":"s0","requiredFields":[`+each(1, func(int) string { return "1" })+`]}}}`),
		"below a long key":           with("", `"`+strings.Repeat("k", size/2)+`":{"transitions":{`+names(2, `"a%d":1`)+`}}`),
		"keys of the wrong kind":     with("", `"`+strings.Repeat("k", size/2)+`":{"transitions":{"go":{`+names(2, `"a%d":1`)+`}}}`),
		"routes":                     with("", `"s0":{"transitions":{"go":[`+each(1, func(int) string { return `{"condition":"data.x","target":"s0"}` })+`]}}`),
		"fields that nobody writes":  with("", `"s0":{"transitions":{"go":{"target":"s0","writes":[`+names(2, `"w%d"`)+`],"requiredFields":[`+names(2, `"f%d"`)+`]}}}`),
		"scripts that read":          with(`"transitionValidators":{`+names(2, `"n%d":"(data) => data.a && data.b"`)+`},`, `"s0":{"transitions":{`+names(2, `"n%d":"s0"`)+`}}`),
		"one long script":            with("", `"s0":{"transitions":{"go":{"target":"s0","validator":"`+strings.Repeat("/*data.a", 1000)+`"},"b":{"target":"s0","validator":"`+strings.Repeat("! data.", 2000)+`"}}}`),
		"freezes and evidence":       with("", `"s0":{"transitions":{"go":{"target":"s0","freezes":[`+names(2, `"/f%d"`)+`],"evidence":[`+names(2, `{"name":"e%d","source":"s","arguments":{"a":{"$ref":"context.x"}}}`)+`]}}}`),
		"sensitive pointers":         with(`"sensitive":[`+names(1, `"/a/b/c%d"`)+`],`, `"s0":{"final":true}`),
		"states without transitions": with("", `"s0":{"final":true},`+names(1, `"t%d":{}`)),
		"a schema of many keys":      with(`"inputSchema":{"properties":{`+names(1, `"k%d":{}`)+`}},`, `"s0":{"final":true}`),
	}
}

// lintAll parses and lints a document, and stops at the first step that fails.
func lintAll(ctx context.Context, doc string) {
	if d, err := workflow.Parse("w.yaml", []byte(doc)); err == nil {
		_, _ = d.Lint(ctx, workflow.LintOptions{Compiler: &counting{}, Sources: []string{}})
	}
}

// TestHostileDefinitionsAreCheap checks that reading and linting a definition costs no more than its
// length: a quarter of the bound for a text of that length.
func TestHostileDefinitionsAreCheap(t *testing.T) {
	for name, doc := range hostileDefinitions(definitionSize(2)) {
		t.Run(name, func(t *testing.T) {
			costtest.CheckBound(t, len(doc)/4, func() { lintAll(t.Context(), doc) })
		})
	}
}

// FuzzCostLint checks the cost of definitions made by repeating any text: as the states, as the
// states that must be passed through, and as the whole document.
func FuzzCostLint(f *testing.F) {
	for _, doc := range hostileDefinitions(256) {
		f.Add([]byte(doc[:len(doc)/3]), []byte(doc[len(doc)/3:len(doc)/2]), []byte(doc[len(doc)/2:]))
	}
	f.Add([]byte(`{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":[`), []byte(`{"condition":"1","target":"a"},`), []byte(`{"target":"a"}]}}}}`))
	f.Add([]byte("name: w\ninitialState: a\nmustPassThrough:\n  a:\n"), []byte("  - a\n"), []byte("states: {a: {final: true}}"))
	f.Fuzz(func(t *testing.T, head, unit, tail []byte) {
		in := costtest.Repeat(head, unit, tail, 64<<10)
		costtest.CheckBound(t, len(in), func() { lintAll(t.Context(), string(in)) })
	})
}
