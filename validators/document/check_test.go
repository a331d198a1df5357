package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	manyKeys := func(last string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range 40 {
			fmt.Fprintf(&b, `"key%d":%d,`, i, i)
		}
		return b.String() + `"` + last + `":0}`
	}
	cases := []struct {
		name, in string
		rule     Rule // "" if accepted
		path     string
		column   int
	}{
		{name: "object", in: `{"a":[1,true,false,null,"x",{}],"b":{"c":[]}}`},
		{name: "white space", in: " \t\r\n{ \"a\" : [ 1 , 2 ] }\n"},
		{name: "scalar", in: `"x"`},
		{name: "zeros", in: `[0,-0,0.0,0e5,0e-999,1E+2,-1.5e-3]`},
		{name: "escapes", in: `"\"\\\/\b\f\n\r\té😀"`},
		{name: "same key in different objects", in: `{"a":{"a":{"a":1}},"b":{"a":1}}`},
		{name: "keys differ in case", in: `{"a":1,"A":2}`},
		{name: "many keys", in: manyKeys("key40")},
		{name: "deepest", in: deep(DefaultDepth)},

		{name: "empty", in: ``, rule: RuleSyntax, column: 1},
		{name: "only space", in: "  ", rule: RuleSyntax, column: 3},
		{name: "byte order mark", in: "\xef\xbb\xbf{}", rule: RuleSyntax, column: 1},
		{name: "trailing comma", in: `{"a":1,}`, rule: RuleSyntax, column: 8},
		{name: "trailing comma in array", in: `[1,]`, rule: RuleSyntax, path: "/1", column: 4},
		{name: "two values", in: `{} {}`, rule: RuleSyntax, column: 4},
		{name: "unclosed string", in: `{"a":"x`, rule: RuleSyntax, path: "/a", column: 6},
		{name: "unclosed object", in: `{"a":1`, rule: RuleSyntax, column: 7},
		{name: "no colon", in: `{"a" 1}`, rule: RuleSyntax, column: 6},
		{name: "bare word", in: `[nul]`, rule: RuleSyntax, path: "/0", column: 2},
		{name: "NaN", in: `[NaN]`, rule: RuleSyntax, path: "/0", column: 2},
		{name: "leading zero", in: `[01]`, rule: RuleSyntax, path: "/0", column: 2},
		{name: "bare point", in: `[1.]`, rule: RuleSyntax, path: "/0", column: 2},
		{name: "bare exponent", in: `[1e]`, rule: RuleSyntax, path: "/0", column: 2},
		{name: "plus", in: `[+1]`, rule: RuleSyntax, path: "/0", column: 2},
		{name: "line break in string", in: "[\"a\nb\"]", rule: RuleSyntax, path: "/0", column: 4},
		{name: "tab in string", in: "[\"a\tb\"]", rule: RuleSyntax, path: "/0", column: 4},
		{name: "unknown escape", in: `["\x41"]`, rule: RuleSyntax, path: "/0", column: 3},
		{name: "short escape", in: `["\u12"]`, rule: RuleSyntax, path: "/0", column: 3},

		{name: "invalid UTF-8", in: "{\"a\":\"\xff\"}", rule: RuleUTF8, path: "/a", column: 7},
		{name: "overlong", in: "[\"\xc0\xaf\"]", rule: RuleUTF8, path: "/0", column: 3},
		{name: "surrogate bytes", in: "[\"\xed\xa0\x80\"]", rule: RuleUTF8, path: "/0", column: 3},
		{name: "invalid UTF-8 in key", in: "{\"\xff\":1}", rule: RuleUTF8, column: 3},
		{name: "lone high surrogate", in: `{"a":"\ud800"}`, rule: RuleUTF8, path: "/a", column: 7},
		{name: "lone low surrogate", in: `{"a":"\udc00x"}`, rule: RuleUTF8, path: "/a", column: 7},
		{name: "two high surrogates", in: `["\ud800\ud800"]`, rule: RuleUTF8, path: "/0", column: 3},
		{name: "raw NUL", in: "[\"\x00\"]", rule: RuleNUL, path: "/0", column: 3},
		{name: "escaped NUL", in: `{"a\/b~":"x\u0000"}`, rule: RuleNUL, path: "/a~1b~0", column: 12},
		{name: "escaped NUL in key", in: `{"\u0000":1}`, rule: RuleNUL, column: 3},

		{name: "duplicate", in: `{"a":1,"b":2,"a":3}`, rule: RuleDuplicateKey, path: "/a", column: 14},
		{name: "duplicate below", in: `{"x":[{},{"a":1,"a":1}]}`, rule: RuleDuplicateKey, path: "/x/1/a", column: 17},
		{name: "duplicate by escape", in: `{"a":1,"\u0061":2}`, rule: RuleDuplicateKey, path: "/a", column: 8},
		{name: "duplicate empty key", in: `{"":1,"":2}`, rule: RuleDuplicateKey, path: "/", column: 7},
		{name: "duplicate after a child", in: `{"a":{"b":1,"c":2},"a":2}`, rule: RuleDuplicateKey, path: "/a", column: 20},
		{name: "duplicate among many", in: manyKeys("key7"), rule: RuleDuplicateKey, path: "/key7", column: 422},

		{name: "integer beyond float64", in: `{"a":[0,9007199254740993]}`, rule: RuleNumber, path: "/a/1", column: 9},
		{name: "infinite", in: `[1e400]`, rule: RuleNumber, path: "/0", column: 2},
		{name: "vanishing", in: `[1e-400]`, rule: RuleNumber, path: "/0", column: 2},
		{name: "more digits than kept", in: `[0.1000000000000000055]`, rule: RuleNumber, path: "/0", column: 2},

		{name: "too deep", in: deep(DefaultDepth + 1), rule: RuleDepth, path: strings.Repeat("/0", DefaultDepth), column: 65},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := CheckJSON([]byte(c.in), Limits{})
			var issue *Issue
			if !errors.As(err, &issue) {
				issue = &Issue{}
			}
			if issue.Rule != c.rule || issue.Path != c.path || issue.Column != c.column {
				t.Fatalf("got %q at %q column %d (%v), want %q at %q column %d", issue.Rule, issue.Path, issue.Column, err, c.rule, c.path, c.column)
			}
			// Parse applies the same rules and gives the same answer.
			_, parseErr := Parse("x.json", []byte(c.in), Limits{})
			if c.name == "byte order mark" {
				return // skipped at the beginning of a file
			}
			if (err == nil) != (parseErr == nil) {
				t.Fatalf("CheckJSON says %v, Parse says %v", err, parseErr)
			}
			if err != nil && strings.TrimPrefix(parseErr.Error(), "x.json:") == parseErr.Error() {
				t.Errorf("the message lacks the document's name: %v", parseErr)
			}
		})
	}
}

func TestLimitsBind(t *testing.T) {
	if err := CheckJSON([]byte(`{"a":1}`), Limits{Bytes: 7, Depth: 1}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	for rule, l := range map[Rule]Limits{RuleSize: {Bytes: 6}, RuleDepth: {Depth: 1}} {
		var issue *Issue
		if err := CheckJSON([]byte(`{"a":[]}`), l); !errors.As(err, &issue) || issue.Rule != rule {
			t.Errorf("%+v: got %v, want %s", l, err, rule)
		}
	}
}

func TestMessagesHoldNoValues(t *testing.T) {
	for _, in := range []string{
		`{"a":"hunter2\q"}`, `{"a":"hunter2` + "\xff" + `"}`, `{"a":"hunter2" x}`, `{"a":hunter2}`, `["hunter2"`, `{"a":1e400}`,
	} {
		err := CheckJSON([]byte(in), Limits{})
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "e400") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestNumberRule compares the rule with its definition, computed exactly.
func TestNumberRule(t *testing.T) {
	exact := func(lit string) bool {
		f, err := strconv.ParseFloat(lit, 64)
		if err != nil {
			return false
		}
		want, _ := new(big.Rat).SetString(lit)
		got, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
		return want.Cmp(got) == 0
	}
	digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		lit := digits.Draw(t, "literal")
		if got, want := keepsValue(lit), exact(lit); got != want {
			t.Fatalf("%s: got %v, want %v", lit, got, want)
		}
	})
	rapid.Check(t, func(t *rapid.T) { // every float in its own shortest form
		f := rapid.Float64().Draw(t, "float")
		for _, form := range []byte("ef") {
			if lit := strconv.FormatFloat(f, form, -1, 64); !keepsValue(lit) {
				t.Fatalf("%s is refused", lit)
			}
		}
	})
	for lit, want := range map[string]bool{
		"0.1": true, "123456789012345": true, "9007199254740992": true, "9007199254740993": false,
		"1.7976931348623157e308": true, "1.7976931348623159e308": false, "5e-324": true, "4e-324": false, "2e-324": false,
		"0e99999999999999999999": true, "1e99999999999999999999": false, "1e-99999999999999999999": false,
		"1" + strings.Repeat("0", 300): true, "0." + strings.Repeat("0", 290) + "1": true,
		"100000000000000000000000000000001e-32": false, "1.0000000000000000000000000000": true,
	} {
		if got := keepsValue(lit); got != want {
			t.Errorf("%.40s: got %v, want %v", lit, got, want)
		}
	}
}

func TestCheckJSONDoesNotAllocate(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector allocates")
	}
	doc := kilobyte()
	if n := testing.AllocsPerRun(200, func() { _ = CheckJSON(doc, Limits{}) }); n > 0.5 {
		t.Errorf("%v allocations for a good document, want none", n)
	}
}

// FuzzCheckJSON compares CheckJSON with encoding/json: what it accepts is valid, and what it rejects for
// syntax is not.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"x\u00e9"],"b":null}`, `{"a":1,"a":2}`, `[1e400]`, `"\ud800"`, "\"\xff\"", `{"a":1,}`, "[[[[]]]]", " 1 ", `{"\u0061":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := CheckJSON(raw, Limits{})
		valid := json.Valid(raw)
		var issue *Issue
		if errors.As(err, &issue); issue == nil {
			if !valid {
				t.Fatalf("accepted, but no JSON: %q", raw)
			}
		} else if valid && issue.Rule == RuleSyntax {
			t.Fatalf("refused for syntax, but JSON: %q: %v", raw, err)
		}
		n, parseErr := Parse("x.json", raw, Limits{})
		if strings.HasPrefix(string(raw), "\xef\xbb\xbf") {
			return
		}
		if (parseErr == nil) != (err == nil) {
			t.Fatalf("CheckJSON says %v, Parse says %v", err, parseErr)
		}
		if err == nil {
			again, err := Parse("x.json", n.JSON(), Limits{})
			if err != nil || string(again.JSON()) != string(n.JSON()) {
				t.Fatalf("%q does not survive a round trip: %v", raw, err)
			}
		}
	})
}

// kilobyte is a typical document of about 1 KB.
func kilobyte() []byte {
	doc := `{"documentId":"doc-2291","title":"Quarterly infrastructure review","reviewer":"dana@example.com","priority":3,"approved":false,"tags":["infra","q3","cost"],"sections":[`
	for i := range 5 {
		if i > 0 {
			doc += ","
		}
		doc += fmt.Sprintf(`{"id":%d,"heading":"Section %d","words":%d,"ratio":0.%d5,"body":"The cluster was moved in May; see the notes of %d Jun for details."}`, i, i, 120+i, i, i+1)
	}
	return []byte(doc + `],"comments":"Checked every section against the runbook and the bill; two typos in section 3 were fixed while reading.","meta":{"source":"cli","attempt":1,"host":null}}`)
}

func BenchmarkJSON(b *testing.B) {
	doc := kilobyte()
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("CheckJSON", func() error { return CheckJSON(doc, Limits{}) })
	run("Parse", func() error { _, err := Parse("", doc, Limits{}); return err })
	run("Canonical", func() error { _, err := Canonical(doc); return err })
	run("baseline_json.Valid", func() error {
		if !json.Valid(doc) {
			return errors.New("not valid")
		}
		return nil
	})
	run("baseline_json.Unmarshal", func() error { var v any; return json.Unmarshal(doc, &v) })
}
