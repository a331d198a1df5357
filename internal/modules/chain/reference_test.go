package chain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators/document"
)

// scopeOf returns a lookup in a JSON object.
func scopeOf(raw string) lookup {
	values := decodeJSON(json.RawMessage(raw))
	return func(r reference) (any, error) { return walkPath(values, r, 0) }
}

func TestFill(t *testing.T) {
	const values = `{"a":{"output":{"n":1.50,"list":[true,null,{"x":"y"}],"text":"hello","tricky":"{{a.output.n}}"}},"variables":{"input":{"key":"secret"}}}`
	for _, row := range []struct{ name, template, want, err string }{
		{"text", `"plain"`, `"plain"`, ""},
		{"a number keeps its digits", `"{{a.output.n}}"`, `1.50`, ""},
		{"a list keeps its type", `"{{a.output.list}}"`, `[true,null,{"x":"y"}]`, ""},
		{"an index", `"{{a.output.list[2].x}}"`, `"y"`, ""},
		{"an index with a dot", `"{{a.output.list.0}}"`, `true`, ""},
		{"a null", `"{{a.output.list[1]}}"`, `null`, ""},
		{"blanks inside", `"{{ a.output.n }}"`, `1.50`, ""},
		{"blanks outside make it text", `" {{a.output.n}}"`, `" 1.50"`, ""},
		{"text in text", `"say {{a.output.text}}!"`, `"say hello!"`, ""},
		{"JSON in text", `"{{a.output.text}}: {{a.output.list}}"`, `"hello: [true,null,{\"x\":\"y\"}]"`, ""},
		{"what was put in is not read again", `"{{a.output.tricky}}"`, `"{{a.output.n}}"`, ""},
		{"nor within text", `"<{{a.output.tricky}}>"`, `"<{{a.output.n}}>"`, ""},
		{"Python stays text", `"f.write(json.dumps({{'a': 1}}))"`, `"f.write(json.dumps({{'a': 1}}))"`, ""},
		{"an expression stays text", `"{{a.output.n + 1}}"`, `"{{a.output.n + 1}}"`, ""},
		{"nothing between braces", `"{{}}"`, `"{{}}"`, ""},
		{"inside objects and lists", `{"x":["{{a.output.n}}"],"y":{"z":"{{variables.input.key}}"}}`, `{"x":[1.50],"y":{"z":"secret"}}`, ""},
		{"a key is no reference", `{"{{a.output.n}}":1}`, `{"{{a.output.n}}":1}`, ""},
		{"a missing key", `"{{a.output.m}}"`, ``, `{{a.output.m}} is missing: a.output has "list", "n", "text", "tricky"`},
		{"an index behind the end", `"{{a.output.list[3]}}"`, ``, `{{a.output.list[3]}} is missing: a.output.list is a list of 3`},
		{"a key of a text", `"{{a.output.text.x}}"`, ``, `{{a.output.text.x}} is missing: a.output.text is a text`},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, err := document.Parse("t.json", []byte(row.template), document.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			filled, err := parseTemplate(n, func(_ *document.Node, err error) { t.Fatal(err) }).fill(scopeOf(values))
			if row.err != "" {
				if err == nil || err.Error() != row.err {
					t.Fatalf("got %v, want %s", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := document.Marshal(filled); strings.TrimSpace(string(got)) != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	const values = `{"a":{"output":{"n":3,"one":"1","text":"An Error","list":[1,"x"],"yes":true,"none":null,"big":1e999}}}`
	for _, row := range []struct {
		condition string
		want      bool
		err       string
	}{
		{"{{a.output.text}} contains 'Error'", true, ""},
		{"{{a.output.text}} contains \"error\"", false, ""},
		{"{{a.output.list}} contains 'x'", true, ""},
		{"{{a.output.list}} contains 1.0", true, ""},
		{"{{a.output}} contains 'n'", true, ""},
		{"{{a.output.n}} == 3.0", true, ""},
		{"{{a.output.n}} != 3", false, ""},
		{"{{a.output.n}} > 2.5", true, ""},
		{"{{a.output.n}} <= 2", false, ""},
		{"{{a.output.one}} == 1", false, ""},
		{"{{a.output.one}} < '2'", true, ""},
		{"{{a.output.none}} == null", true, ""},
		{"{{a.output.yes}}", true, ""},
		{"'x' == 'x'", true, ""},
		{"'a b' contains ' '", true, ""},
		{"{{a.output.n}} > 2 and {{a.output.one}} == '1'", true, ""},
		{"{{a.output.n}} > 3 and {{a.output.gone}} == 1", false, ""},
		{"{{a.output.n}} > 3 or {{a.output.yes}}", true, ""},
		{"not {{a.output.yes}}", false, ""},
		{"not {{a.output.n}} == 4 and {{a.output.list}} contains 'x'", true, ""},
		{"false and false or true", true, ""},
		{"false and (false or true)", false, ""},
		{"not(true and not 'and' contains 'or')", false, ""},
		{"{{a.output.yes}} and {{a.output.n}}", false, "{{a.output.n}} is a number; a condition without a comparison must be true or false"},
		{"{{a.output.big}} > 1", false, "a number and a number cannot be ordered; compare two numbers or two texts"},
		{"{{a.output.text}} > 1", false, "a text and a number cannot be ordered; compare two numbers or two texts"},
		{"{{a.output.n}} contains 3", false, "contains needs a text, a list or an object on its left, not a number"},
		{"{{a.output.n}}", false, "{{a.output.n}} is a number; a condition without a comparison must be true or false"},
		{"{{a.output.gone}} == 1", false, `{{a.output.gone}} is missing: a.output has "big", "list", "n", "none", "one", "text", "yes"`},
	} {
		c, err := parseCondition(row.condition)
		if err != nil {
			t.Errorf("%s: %v", row.condition, err)
			continue
		}
		got, err := c.evaluate(scopeOf(values))
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != row.want || message != row.err {
			t.Errorf("%s: got %v, %q; want %v, %q", row.condition, got, message, row.want, row.err)
		}
	}
}

// TestRefusedConditions: these are rejected when the definition is parsed.
func TestRefusedConditions(t *testing.T) {
	for _, text := range []string{
		"", "and", "true and", "not", "(true", "true)", "true true", "1 == ", "true or or true", "andtrue", "{{a.output}} contains 'x' and", "true && true",
		strings.Repeat("not ", maxComparisons) + "true", strings.Repeat("(", 100_000),
	} {
		if c, err := parseCondition(text); err == nil {
			t.Errorf("%.60q is read as %v", text, c)
		}
	}
}

// FuzzReferences: filling a text changes only its references, and inserted values stay unchanged, whatever
// they contain.
func FuzzReferences(f *testing.F) {
	for _, seed := range []string{"{{a.b}}", "x{{a}}y{{b[1].c}}", "{{{{a}}}}", "{{'a': 1}}", "{{a.__proto__}}", "{{a" + strings.Repeat(".a", 40) + "}}", "}}{{", "{{a-b_c.0}}"} {
		f.Add(seed, "{{a.b}}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		parsed, err := parseText(text)
		if err != nil {
			return
		}
		var paths []string
		got, err := parsed.fill(func(r reference) (any, error) {
			paths = append(paths, r.text)
			return value, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := text
		found := referencePattern().FindAllString(text, -1)
		if len(found) != len(paths) {
			t.Fatalf("%d references are read and %d are there", len(paths), len(found))
		}
		var b strings.Builder
		for _, reference := range found {
			before, after, _ := strings.Cut(want, reference)
			b.WriteString(before + value)
			want = after
		}
		b.WriteString(want)
		if diff := cmp.Diff(b.String(), got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzConditions: evaluating anything that parses gives a result or an error, never a panic.
func FuzzConditions(f *testing.F) {
	for _, seed := range []string{"{{a}} contains 'x'", "1 == 1.0", "{{a.b}} <= -1e5", "true", "'a' < \"b\"", "{{a}} == null", "not (true or {{a}}) and 1 < 2"} {
		f.Add(seed, `{"a":[1,{"b":"x"}]}`)
	}
	f.Fuzz(func(t *testing.T, text, values string) {
		c, err := parseCondition(text)
		if err != nil || !json.Valid([]byte(values)) {
			return
		}
		_, _ = c.evaluate(scopeOf(values))
	})
}

// TestKept: the kept parts of an output follow the paths of references, and references find them.
func TestKept(t *testing.T) {
	for _, row := range []struct {
		output string
		keep   []string
		want   string
	}{
		{`{"total":1,"rest":2}`, []string{"total"}, `{"total":1}`},
		{`{"items":[{"name":"x","rest":1},{"name":"y"}],"page":{"n":1,"of":2,"rest":3}}`, []string{"items[1].name", "page.n", "items.0.name", "page.of"}, `{"items":{"0":{"name":"x"},"1":{"name":"y"}},"page":{"n":1,"of":2}}`},
		{`[{"name":"x"},{"name":"y"}]`, []string{"1.name"}, `{"1":{"name":"y"}}`},
		{`{"a":{"b":[1,2],"c":3}}`, []string{"a.b", "a.b[0]", "a", "a.c"}, `{"a":{"b":[1,2],"c":3}}`},
		{`{"a-b":{"c_d":1}}`, []string{"a-b.c_d"}, `{"a-b":{"c_d":1}}`},
	} {
		for _, path := range row.keep {
			if err := checkKept(path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		output := decodeJSON(json.RawMessage(row.output))
		o := keepParts(Command{Keep: row.keep}, Outcome{Value: output})
		kept := o.Value
		if o.Err != nil || marshal(kept) != row.want {
			t.Errorf("of %s %q keeps %s, %v", row.output, row.keep, marshal(kept), o.Err)
		}
		for _, path := range row.keep {
			r, _ := parsePath(path)
			whole, _ := walkPath(output, r, 0)
			if part, err := walkPath(kept, r, 0); err != nil || marshal(part) != marshal(whole) {
				t.Errorf("{{a.output.%s}} is %s, %v, and not %s", path, marshal(part), err, marshal(whole))
			}
		}
	}
	if err := checkKept("a" + strings.Repeat("[0]", 31)); err != nil {
		t.Error(err)
	}
}
