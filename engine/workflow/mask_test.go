package workflow_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// sensitive is a definition in which only the sensitive fields matter.
func sensitive(t testing.TB, pointers ...string) *workflow.Definition {
	t.Helper()
	list, err := json.Marshal(append([]string{}, pointers...))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"sensitive":`+string(list)+`}`)
}

func TestMask(t *testing.T) {
	for _, c := range []struct{ pointers, doc, want string }{
		{"/ssn", `{"ssn":"123-45-6789","a":1}`, `{"ssn":"</ssn>","a":1}`},
		{"/c/ssn", `{"c":{"ssn":5,"n":"x"},"ssn":1}`, `{"c":{"ssn":"</c/ssn>","n":"x"},"ssn":1}`},
		{"/c", `{"c":{"ssn":5}}`, `{"c":"</c>"}`},
		{"/c", `{"c":null}`, `{"c":null}`},
		{"/c", `{"c":false}`, `{"c":"</c>"}`},
		{"/c/ssn", `{"c":null}`, `{"c":null}`},
		{"/c/ssn", `{"c":"text"}`, `{"c":"text"}`},
		{"/l/0", `{"l":[1,2]}`, `{"l":["</l/0>",2]}`},
		{"/l/9", `{"l":[1,2]}`, `{"l":[1,2]}`},
		{"/l/*/ssn", `{"l":[{"ssn":1},{"ssn":2,"n":3},4]}`, `{"l":[{"ssn":"</l/0/ssn>"},{"ssn":"</l/1/ssn>","n":3},4]}`},
		{"/*/ssn", `{"a":{"ssn":1},"b":{"ssn":2},"ssn":3}`, `{"a":{"ssn":"</a/ssn>"},"b":{"ssn":"</b/ssn>"},"ssn":3}`},
		{"/*", `{"a":1,"*":2}`, `{"a":"</a>","*":"</*>"}`},
		{"/*/x /a/y", `{"a":{"x":1,"y":2,"z":3}}`, `{"a":{"x":"</a/x>","y":"</a/y>","z":3}}`},
		{"/a /a/b", `{"a":{"b":1}}`, `{"a":"</a>"}`},
		{"/a~1b/c~0d", `{"a/b":{"c~d":1}}`, `{"a/b":{"c~d":"</a~1b/c~0d>"}}`},
		{"/é", `{"\u00e9":1,"n":1.50}`, `{"\u00e9":"</é>","n":1.50}`},
		{"/ssn", `{}`, `{}`},
		{"/ssn", ``, ``},
	} {
		d := sensitive(t, strings.Fields(c.pointers)...)
		got, err := d.Mask(raw(c.doc), func(p string, _ json.RawMessage) string { return "<" + p + ">" })
		// json.Marshal writes < and > as escapes.
		plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(got))
		if err != nil || plain != c.want {
			t.Errorf("%s of %s: %s, %v; want %s", c.pointers, c.doc, plain, err, c.want)
		}
	}
	for _, doc := range []string{`{"ssn":`, `{"ssn":tru}`, `[`} {
		if got, err := sensitive(t, "/ssn").Mask(raw(doc), nil); err == nil {
			t.Errorf("%s was masked as %s, want an error", doc, got)
		}
	}
}

func TestMaskSharesUnmaskedDocuments(t *testing.T) {
	doc := raw(`{"a":1}`)
	for _, d := range []*workflow.Definition{sensitive(t), sensitive(t, "/ssn"), {}} {
		got, err := d.Mask(doc, nil)
		if err != nil || &got[0] != &doc[0] {
			t.Errorf("%v: a copy was made (%v)", d.Sensitive, err)
		}
	}
	byHand := &workflow.Definition{Sensitive: []string{"/a"}}
	if got, err := byHand.Mask(doc, nil); err != nil || string(got) != `{"a":"[masked]"}` {
		t.Errorf("a definition made by hand: %s, %v", got, err)
	}
}

func TestScrubber(t *testing.T) {
	d := sensitive(t, "/c", "/token", "/l/*/n")
	scrub := d.Scrubber(
		raw(`{"c":{"name":"Ada Lovelace","age":36,"account":12345678,"rate":1.50e3,"ok":true,"list":["first secret",null]}}`),
		nil,
		raw(`{"token":"he said \"hi\"\n","l":[{"n":"short"},{"n":"shorter"}],"other":"not secret"}`),
		raw(`{"token":`),
	)
	for _, c := range []struct{ text, want string }{
		{"for Ada Lovelace, aged 36", "for [masked], aged 36"}, // 36 is too short to recognise
		{"account 12345678.", "account [masked]."},
		{"rate 1.50e3 or 1500", "rate [masked] or [masked]"},
		{"true", "true"},
		{`token "he said \"hi\"\n"`, `token "[masked]"`},
		{"token he said \"hi\"\n!", "token [masked]!"},
		{"shorter short", "[masked] [masked]"}, // the longer one first, without a rest
		{"first secret not secret", "[masked] not secret"},
		{"", ""},
	} {
		if got := scrub(c.text); got != c.want {
			t.Errorf("%q became %q, want %q", c.text, got, c.want)
		}
	}
	if got := sensitive(t).Scrubber(raw(`{"a":"anything"}`))("anything"); got != "anything" {
		t.Errorf("nothing is sensitive, yet %q", got)
	}
}

// anyDocument generates a JSON value in which the scalars at sensitive places are
// recognisable by their text.
func anyDocument(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind %= 4
		}
		switch kind {
		case 0:
			return rapid.SampledFrom([]any{"word", "", "\"quoted\"", "<html>"}).Draw(t, "text")
		case 1:
			return rapid.IntRange(-5, 5).Draw(t, "number")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return nil
		case 4:
			return rapid.SliceOfN(anyDocument(depth-1), 0, 3).Draw(t, "list")
		default:
			return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "*", "0"}), anyDocument(depth-1), 0, 4).Draw(t, "object")
		}
	})
}

// secretsAt puts a marker into every scalar below the pointers.
func secretsAt(doc any, tokens []string) any {
	if len(tokens) == 0 {
		switch v := doc.(type) {
		case map[string]any:
			for k := range v {
				v[k] = secretsAt(v[k], nil)
			}
			return v
		case []any:
			for i := range v {
				v[i] = secretsAt(v[i], nil)
			}
			return v
		case nil:
			return nil
		default:
			return "S3CRET"
		}
	}
	switch v := doc.(type) {
	case map[string]any:
		for k := range v {
			if k == tokens[0] || tokens[0] == "*" {
				v[k] = secretsAt(v[k], tokens[1:])
			}
		}
	case []any:
		for i := range v {
			if tokens[0] == "*" || tokens[0] == string(rune('0'+i)) {
				v[i] = secretsAt(v[i], tokens[1:])
			}
		}
	}
	return doc
}

// No masked copy contains a sensitive scalar, and nothing else changes.
func TestMaskedCopiesHoldNoSecret(t *testing.T) {
	pointer := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "*", "0", "1"}), 1, 3)
	rapid.Check(t, func(rt *rapid.T) {
		pointers := rapid.SliceOfN(pointer, 1, 3).Draw(rt, "pointers")
		doc := any(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "*"}), anyDocument(3), 0, 4).Draw(rt, "doc"))
		d := &workflow.Definition{}
		for _, p := range pointers {
			doc = secretsAt(doc, p)
			d.Sensitive = append(d.Sensitive, "/"+strings.Join(p, "/"))
		}
		text, err := json.Marshal(doc)
		if err != nil {
			rt.Fatal(err)
		}
		kept := map[string]json.RawMessage{}
		masked, err := d.Mask(text, func(p string, v json.RawMessage) string { kept[p] = v; return "hidden" })
		if err != nil || !json.Valid(masked) {
			rt.Fatalf("%s: %v", masked, err)
		}
		if bytes.Contains(masked, []byte("S3CRET")) {
			rt.Fatalf("%v of %s left %s", d.Sensitive, text, masked)
		}
		if len(kept) == 0 && !bytes.Equal(masked, text) {
			rt.Fatalf("nothing was replaced, yet %s became %s", text, masked)
		}
		if got := d.Scrubber(text)(string(text)); strings.Contains(got, "S3CRET") {
			rt.Fatalf("scrubbed text holds a secret: %s", got)
		}
	})
}
