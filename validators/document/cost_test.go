package document

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/costtest"
)

// hostile returns texts whose parts a naive YAML reader would read again and again.
func hostile(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	each := func(line func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	keys := func(format string) string { return each(func(i int) string { return fmt.Sprintf(format, i) }) }
	steps := func(format string) string {
		return each(func(i int) string {
			return fmt.Sprintf(format, strings.Repeat(" ", min(i, 60)), strings.Repeat("k", 1000))
		})
	}
	return map[string]string{
		"line breaks in a literal":        "description: |\n" + fill("\n"),
		"line breaks in a folded scalar":  "description: >\n" + fill("\n"),
		"line breaks in a double quote":   `description: "` + fill("\n") + `"`,
		"line breaks in a single quote":   "description: '" + fill("\n") + "'",
		"line breaks in a plain scalar":   "description: x\n" + fill("\n") + "  y",
		"lines of blanks in a literal":    "description: |\n" + fill(" \n"),
		"line breaks, then a literal":     "description: |\n" + fill("\n") + "  x\n",
		"carriage returns":                "description: |\n" + fill("\r"),
		"tabs in quotes":                  `a: "` + fill("\t") + `"`,
		"angles":                          fill("<"),
		"one mapping":                     keys("k%d: b\n"),
		"one flow mapping":                "{" + keys("k%d: b,") + "}",
		"empty values":                    keys("k%d:\n"),
		"null entries":                    fill("-\n"),
		"null in entries":                 fill("- a:\n"),
		"flow keys without value":         "{" + keys("k%d,") + "}",
		"flow nulls":                      "{" + keys("k%d: ,") + "}",
		"block scalars":                   keys("k%d: |\n"),
		"brackets":                        fill("["),
		"closed brackets":                 fill("[],") + "",
		"one array":                       "[" + fill("a,") + "] # c",
		"comments in an array":            "[" + fill("a, # c\n") + "]",
		"comments":                        fill("# c\n\n") + "a: 1",
		"comments below":                  "a:\n" + fill(" # x\n\n") + "  b: 1",
		"comments at entries":             fill("- # c\n"),
		"dashes":                          fill("- "),
		"aliases":                         fill("&a "),
		"anchors":                         "- &a x\n" + fill("- *a\n"),
		"tags":                            fill("- !a x\n"),
		"directives":                      keys("%%TAG !k%d! x\n") + "---\na: 1",
		"directives of a second document": "a: 1\n...\n" + keys("%%TAG !k%d! x\n") + "---\na: 1",
		"documents":                       fill("---\n"),
		"explicit keys":                   fill("? "),
		"long paths":                      steps("%s%s:\n"),
		"long paths in sequences":         steps("%s- %s:\n"),
		"long numbers":                    "a: " + fill("1"),
		"long fractions":                  "a: 0." + fill("0") + "1",
	}
}

// TestHostileTextIsCheap limits the cost of reading a text as YAML and as JSON.
func TestHostileTextIsCheap(t *testing.T) {
	for name, in := range hostile(64 << 10) {
		t.Run(name, func(t *testing.T) {
			costtest.CheckBound(t, len(in), func() { _, _ = Parse("x.yaml", []byte(in), Limits{}) })
			costtest.CheckBound(t, len(in), func() { _, _ = Parse("x.json", []byte(in), Limits{}) })
		})
	}
}

func TestMappingOfAnySize(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	n, err := Parse("x.yaml", []byte(b.String()), Limits{})
	if err != nil || len(n.Members) != 20_000 {
		t.Fatalf("%d members, %v", len(n.Keys()), err)
	}
}

func fuzzCost(f *testing.F, name string) {
	f.Add([]byte("description: |\n"), []byte("\n"), []byte(""))
	for _, in := range hostile(64) {
		f.Add([]byte(""), []byte(in), []byte(""))
		if len(in) > 4 {
			f.Add([]byte(in[:len(in)/3]), []byte(in[len(in)/3:len(in)/2]), []byte(in[len(in)/2:]))
		}
	}
	f.Fuzz(func(t *testing.T, head, unit, tail []byte) {
		in := costtest.Repeat(head, unit, tail, 64<<10)
		costtest.CheckBound(t, len(in), func() { _, _ = Parse(name, in, Limits{}) })
	})
}

func FuzzCostYAML(f *testing.F) { fuzzCost(f, "x.yaml") }
func FuzzCostJSON(f *testing.F) { fuzzCost(f, "x.json") }
