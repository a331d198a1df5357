package workflow

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func wellFormed(doc []byte) bool {
	s := scanner{src: doc}
	if _, err := s.value(); err != nil {
		return false
	}
	s.skipSpace()
	return s.pos == len(doc)
}

func TestScannerAcceptsWhatEncodingJSONDoes(t *testing.T) {
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for _, doc := range []string{
		"", " ", "{", "}", "{}", " { } ", "[]", "[1,]", "[,1]", "[1 2]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`,
		"0", "-0", "00", "01", "-", "1.", ".1", "1.5", "1e", "1e+", "1E-7", "1e5", "0x1", "NaN", "+1",
		"true", "tru", "truefalse", "null", "nul", `"`, `"a`, `"\"`, `"\u12"`, `"\u12G4"`, `"\uD83D"`, `"\x"`, "\"\n\"", "\"\x7f\"", `"\/"`,
		"[1]x", "\ufeff{}", "{}\x00", deep, "[" + deep + "]",
	} {
		if got, want := wellFormed([]byte(doc)), json.Valid([]byte(doc)); got != want {
			t.Errorf("%.60q: accepted %v, encoding/json says %v", doc, got, want)
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"x\u0041",null,{"b":true}]}`, `{"a":1,"a":2}`, "[[[", `"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if got, want := wellFormed(doc), json.Valid(doc); got != want {
			t.Fatalf("%q: accepted %v, encoding/json says %v", doc, got, want)
		}
		list, _, err := members(doc)
		if err != nil || !utf8.Valid(doc) { // encoding/json makes different broken keys one
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(doc, &want); err != nil || len(want) != len(list) {
			t.Fatalf("%q: %d members, encoding/json has %d (%v)", doc, len(list), len(want), err)
		}
	})
}

func TestSplitPointer(t *testing.T) {
	for _, c := range []struct {
		pointer string
		want    string // tokens joined by |, "" when refused
	}{
		{"/a", "a"},
		{"/a/b", "a|b"},
		{"/a~1b/c~0d", "a/b|c~d"},
		{"/~01", "~1"},
		{"/0/*", "0|*"},
		{"", ""},
		{"a", ""},
		{"/", ""},
		{"/a/", ""},
		{"//a", ""},
		{"/a~", ""},
		{"/a~2", ""},
	} {
		tokens, err := splitPointer(c.pointer)
		if got := strings.Join(tokens, "|"); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v; want %q", c.pointer, got, err, c.want)
		}
		if err == nil && joinPointer("", tokens...) != c.pointer {
			t.Errorf("%q does not come back from its tokens: %q", c.pointer, joinPointer("", tokens...))
		}
	}
}

func TestSameValue(t *testing.T) {
	for _, c := range []struct {
		a, b string // "" is absent
		same bool
	}{
		{"", "", true},
		{"", "null", false},
		{"null", "null", true},
		{"null", "false", false},
		{"1", "1.0", true},
		{"1", "1e0", true},
		{"1", "2", false},
		{"1", `"1"`, false},
		{`"a"`, `"\u0061"`, true},
		{`{"a":1,"b":[2]}`, `{"b": [2], "a": 1}`, true},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `[1,1]`, false},
		{"{}", "[]", false},
	} {
		var a, b []byte
		if c.a != "" {
			a = []byte(c.a)
		}
		if c.b != "" {
			b = []byte(c.b)
		}
		if sameValue(a, b) != c.same || sameValue(b, a) != c.same {
			t.Errorf("%q and %q: want same %v", c.a, c.b, c.same)
		}
	}
}

func TestWithoutText(t *testing.T) {
	for _, c := range []struct{ source, reads string }{
		{"(data) => data.total > 0", "total"},
		{"(data) => data.a + data.b > data.a", "a|b"},
		{"(data) => data.comments?.length >= 20", ""},
		{"(data) => (data.a ?? 0) > 1", ""},
		{"(data) => data.a && data.a.length > 1", ""},
		{"(data) => !data.a || data.a > 1", ""},
		{"(data) => typeof data.a === 'number' && data.a > 1", ""},
		{"(data) => data.a !== undefined && data.a > 1", ""},
		{"(data) => 'a' in data && data.a > 1", ""},
		{"(data) => Array.isArray(data.a) && data.a.length > 1", ""},
		{"(data) => ({valid: true, reason: 'data.total is fine'})", ""},
		{"(data) => true // data.total\n", ""},
		{"(data) => /* data.total */ true", ""},
		{"(data) => /* data.total", ""},
		{"(data, context) => context.data.total > 0", ""},
		{"(data) => data . total > 0", "total"},
		{"(mydata) => mydata.total > 0", ""},
		{"(data) => 'it\\'s' + data.x", "x"},
		{"'open data.x", ""},
		{"", ""},
	} {
		if got := strings.Join(bareReads(c.source), "|"); got != c.reads {
			t.Errorf("%q reads %q, want %q", c.source, got, c.reads)
		}
	}
}
