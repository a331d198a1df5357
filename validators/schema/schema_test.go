package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

func compile(t testing.TB, raw string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// In all documents below, "secret" and 4711 are values that no message may show.
func TestViolations(t *testing.T) {
	t.Parallel()
	const draft7 = `"$schema":"http://json-schema.org/draft-07/schema#",`
	cases := []struct {
		name, schema, doc string
		want              []string // "path keyword: message (hint)"; empty if valid
	}{
		{"ok", `{"type":"object"}`, `{}`, nil},
		{"true", `true`, `[1]`, nil},
		{"false", `false`, `[1]`, []string{` : the document is not allowed`}},

		{"type", `{"properties":{"n":{"type":"integer"}}}`, `{"n":"secret"}`, []string{`/n type: "/n" must be integer, is string (Write "/n" without quotes.)`}},
		{"types", `{"properties":{"n":{"type":["string","null"]}}}`, `{"n":4711}`, []string{`/n type: "/n" must be string or null, is number (Write "/n" in quotes.)`}},
		{"fraction", `{"type":"integer"}`, `4711.5`, []string{` type: the document must be integer, is number (Write the document as a whole number.)`}},
		{"1.0 is an integer", `{"type":"integer"}`, `1.0`, nil},
		{"JSON in a string", `{"properties":{"o":{"type":"object"}}}`, `{"o":"{}"}`, []string{`/o type: "/o" must be object, is string (Send "/o" as JSON, not as a string of JSON.)`}},
		{"no list", `{"properties":{"n":{"type":"array"}}}`, `{"n":"secret"}`, []string{`/n type: "/n" must be array, is string (Put "/n" in a list, even if it is a single item.)`}},
		{"null", `{"properties":{"n":{"type":"string"}}}`, `{"n":null}`, []string{`/n type: "/n" must be string, is null (Leave "/n" out if it has no value.)`}},

		{"required", `{"properties":{"o":{"required":["a","b","c/d"]}}}`, `{"o":{"b":1}}`, []string{`/o/a required: "/o/a" is required`, `/o/c~1d required: "/o/c~1d" is required`}},
		{"extra", `{"properties":{"a":{},"b":{}},"patternProperties":{"^x-":{}},"additionalProperties":false}`, `{"a":1,"c":"secret","x-y":1}`, []string{`/c additionalProperties: "/c" is not allowed (Remove "/c"; allowed are a, b.)`}},
		{"extra by schema", `{"additionalProperties":{"type":"string"}}`, `{"c":4711}`, []string{`/c type: "/c" must be string, is number (Write "/c" in quotes.)`}},
		{"unevaluated", `{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1,"c":"secret"}`, []string{`/c : "/c" is not allowed`}},
		{"property that may not be", `{"properties":{"a":false}}`, `{"a":"secret"}`, []string{`/a : "/a" is not allowed`}},
		{"dependent", `{"dependentRequired":{"a":["b"]}}`, `{"a":"secret"}`, []string{`/b dependentRequired: "/b" is required when "a" is present`}},
		{"dependencies of draft 7", `{` + draft7 + `"dependencies":{"a":["c","b"]}}`, `{"a":1,"c":1}`, []string{`/b dependencies: "/b" is required when "a" is present`}},
		{"property names", `{"propertyNames":{"maxLength":3}}`, `{"abcd":"secret"}`, []string{`/abcd maxLength: the property name "abcd" must have at most 3 characters, has 4`}},
		{"a property called propertyNames", `{"properties":{"propertyNames":{"maxLength":3}}}`, `{"propertyNames":"secret"}`, []string{`/propertyNames maxLength: "/propertyNames" must have at most 3 characters, has 6`}},
		{"few keys", `{"minProperties":1}`, `{}`, []string{` minProperties: the document must have at least 1 key, has 0`}},
		{"many keys", `{"maxProperties":1}`, `{"a":1,"b":2}`, []string{` maxProperties: the document must have at most 1 key, has 2`}},

		{"short", `{"properties":{"s":{"minLength":20}}}`, `{"s":"secret"}`, []string{`/s minLength: "/s" must have at least 20 characters, has 6`}},
		{"characters, not bytes", `{"maxLength":2}`, `"é😀"`, nil},
		{"long", `{"maxLength":1}`, `"é😀"`, []string{` maxLength: the document must have at most 1 character, has 2`}},
		{"pattern", `{"properties":{"s":{"pattern":"^a+$"}}}`, `{"s":"secret"}`, []string{`/s pattern: "/s" must match the pattern ^a+$`}},
		{"format is asserted", `{"properties":{"d":{"format":"date"}}}`, `{"d":"secret"}`, []string{`/d format: "/d" must be a valid date (Write "/d" like 2026-01-31.)`}},
		{"format is asserted, draft named", `{"$schema":"https://json-schema.org/draft/2020-12/schema","format":"date"}`, `"secret"`, []string{` format: the document must be a valid date (Write the document like 2026-01-31.)`}},
		{"unknown format", `{"format":"shoe-size"}`, `"secret"`, nil},
		{"enum", `{"properties":{"s":{"enum":["x",1,null]}}}`, `{"s":"secret"}`, []string{`/s enum: "/s" must be one of "x", 1, null`}},
		{"const", `{"properties":{"s":{"const":{"a":[1.0]}}}}`, `{"s":"secret"}`, []string{`/s const: "/s" must be {"a":[1.0]}`}},

		{"low", `{"properties":{"n":{"minimum":3}}}`, `{"n":1}`, []string{`/n minimum: "/n" must be at least 3`}},
		{"not more", `{"exclusiveMinimum":0.1}`, `0.1`, []string{` exclusiveMinimum: the document must be more than 0.1`}},
		{"high", `{"properties":{"n":{"maximum":9007199254740992}}}`, `{"n":9007199254740993}`, []string{`/n maximum: "/n" must be at most 9007199254740992`}},
		{"not less", `{"exclusiveMaximum":10}`, `10`, []string{` exclusiveMaximum: the document must be less than 10`}},
		{"multiple", `{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":47.115}`, []string{`/n multipleOf: "/n" must be a multiple of 0.01`}},
		{"exact decimals", `{"multipleOf":0.1}`, `0.3`, nil},

		{"few", `{"properties":{"reviewers":{"minItems":2}}}`, `{"reviewers":["secret"]}`, []string{`/reviewers minItems: "/reviewers" must have at least 2 items, has 1`}},
		{"many", `{"maxItems":1}`, `[1,2,3]`, []string{` maxItems: the document must have at most 1 item, has 3`}},
		{"unique", `{"uniqueItems":true}`, `["secret",1,"secret"]`, []string{` uniqueItems: the document must not contain the same item twice; items 0 and 2 are equal`}},
		{"contains", `{"contains":{"type":"integer"}}`, `["secret"]`, []string{` minContains: the document must have at least 1 item matching the schema under "contains", has 0`}},
		{"contains too many", `{"contains":{"type":"integer"},"maxContains":1}`, `[1,2]`, []string{` maxContains: the document must have at most 1 item matching the schema under "contains", has 2`}},
		{"tuple", `{"prefixItems":[{"type":"string"}],"items":false}`, `[4711,"secret"]`, []string{`/0 type: "/0" must be string, is number (Write "/0" in quotes.)`, `/1 : "/1" is not allowed`}},
		{"tuple of draft 7", `{` + draft7 + `"items":[{"type":"string"}],"additionalItems":false}`, `["a","secret"]`, []string{` additionalItems: the document must have at most 1 item, has 2`}},

		{"reference", `{"$defs":{"n":{"type":"number"}},"properties":{"n":{"$ref":"#/$defs/n"}}}`, `{"n":"secret"}`, []string{`/n type: "/n" must be number, is string (Write "/n" without quotes.)`}},
		{"recursive reference", `{"properties":{"next":{"$ref":"#"},"v":{"type":"integer"}}}`, `{"next":{"next":{"v":"secret"}}}`, []string{`/next/next/v type: "/next/next/v" must be integer, is string (Write "/next/next/v" without quotes.)`}},
		{"anchor and $id", `{"$id":"https://example.com/s","$defs":{"n":{"$anchor":"num","type":"number"}},"properties":{"n":{"$ref":"#num"},"m":{"$ref":"https://example.com/s#num"}}}`, `{"n":"secret","m":1}`, []string{`/n type: "/n" must be number, is string (Write "/n" without quotes.)`}},
		{"meta-schema", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":4711}`, []string{`/type : the document`}},
		{"not", `{"properties":{"a":{"not":{"const":"secret"}}}}`, `{"a":"secret"}`, []string{`/a not: "/a" must not match the schema under "not"`}},
		{"then", `{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":"secret"}`, []string{`/b required: "/b" is required`}},
		{"all of", `{"allOf":[{"required":["b"]},{"properties":{"a":{"type":"string"}}}]}`, `{"a":4711}`, []string{`/a type: "/a" must be string, is number (Write "/a" in quotes.)`, `/b required: "/b" is required`}},

		{"any of", `{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{"c":"secret"}`, []string{` anyOf: the document must match at least one of the alternatives: "/a" is required; or "/b" is required`}},
		{"the alternative that was meant, by type", `{"properties":{"v":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]}}}`, `{"v":["a",4711]}`, []string{`/v/1 type: "/v/1" must be string, is number (Write "/v/1" in quotes.)`}},
		{"the alternative that was meant, by constant", `{"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}}},{"properties":{"kind":{"const":"b"},"y":{"type":"integer"}}}]}`, `{"kind":"b","y":"secret"}`, []string{`/y type: "/y" must be integer, is string (Write "/y" without quotes.)`}},
		{"no alternative", `{"oneOf":[{"type":"integer"},{"type":"null"}]}`, `"secret"`, []string{` oneOf: the document must match exactly one of the alternatives: must be integer, is string; or must be null, is string`}},
		{"two alternatives", `{"oneOf":[{"type":"integer"},{"minimum":0}]}`, `4711`, []string{` oneOf: the document must match exactly one of the alternatives, matches more`}},

		{"several, in order", `{"required":["z"],"properties":{"b":{"type":"null"},"a":{"items":{"type":"null"}}}}`, `{"b":1,"a":[1,null,1,1,1,1,1,1,1,1,1]}`, []string{
			`/a/0 type: "/a/0" must be null, is number`, `/a/2 type: "/a/2" must be null, is number`, `/a/3 type: "/a/3" must be null, is number`, `/a/4 type: "/a/4" must be null, is number`,
			`/a/5 type: "/a/5" must be null, is number`, `/a/6 type: "/a/6" must be null, is number`, `/a/7 type: "/a/7" must be null, is number`, `/a/8 type: "/a/8" must be null, is number`,
			`/a/9 type: "/a/9" must be null, is number`, `/a/10 type: "/a/10" must be null, is number`, `/b type: "/b" must be null, is number`, `/z required: "/z" is required`,
		}},
		{"keys that need escapes", `{"properties":{"a/b é%":{"properties":{"~":{"type":"null"}}}}}`, `{"a/b é%":{"~":1}}`, []string{`/a~1b é%/~0 type: "/a~1b é%/~0" must be null, is number`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := compile(t, c.schema).Validate(document.ReadTrusted([]byte(c.doc)))
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, v := range got {
				line := fmt.Sprintf("%s %s: %s", v.Path, v.Keyword, v.Message)
				if v.Hint != "" {
					line += " (" + v.Hint + ")"
				}
				lines = append(lines, line)
				if strings.Contains(line, "secret") || strings.Contains(line, "4711") || strings.Contains(line, "47.1") {
					t.Errorf("shows a value: %s", line)
				}
			}
			if c.name == "meta-schema" { // the rest of the message is the library's
				if len(got) == 0 || got[0].Path != "/type" {
					t.Errorf("got %q", lines)
				}
				return
			}
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSchemaPath(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"$defs":{"a/b":{"properties":{"x":{"minLength":2}}}},"properties":{"o":{"$ref":"#/$defs/a~1b"}}}`)
	got, err := s.Validate(document.ReadTrusted([]byte(`{"o":{"x":""}}`)))
	if err != nil || len(got) != 1 || got[0].SchemaPath != "/properties/o/$ref/properties/x/minLength" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestViolationsAreBoundedAndStable(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"additionalProperties":{"type":"string"},"items":{"type":"string"}}`)
	var doc strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&doc, `,"k%04d":1`, i)
	}
	raw := json.RawMessage("{" + doc.String()[1:] + "}")
	first, err := s.Validate(document.ReadTrusted(raw))
	if err != nil || len(first) != schema.MaxViolations+1 || first[schema.MaxViolations].Message != "and 1980 more violations" {
		t.Fatalf("%d violations, %v", len(first), err)
	}
	for _, list := range []string{"[" + strings.Repeat("1,", 99) + "1]"} {
		got, err := s.Validate(document.ReadTrusted([]byte(list)))
		if err != nil || got[1].Path != "/1" || got[20].Message != "and 80 more violations" {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
}

func TestUnapplied(t *testing.T) {
	t.Parallel()
	loop := `{"$dynamicAnchor":"n","properties":{"a":{"$dynamicRef":"#n"}}}`
	for name, c := range map[string][2]string{
		"not JSON":        {`{}`, `{`},
		"two values":      {`{}`, `{} {}`},
		"huge exponent":   {`{"minimum":1}`, `1e999999999`},
		"small exponent":  {`{"properties":{"a":{"multipleOf":1}}}`, `{"a":[1e-999999999]}`},
		"endless":         {`{"$defs":{"a":{"$dynamicAnchor":"x","$ref":"#"},"b":{"$dynamicAnchor":"x"}},"$dynamicRef":"#/$defs/a"}`, `{}`},
		"fine, for scale": {loop, `{"a":{"a":{}}}`},
	} {
		_, err := compile(t, c[0]).Validate(document.ReadTrusted([]byte(c[1])))
		if want := !strings.HasPrefix(name, "fine"); errors.Is(err, schema.ErrUnapplied) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	const outside = "leaves the document; nothing is loaded from the network or from files"
	cases := []struct{ name, schema, path, want string }{
		{"not JSON", `{`, "", "not JSON"},
		{"two values", `{} {}`, "", "not JSON"},
		{"a list", `[]`, "", "a schema is an object, true or false, not an array"},
		{"unknown type", `{"type":"strnig"}`, "/type", `must be one of "array", "boolean"`},
		{"bad keyword value", `{"properties":{"a":{"minLength":-1}}}`, "/properties/a/minLength", "must be at least 0"},
		{"keyword of the wrong type", `{"required":"a"}`, "/required", "must be array, is string"},
		{"http reference", `{"$ref":"http://127.0.0.1:1/x.json"}`, "/$ref", `"http://127.0.0.1:1/x.json" ` + outside},
		{"https reference below", `{"items":{"$ref":"https://example.com/x.json#/a"}}`, "/items/$ref", outside},
		{"file reference", `{"$ref":"file:///etc/passwd"}`, "/$ref", outside},
		{"relative reference", `{"properties":{"a":{"$ref":"other.json"}}}`, "/properties/a/$ref", `"other.json" ` + outside},
		{"absolute path", `{"$ref":"/etc/passwd"}`, "/$ref", outside},
		{"reference from under an $id", `{"$id":"https://example.com/s","$ref":"other"}`, "/$ref", outside},
		{"urn", `{"$ref":"urn:x:y"}`, "/$ref", outside},
		{"unknown dialect", `{"$schema":"http://127.0.0.1:1/meta"}`, "/$schema", "nothing is loaded from the network"},
		{"draft 3", `{"$schema":"http://json-schema.org/draft-03/schema#"}`, "/$schema", "unknown dialect"},
		{"missing definition", `{"$defs":{"nome":{}},"$ref":"#/$defs/name"}`, "/$ref", `"#/$defs/name" has no target in this schema; defined are #/$defs/nome`},
		{"loop", `{"allOf":[{"$ref":"#"}]}`, "", "leads back to itself"},
		{"look-around", `{"properties":{"a":{"pattern":"(?=a)b"}}}`, "/properties/a/pattern", "RE2"},
		{"back-reference", `{"pattern":"(a)\\1"}`, "/pattern", "RE2"},
		{"pattern as a key", `{"patternProperties":{"(?<!x)y":{}}}`, "/patternProperties/(?<!x)y", "RE2"},
		{"huge number", `{"minimum":1e999999999}`, "/minimum", "exponent"},
		{"huge number in a default", `{"properties":{"a":{"default":[1e-999999999]}}}`, "/properties/a/default/0", "exponent"},
		{"deep", strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200), "", "nested"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := schema.Compile(json.RawMessage(c.schema))
			var ce *schema.CompileError
			if !errors.As(err, &ce) || ce.Path != c.path && c.name != "loop" || !strings.Contains(ce.Message, c.want) {
				t.Errorf("got %v, want %q at %q", err, c.want, c.path)
			}
			if ce != nil && strings.Contains(ce.Error(), "gavel:///") {
				t.Errorf("the made-up address shows: %v", ce)
			}
		})
	}
}

// TestNothingIsLoaded offers a schema on a listening port and in a file, and checks that there is no
// connection to the port.
func TestNothingIsLoaded(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			close(came)
		}
	}()
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://" + l.Addr().String() + "/s.json", "https://" + l.Addr().String() + "/s.json", file, "file://" + file, "//" + l.Addr().String() + "/s"} {
		for _, keyword := range []string{"$ref", "$dynamicRef", "$schema"} {
			raw, err := json.Marshal(map[string]any{keyword: url})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := schema.Compile(raw); err == nil {
				t.Errorf("%s is accepted", raw)
			}
		}
	}
	_ = l.Close()
	select {
	case <-came:
		t.Error("somebody connected")
	default:
	}
}

// doubled returns a chain of schemas, each of which refers twice to the next.
func doubled(levels int) string {
	defs := `"0":{}`
	for i := range levels {
		defs += fmt.Sprintf(`,"%d":{"anyOf":[{"$ref":"#/$defs/%[2]d"},{"$ref":"#/$defs/%[2]d"}]}`, i+1, i)
	}
	return fmt.Sprintf(`{"$defs":{%s},"properties":{"a":{"$ref":"#/$defs/%d"}}}`, defs, levels-1)
}

// nestedPatterns returns a schema in which a member can match two patterns on each level.
func nestedPatterns(levels int) string {
	s := `{}`
	for range levels {
		s = fmt.Sprintf(`{"patternProperties":{"a":%s,"b":%[1]s}}`, s)
	}
	return s
}

// FindCost names the location of the problem.
func TestFindCost(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"properties":{"a":{"uniqueItems":true}}}`: ``,
		`{`:                                    `it is not JSON`,
		`{"minimum":1e999999}`:                 `it has a number with a huge exponent at "/minimum"`,
		`{"properties":{"next":{"$ref":"#"}}}`: `it refers to itself at "/properties/next/$ref"`,
		`{"items":{"$ref":"#x"}}`:              `its $ref does not point into the schema (#/...) at "/items/$ref"`,
		`{"$dynamicRef":"#a"}`:                 `its $dynamicRef does not point into the schema (#/...) at "/$dynamicRef"`,
		`{"items":{"$ref":"#/$defs/a"}}`:       `its reference has no target at "/items/$ref"`,
		`{"items":{"$id":"x:y"}}`:              `it sets its own base address at "/items/$id"`,
		`{"a":0,"items":{"enum":[` + strings.Repeat("1,", 256) + `1]}}`: `it lists more than 256 constants at "/items/enum"`,
		doubled(6): `its branches check one value more than 64 times at "/$defs/5"`,
	} {
		if got := schema.FindCost(json.RawMessage(doc)); got != want {
			t.Errorf("FindCost(%.120s) = %s; want %s", doc, got, want)
		}
	}
}

func TestSimple(t *testing.T) {
	t.Parallel()
	many := func(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	for doc, want := range map[string]bool{
		`true`: true,
		`{`:    false,
		`{"type":"object","properties":{"a":{"type":"string","pattern":"x"}},"required":["a"]}`: true,
		`{"allOf":[{"required":["a"]}]}`: true,
		`{"properties":{"a":{"anyOf":[{"type":"null"},{"type":"string"}]},"b":{"not":{}}}}`:                               true,
		`{"allOf":[{"anyOf":[{"required":["a"]}]}]}`:                                                                      true,
		`{"allOf":[{"properties":{"a":{"properties":{"b":{"not":{}}}}}}]}`:                                                true,
		`{"not":{"properties":{"a":{"not":{}}}}}`:                                                                         true,
		`{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"},"y":{"$ref":"#/$defs/a"}}}`:              true,
		`{"$defs":{"a":{"properties":{"b":{"$ref":"#/$defs/a"}}}},"$ref":"#/$defs/a"}`:                                    false,
		`{"properties":{"next":{"$ref":"#"}}}`:                                                                            false,
		`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{}]}},"$ref":"#/$defs/a"}`:                          true,
		`{"$defs":{"a":{"$ref":"#/$defs/b","properties":{"x":{"$ref":"#/$defs/b"}}},"b":{"type":"null"}}}`:                true,
		`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b","properties":{}}]},"b":{}},"properties":{"$ref":{"not":{}}}}`:        true,
		`{"$ref":"#/$defs/a","properties":{},"$defs":{"a":{"$ref":"#/$defs/b","properties":{}},"b":{}}}`:                  true,
		`{"$defs":{"a":{"items":{"$ref":"#/properties/b"}}},"properties":{"b":{"items":{"$ref":"#/$defs/a"}}}}`:           false,
		`{"properties":{"b":{"items":{"$ref":"#/%70roperties/b"}}}}`:                                                      false,
		`{"$defs":{"a":{"$id":"x:y","items":{"$ref":"#/$defs/a"}}},"properties":{"b":{"$ref":"#/$defs/a"}}}`:              false,
		`{"properties":{"$id":{"type":"string"},"if":{"if":{"required":["a"]},"then":{"if":{},"else":{"contains":{}}}}}}`: true,
		doubled(5): true,
		doubled(6): false,
		`{"uniqueItems":true,"items":{"uniqueItems":true}}`:                                 true,
		strings.Repeat(`{"uniqueItems":true,"items":`, 63) + `{}` + strings.Repeat(`}`, 63): true,
		strings.Repeat(`{"uniqueItems":true,"items":`, 64) + `{}` + strings.Repeat(`}`, 64): false,
		nestedPatterns(3): true,
		nestedPatterns(7): false,

		`{"$ref":"#anchor","$defs":{"a":{"$anchor":"anchor"}}}`:                      false,
		`{"$ref":"#/$defs/none"}`:                                                    false,
		`{"$dynamicRef":"#a"}`:                                                       false,
		`{"properties":{"a":{"uniqueItems":true}}}`:                                  true,
		`{"properties":{"uniqueItems":{"type":"boolean"},"$ref":{"type":"string"}}}`: true,
		`{"enum":[{"uniqueItems":true}],"default":{"$ref":"#"}}`:                     true,
		`{"anyOf":` + many(63, `{}`) + `}`:                                           true,
		`{"anyOf":` + many(64, `{}`) + `}`:                                           false,
		`{"enum":` + many(257, `1`) + `}`:                                            false,
		`{"minimum":1e999999}`:                                                       false,
	} {
		if got := schema.Simple(json.RawMessage(doc)); got != want {
			t.Errorf("Simple(%.120s) = %v", doc, got)
		}
	}
}
