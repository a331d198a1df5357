package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestYAML(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"scalars", "a: 1\nb: 2.50\nc: -1e3\nd: true\ne: False\nf: null\ng: ~\nh:\ni: text\n", `{"a":1,"b":2.50,"c":-1e3,"d":true,"e":false,"f":null,"g":null,"h":null,"i":"text"}`},
		{"yes and no are strings", "[yes, No, on, OFF, y, n]", `["yes","No","on","OFF","y","n"]`},
		{"on as a key", "on: {yes: no}", `{"on":{"yes":"no"}}`},
		{"strings that look like something", "a: 2024-01-01\nb: 12:30:45\nc: 1_000\nd: 0b11\ne: v1\nf: '1'\ng: \"true\"\nh: .\ni: 1.2.3\nj: -x\n", `{"a":"2024-01-01","b":"12:30:45","c":"1_000","d":"0b11","e":"v1","f":"1","g":"true","h":".","i":"1.2.3","j":"-x"}`},
		{"block scalar", "v: |\n  (data) => {\n    // why\n    return data.a: \"x\";\n  }\nw: >-\n  folded\n  text\n", `{"v":"(data) => {\n  // why\n  return data.a: \"x\";\n}\n","w":"folded text"}`},
		{"block scalar keeps and strips", "a: |+\n  x\n\nb: |-\n  x\n", `{"a":"x\n\n","b":"x"}`},
		{"plain over lines", "a: one\n  two\n", `{"a":"one two"}`},
		{"quotes", `a: 'it''s \n'` + "\nb: \"\\u00e9\\U0001f600\\/\\x41\\t\\\"\"\n", `{"a":"it's \\n","b":"é😀/A\t\""}`},
		{"nesting", "s:\n  d:\n    t:\n      go: next\n      list:\n      - a\n      - b: 1\n        c: [1, {x: y}]\n", `{"s":{"d":{"t":{"go":"next","list":["a",{"b":1,"c":[1,{"x":"y"}]}]}}}}`},
		{"comments", "# top\na: 1 # side\n# between\nb: 'x # y'\n", `{"a":1,"b":"x # y"}`},
		{"marker", "---\na: 1\n...\n", `{"a":1}`},
		{"line ends", "a: 'x'\r\nb: |\r\n  l1\r\n  l2\r\n", `{"a":"x","b":"l1\nl2\n"}`},
		{"byte order mark", "\xef\xbb\xbfa: 1", `{"a":1}`},
		{"JSON is YAML", `{"a":[1,"x",null],"b":{"c":true}}`, `{"a":[1,"x",null],"b":{"c":true}}`},
		{"explicit key", "? a\n: b", `{"a":"b"}`},
		{"tab behind the indent of a block", "a: |\n  \tx\n", `{"a":"\tx\n"}`},
		{"scalar document", "just text", `"just text"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n, err := Parse("x.yaml", []byte(c.in), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(n.JSON()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestYAMLRefuses(t *testing.T) {
	cases := []struct {
		name, in     string
		rule         Rule
		path         string
		line, column int
	}{
		{"hexadecimal", "a: 0x1F", RuleUnsupported, "/a", 1, 4},
		{"octal", "a: 0o17", RuleUnsupported, "/a", 1, 4},
		{"leading zero", "a: 0123", RuleUnsupported, "/a", 1, 4},
		{"plus", "a: +1", RuleUnsupported, "/a", 1, 4},
		{"no whole part", "a: .5", RuleUnsupported, "/a", 1, 4},
		{"no fraction", "a: 5.", RuleUnsupported, "/a", 1, 4},
		{"infinity", "a: -.inf", RuleUnsupported, "/a", 1, 4},
		{"not a number", "a: .NaN", RuleUnsupported, "/a", 1, 4},
		{"inexact number", "a:\n  - 9007199254740993", RuleNumber, "/a/0", 2, 5},
		{"anchor", "a: &x 1", RuleUnsupported, "/a", 1, 4},
		{"alias", "a: *x", RuleUnsupported, "", 1, 4},
		{"merge", "<<: {a: 1}", RuleUnsupported, "", 1, 1},
		{"tag", "a: !!binary x", RuleUnsupported, "/a", 1, 4},
		{"lone tag", "b: é\na: [x, ! 1]", RuleUnsupported, "/a/1", 2, 8},
		{"object as a key", "[a]: b", RuleUnsupported, "", 1, 1},
		{"no key", ": b", RuleUnsupported, "", 1, 1},
		{"alias of nothing", "a: &b x\nc: *hunter2", RuleUnsupported, "", 2, 4},
		{"directive", "%YAML 1.2\n---\na: 1", RuleUnsupported, "", 1, 1},
		{"two documents", "---\na: 1\n---\nb: 2", RuleUnsupported, "", 3, 1},
		{"number as a key", "a:\n  1: x", RuleUnsupported, "/a", 2, 3},
		{"boolean as a key", "true: x", RuleUnsupported, "", 1, 1},
		{"duplicate", "a:\n  b: 1\n  \"b\": 2", RuleDuplicateKey, "/a/b", 3, 3},
		{"duplicate in flow", "{a: 1, a: 2}", RuleDuplicateKey, "/a", 1, 8},
		{"NUL escape", `a: "\0"`, RuleNUL, "/a", 1, 4},
		{"NUL", "a: \x00", RuleNUL, "", 1, 4},
		{"control", "a: \x1b", RuleSyntax, "", 1, 4},
		{"invalid UTF-8", "b: é\na: \xff", RuleUTF8, "", 2, 4},
		{"low surrogate", `a: "\udc00"`, RuleSyntax, "", 1, 4},
		{"high surrogate", `a: "\ud800"` + "\nb: some more text", RuleSyntax, "", 1, 4},
		{"bad hexadecimal", `a: ["é", "x\xZZ"]`, RuleSyntax, "", 1, 10},
		{"beyond Unicode", `a: "\U00110000"`, RuleSyntax, "", 1, 4},
		{"surrogate pair", `a: "\ud83d\ude00"`, RuleSyntax, "", 1, 4},
		{"line break of other readers", "a: \"é\u2028x\"", RuleUnsupported, "", 1, 6},
		{"not a character", "a: \uFFFE", RuleSyntax, "", 1, 4},
		{"unclosed", "a: [1", RuleSyntax, "", 1, 4},
		{"tab indent", "a:\n\t- b", RuleSyntax, "", 2, 1},
		{"bad indent", "a: 1\n  b: 2", RuleSyntax, "", 2, 4},
		{"bad dedent", "x: 1\ny:\n    z: 2\n  k: 3\n", RuleSyntax, "", 4, 3},
		{"empty", "# nothing\n", RuleSyntax, "", 1, 1},
		{"flow depth", strings.Repeat("[", 65) + strings.Repeat("]", 65), RuleDepth, strings.Repeat("/0", 64), 1, 65},
		{"block depth", strings.Repeat("- ", 65) + "x", RuleDepth, strings.Repeat("/0", 64), 1, 129},
		{"hostile depth", strings.Repeat("- ", 120_000) + "x", RuleDepth, "", 1, 289},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("x.yml", []byte(c.in), Limits{})
			var issue *Issue
			if !errors.As(err, &issue) {
				t.Fatal("accepted")
			}
			if issue.Rule != c.rule || issue.Path != c.path || issue.Line != c.line || issue.Column != c.column {
				t.Errorf("got %q %q %d:%d, want %q %q %d:%d: %v", issue.Rule, issue.Path, issue.Line, issue.Column, c.rule, c.path, c.line, c.column, err)
			}
		})
	}
}

// FuzzYAML: Parse never panics, and what it accepts is JSON under the same rules.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"a: 1\nb: [x, {y: z}]\n", "v: |\n  x\n", "- - a\n  - b\n", `{"a":"\u00e9"}`, "a: &x 1\nb: *x", "0::", "{? {? ", "|0#", ">\n>", "a: \"\\x\"", "a: 'x\n\n y'"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		watchdog := time.AfterFunc(5*time.Second, func() { panic(fmt.Sprintf("no end with %q", src)) })
		n, err := Parse("x.yaml", src, Limits{Bytes: 4096})
		watchdog.Stop()
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an empty message")
			}
			return
		}
		if err := CheckJSON(n.JSON(), Limits{Bytes: 1 << 20}); err != nil {
			t.Fatalf("%q gives %s: %v", src, n.JSON(), err)
		}
	})
}

// FuzzYAMLReadsJSON: compact JSON has the same value when it is read as YAML.
func FuzzYAMLReadsJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,"x",null],"b":{"c":true}}`, `["a\/b","\t","é","\u00e9","a: b","- x","# y"]`, `{"":"","a b":{"c,d":["}","]"]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		n, err := Parse("x.json", src, Limits{Bytes: 1024})
		if err != nil || n.Kind != Object && n.Kind != Array {
			return
		}
		y, err := Parse("x.yaml", n.JSON(), Limits{Bytes: 8192})
		if err != nil {
			return // YAML may reject more but never change a value
		}
		if string(y.JSON()) != string(n.JSON()) {
			t.Fatalf("JSON %s is read as %s", n.JSON(), y.JSON())
		}
	})
}
