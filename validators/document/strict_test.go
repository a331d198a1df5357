package document_test

import (
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/document"
)

// A part of a document is the same, and is rejected for the same reasons, as if it were read alone. Only parts
// read under other rules or nested too deep must be read again.
func TestStrict(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5) + strings.Repeat("]", 5)
	for name, c := range map[string]struct {
		text   string
		limits document.Limits
		depth  int
		want   string // "" if it must be read again
	}{
		"compact":            {`{"d":{"a":[1,"x"],"b":null}}`, document.Limits{}, 64, `{"a":[1,"x"],"b":null}`},
		"spaced":             {"{ \"d\" : { \"a\" : [ 1.50 , \"x y\" ] } }", document.Limits{Spaced: true}, 64, `{"a":[1.50,"x y"]}`},
		"as deep as allowed": {`{"d":` + deep + `}`, document.Limits{}, 5, deep},
		"deeper":             {`{"d":` + deep + `}`, document.Limits{}, 4, ""},
		"siblings":           {`{"d":[[],[[]],{}]}`, document.Limits{}, 3, `[[],[[]],{}]`},
		"lax":                {`{"d":{}}`, document.Limits{Lax: true}, 64, ""},
		"any number":         {`{"d":{}}`, document.Limits{Literals: true}, 64, ""},
		"absent":             {`{"e":{}}`, document.Limits{}, 64, ""},
	} {
		c.limits.Bytes = 1000
		v, err := document.ReadJSON([]byte(c.text), c.limits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, ok := v.Get("d").Strict(c.depth)
		if ok != (c.want != "") || string(got.Raw()) != c.want {
			t.Errorf("%s: %s, %v; not %q", name, got.Raw(), ok, c.want)
		}
		if again, ok := got.Strict(c.depth); c.want != "" && (!ok || string(again.Raw()) != c.want) {
			t.Errorf("%s, again: %s, %v", name, again.Raw(), ok)
		}
	}
}
