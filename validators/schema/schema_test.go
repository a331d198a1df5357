package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/schema"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, schema, doc string
		want              []string // messages; empty: valid
	}{
		{"ok", `{"type":"object"}`, `{}`, nil},
		{"type", `{"properties":{"n":{"type":"integer"}}}`, `{"n":"secret"}`, []string{`"/n" must be integer, is string`}},
		{"required", `{"required":["a","b"]}`, `{"a":1}`, []string{`the document must have 'b'`}},
		{"extra", `{"additionalProperties":false}`, `{"a":1}`, []string{`the document must not have 'a'`}},
		{"short", `{"properties":{"s":{"minLength":20}}}`, `{"s":"secret"}`, []string{`"/s" must have at least 20 characters, has 6`}},
		{"few", `{"properties":{"r":{"minItems":2}}}`, `{"r":[1]}`, []string{`"/r" must have at least 2 items, has 1`}},
		{"many", `{"maxProperties":1}`, `{"a":1,"b":2}`, []string{`the document must have at most 1 properties, has 2`}},
		{"low", `{"properties":{"n":{"minimum":3}}}`, `{"n":1}`, []string{`"/n" must be >= 3`}},
		{"multiple", `{"properties":{"n":{"multipleOf":3}}}`, `{"n":7}`, []string{`"/n" must be a multiple of 3`}},
		{"format asserted", `{"properties":{"d":{"format":"date"}}}`, `{"d":"secret"}`, []string{`"/d" must be a valid date`}},
		{"pattern", `{"properties":{"s":{"pattern":"^a+$"}}}`, `{"s":"secret"}`, []string{`"/s" must match the pattern '^a+$'`}},
		{"enum", `{"properties":{"s":{"enum":["x","y"]}}}`, `{"s":"secret"}`, []string{`"/s" must be one of "x", "y"`}},
		{"two at once", `{"required":["a"],"properties":{"n":{"type":"integer"}}}`, `{"n":"x"}`, []string{`the document must have 'a'`, `"/n" must be integer, is string`}},
		{"any of", `{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{}`, []string{`the document must match at least one of the alternatives: must have 'a'; or must have 'b'`}},
		{"local ref", `{"$defs":{"n":{"type":"number"}},"properties":{"n":{"$ref":"#/$defs/n"}}}`, `{"n":"x"}`, []string{`"/n" must be number, is string`}},
		{"draft 7 tuple", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"r":{"items":[{"type":"string"}]}}}`, `{"r":[1]}`, []string{`"/r/0" must be string, is number`}},
		{"2020-12 tuple", `{"properties":{"r":{"prefixItems":[{"type":"string"}]}}}`, `{"r":[1]}`, []string{`"/r/0" must be string, is number`}},
		{"exact numbers", `{"properties":{"n":{"maximum":9007199254740992}}}`, `{"n":9007199254740993}`, []string{`"/n" must be <= 9007199254740992`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := schema.Compile(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.ValidateJSON(json.RawMessage(c.doc))
			if err != nil {
				t.Fatal(err)
			}
			var messages []string
			for _, v := range got {
				messages = append(messages, v.Message)
				if v.Keyword == "" || strings.Contains(v.Message, "secret") {
					t.Errorf("keyword %q, message %q", v.Keyword, v.Message)
				}
			}
			if strings.Join(messages, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got  %q\nwant %q", messages, c.want)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, schema, want string }{
		{"not JSON", `{`, "not JSON"},
		{"bad type", `{"type":"strnig"}`, "/type"},
		{"bad keyword value", `{"properties":{"a":{"minLength":-1}}}`, "/properties/a/minLength"},
		{"http ref", `{"$ref":"http://127.0.0.1:1/x.json"}`, "loads nothing from the network"},
		{"file ref", `{"$ref":"file:///etc/passwd"}`, "loads nothing from the network"},
		{"relative ref", `{"properties":{"a":{"$ref":"other.json"}}}`, "loads nothing from the network"},
		{"foreign $schema", `{"$schema":"http://127.0.0.1:1/meta"}`, "loads nothing from the network"},
		{"missing def", `{"$ref":"#/$defs/none"}`, "none"},
		{"loop", `{"$ref":"#"}`, "leads back to itself"},
		{"look-around", `{"pattern":"(?=a)b"}`, "RE2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := schema.Compile(json.RawMessage(c.schema))
			var ce *schema.CompileError
			if !errors.As(err, &ce) || !strings.Contains(ce.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if ce != nil && strings.Contains(ce.Error(), "gavel:///") {
				t.Errorf("the internal address shows: %v", ce)
			}
		})
	}
}

func TestViolationsAreBounded(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile(json.RawMessage(`{"items":{"type":"string"}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.ValidateJSON(json.RawMessage("[" + strings.Repeat("1,", 99) + "1]"))
	if err != nil || len(got) != schema.MaxViolations+1 || !strings.Contains(got[len(got)-1].Message, "80 more") {
		t.Errorf("%d violations, last %v, %v", len(got), got[len(got)-1], err)
	}
}

func TestSimple(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string","pattern":"x"}},"required":["a"]}`: true,
		`{"allOf":[{"required":["a"]}]}`:             true,
		`{"allOf":[{"anyOf":[{"required":["a"]}]}]}`: false,
		`{"$defs":{"a":{}},"$ref":"#/$defs/a"}`:      false,
		`{"properties":{"a":{"uniqueItems":true}}}`:  false,
		`{"not":{"properties":{"a":{"not":{}}}}}`:    false,
		`true`: true,
		`{`:    false,
	} {
		if got := schema.Simple(json.RawMessage(doc)); got != want {
			t.Errorf("Simple(%s) = %v", doc, got)
		}
	}
}

func ExampleCompile() {
	s, _ := schema.Compile(json.RawMessage(`{"properties":{"reviewers":{"type":"array","minItems":2}}}`))
	violations, _ := s.ValidateJSON(json.RawMessage(`{"reviewers":["rob"]}`))
	fmt.Println(violations[0].Message)
	// Output: "/reviewers" must have at least 2 items, has 1
}

func FuzzCompileAndValidate(f *testing.F) {
	f.Add(`{"type":"object"}`, `{}`)
	f.Add(`{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}`, `[1]`)
	f.Add(`{"pattern":"("}`, `"x"`)
	f.Fuzz(func(t *testing.T, sch, doc string) {
		if len(sch) > 256 || len(doc) > 256 || !schema.Simple(json.RawMessage(sch)) {
			return // time is bounded by the sandbox, not here
		}
		s, err := schema.Compile(json.RawMessage(sch))
		if err != nil {
			return
		}
		if out, err := s.ValidateJSON(json.RawMessage(doc)); err == nil && len(out) > schema.MaxViolations+1 {
			t.Errorf("%d violations", len(out))
		}
	})
}
