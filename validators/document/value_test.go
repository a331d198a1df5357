package document

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestReadTrustedAgreesWithEncodingJSON(t *testing.T) {
	deep := strings.Repeat("[", maxTrustedDepth) + strings.Repeat("]", maxTrustedDepth)
	for _, doc := range []string{
		"", " ", "{", "}", "{}", " { } ", "[]", "[1,]", "[,1]", "[1 2]", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`,
		"0", "-0", "00", "01", "-", "1.", ".1", "1.5", "1e", "1e+", "1E-7", "1e5", "0x1", "NaN", "+1", "1e999",
		"true", "tru", "truefalse", "null", "nul", `"`, `"a`, `"\"`, `"\u12"`, `"\u12G4"`, `"\uD83D"`, `"\x"`, "\"\n\"", "\"\x7f\"", `"\/"`, `"\u0000"`,
		"[1]x", "\ufeff{}", "{}\x00", `{"a":1,"a":2}`, deep, "[" + deep + "]",
	} {
		if got, want := ReadTrusted([]byte(doc)).Kind() != 0, json.Valid([]byte(doc)); got != want {
			t.Errorf("%.60q: accepted %v, encoding/json says %v", doc, got, want)
		}
	}
}

// FuzzKnown compares lookups in a document with encoding/json.
func FuzzKnown(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"x\u0041\ud83d\ude00\ud83d",null,{"b":true}]}`, `{"a":1,"a":2}`, "[[[", `"\`, ` { "a" : [ 1 , 2 ] } `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		v := ReadTrusted(doc)
		valid := json.Valid(doc) && utf8.Valid(doc)
		if (v.Kind() != 0) != valid {
			t.Fatalf("%q: accepted %v, encoding/json says %v", doc, v.Kind() != 0, valid)
		}
		if !valid {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, doc); err != nil || compact.String() != string(v.Raw()) {
			t.Fatalf("%q became %s, want %s", doc, v.Raw(), compact.String())
		}
		dec := json.NewDecoder(bytes.NewReader(doc))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(v.Any(), want) {
			t.Fatalf("%q is %v, want %v", doc, v.Any(), want)
		}
	})
}

func TestFinding(t *testing.T) {
	v := ReadTrusted([]byte(`{"a/b":{"c~":[1,{"\u0064":"x\n"}]},"n":null}`))
	if got := v.At("a/b", "c~", "1", "d"); got.Text() != "x\n" || !got.Is("x\n") || string(got.Raw()) != `"x\n"` {
		t.Errorf("found %s", got.Raw())
	}
	for _, way := range [][]string{{"x"}, {"a/b", "c~", "2"}, {"a/b", "c~", "-1"}, {"a/b", "c~", "01"}, {"n", "x"}} {
		if got := v.At(way...); got.Kind() != 0 || got.Raw() != nil {
			t.Errorf("%q leads to %s", way, got.Raw())
		}
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string // "" means absent
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
		a, b := ReadTrusted([]byte(c.a)), ReadTrusted([]byte(c.b))
		if a.Equal(b) != c.same || b.Equal(a) != c.same {
			t.Errorf("%q and %q: want same %v", c.a, c.b, c.same)
		}
	}
}

// TestBuilder compares what was built with a new reading of its text.
func TestBuilder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "x", "é", "\"", "\n", "\x01", "a b"})
		docs := rapid.SampledFrom([]string{`1.50`, `"\u0041"`, `{"a":[{},[]],"b":"\""}`, `[true, null, {"c":{"d":1}}]`})
		b := NewBuilder()
		b.Begin(Array)
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			if rapid.Bool().Draw(t, "copy") {
				b.Copy(ReadTrusted([]byte(docs.Draw(t, "doc"))))
				continue
			}
			b.Begin(Object)
			b.Name(ReadTrusted(AppendQuote(nil, text.Draw(t, "name"))))
			b.String(text.Draw(t, "value"))
			b.End()
		}
		b.End()
		got := b.JSON()
		if read := ReadTrusted(got.Raw()); string(read.Raw()) != string(got.Raw()) || !reflect.DeepEqual(read.cells, got.cells) {
			t.Fatalf("%s: cells %v, want %v", got.Raw(), got.cells, read.cells)
		}
	})
}

func TestEditKeepsTheRest(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`: `{}`, `[]`: `[]`,
		`{"a\u0041": 1.50, "name":"x","gone":[1], "n":90071992547409931234}`: `{"a\u0041":1.50,"name":"y","n":90071992547409931234}`,
		`{"gone":1}`:        `{}`,
		`[1e400, "\ud800"]`: `[1e400,"\ud800"]`,
	} {
		got := ReadTrusted([]byte(in)).Edit(func(name string, value JSON) json.RawMessage {
			switch name {
			case "name":
				return json.RawMessage(`"y"`)
			case "gone":
				return nil
			default:
				return value.Raw()
			}
		})
		if string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Numbers that a float64 would change stay distinct, in the text and in the canonical form.
func TestLiteralsKeepTheirNumbers(t *testing.T) {
	read := func(text string) JSON {
		v, err := ReadJSON([]byte(text), Limits{Literals: true})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, pair := range [][2]string{{"9007199254740993", "9007199254740992"}, {"1e400", "1e401"}, {"1e-400", "0"}} {
		a, b := read(pair[0]), read(pair[1])
		if a.Equal(b) || string(a.Canonical()) != pair[0] {
			t.Errorf("%s and %s: %s, %s", pair[0], pair[1], a.Canonical(), b.Canonical())
		}
	}
	if !read("1.50").Equal(read("15e-1")) {
		t.Error("one number, two values")
	}
	if _, err := ReadJSON([]byte(`{"a":1,"a":2}`), Limits{Literals: true}); err == nil {
		t.Error("a duplicate key is accepted")
	}
}
