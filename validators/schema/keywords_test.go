package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/schema"
)

func TestFindMisspelt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"requred":["x"]}`: `at /requred: unknown keyword "requred"; did you mean "required"?`,
		`{"properties":{"x":{"type":"string","minlength":3},"requred":{"type":"string"}}}`: `at /properties/x/minlength: unknown keyword "minlength"; did you mean "minLength"?`,
		`{"properties":{"n":{"mininum":1}},"allOf":[{"reqired":["n"]}]}`:                   `at /properties/n/mininum: unknown keyword "mininum"; did you mean "minimum"? at /allOf/0/reqired: unknown keyword "reqired"; did you mean "required"?`,
		`{"items":[{"tpye":"string"}],"not":{"ref":"#/x"},"$defs":{"a/b":{"enums":[1]}}}`:  `at /items/0/tpye: unknown keyword "tpye"; did you mean "type"? at /not/ref: unknown keyword "ref"; did you mean "$ref"? at /$defs/a~1b/enums: unknown keyword "enums"; did you mean "enum"?`,
		// Values are not schemas, and annotations are not mistakes.
		`{"enum":[{"requred":1}],"default":{"tpye":1},"examples":[{"minlength":1}],"const":{"requred":1}}`:                              "",
		`{"type":"string","example":"a","x-order":1,"nullable":true,"errorMessage":"no","placeholder":"a","widget":"text","id":"a"}`:    "",
		`{"$schema":"https://example.org/own-dialect","requred":["x"]}`:                                                                 "",
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{}},"dependencies":{"a":["b"],"c":{"requird":["d"]}}}`: `at /dependencies/c/requird: unknown keyword "requird"; did you mean "required"?`,
		`true`: "", `[`: "", `{"properties":["requred"]}`: "",
		strings.Repeat(`{"not":`, 200) + `{"requred":[]}` + strings.Repeat("}", 200): "",
	} {
		var got []string
		for _, e := range schema.FindMisspelt(json.RawMessage(text)) {
			got = append(got, e.Error())
		}
		if says := strings.Join(got, " "); says != want {
			t.Errorf("%.100s: %s", text, says)
		}
	}
}
