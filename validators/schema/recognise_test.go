package schema

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators/document"
)

// agree holds the recogniser to the library: it may be unsure, never wrong, and words a no
// exactly as the library's errors are worded. It returns what the recogniser knows.
func agree(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *Schema, raw []byte,
) verdict {
	t.Helper()
	doc, err := readJSON(raw)
	if err != nil {
		return unsure
	}
	if _, huge := findHugeNumber(doc); huge {
		return unsure
	}
	v, ve := s.fast.match(doc)
	found, err := s.validateByLibrary(doc)
	switch {
	case err != nil:
		if v == yes {
			t.Fatalf("says yes where the library fails: %s: %v", raw, err)
		}
	case v == yes && len(found) > 0:
		t.Fatalf("says yes to %s, the library finds %v", raw, found)
	case v == no && len(found) == 0:
		t.Fatalf("says no to %s, the library finds nothing", raw)
	case v == no && !hasEmptyName(doc): // which the library leaves out of its locations
		if worded := (report{index: s.index, doc: doc}).listViolations(ve); !slices.Equal(worded, found) {
			t.Fatalf("finds in %s\n%q\nthe library\n%q", raw, worded, found)
		}
	}
	return v
}

func hasEmptyName(v document.JSON) bool {
	for name, value := range v.Members() {
		if name.Is("") || hasEmptyName(value) {
			return true
		}
	}
	for _, item := range v.Elements() {
		if hasEmptyName(item) {
			return true
		}
	}
	return false
}

// TestNoWithoutAPlace: the library's error about what stands under an empty name is at the
// place of the object around it, where nothing may be missing. It stays a no.
func TestNoWithoutAPlace(t *testing.T) {
	t.Parallel()
	s, err := Compile(json.RawMessage(`{"additionalProperties":{"required":["a"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	doc := document.Known([]byte(`{"":{},"a":{"a":1}}`))
	found, err := s.validateByLibrary(doc)
	if err != nil || len(found) != 1 || found[0].Message != "the document does not match its schema" {
		t.Errorf("the library finds %+v, %v", found, err)
	}
	found, err = s.Validate(doc)
	if err != nil || len(found) != 1 || found[0].Path != "//a" || found[0].Message != `"//a" is required` {
		t.Errorf("found %+v, %v", found, err)
	}
}

// TestPropertyNamedLikeAKeyword: what is wrong with it is said as of any other.
func TestPropertyNamedLikeAKeyword(t *testing.T) {
	t.Parallel()
	s, err := Compile(json.RawMessage(`{"required":["z"],"properties":{"anyOf":{"required":["a","b"],"minProperties":3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	doc := document.Known([]byte(`{"anyOf":{}}`))
	for name, validate := range map[string]func(document.JSON) ([]Violation, error){"recogniser": s.Validate, "library": s.validateByLibrary} {
		found, err := validate(doc)
		if err != nil || len(found) != 4 || found[0].Keyword != "minProperties" || found[1].Path != "/anyOf/a" {
			t.Errorf("%s: found %+v, %v", name, found, err)
		}
	}
}

// TestEqualItems: long lists are hashed and short ones compared, and both find what means the
// same however it is written.
func TestEqualItems(t *testing.T) {
	t.Parallel()
	s, err := Compile(json.RawMessage(`{"uniqueItems":true}`))
	if err != nil {
		t.Fatal(err)
	}
	for pair, equal := range map[string]bool{
		`1,1.0`: true, `100,1e2`: true, `0,-0`: true, `0.10,1e-1`: true, `9007199254740992,9007199254740993`: false, `1,"1"`: false, `null,false`: false,
		`"a","\u0061"`: true, `{"a":1,"b":[2]},{"b":[2.0],"a":1}`: true, `{"a":1,"b":2},{"a":2,"b":1}`: false, `[1,2],[2,1]`: false, `[[]],[[],[]]`: false, `{},[]`: false,
	} {
		for _, more := range []int{0, fewItems} {
			doc := "[" + pair
			for i := range more {
				doc += fmt.Sprintf(`,"x%d"`, i)
			}
			want := yes
			if equal {
				want = no
			}
			if got := agree(t, s, []byte(doc+"]")); got != want {
				t.Errorf("%s]: got %d, want %d", doc, got, want)
			}
		}
	}
}

// TestOfficialSuite runs the JSON Schema test suite, which comes with a module
// that the build depends on anyway: our answers are the suite's, and the
// recogniser agrees with the library.
func TestOfficialSuite(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata")
	if err != nil || !exists(dir) {
		t.Skip("the suite is not here")
	}
	var cases, sure int
	for _, draft := range []string{"draft7", "draft2020-12"} {
		files, err := filepath.Glob(filepath.Join(dir, draft, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			c, s := suite(t, draft, file)
			cases, sure = cases+c, sure+s
		}
	}
	if cases < 1500 || sure < cases*4/5 {
		t.Errorf("the recogniser was sure of %d of %d cases", sure, cases)
	}
	t.Logf("the recogniser was sure of %d of %d cases", sure, cases)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func suite(t *testing.T, draft, file string) (cases, sure int) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(raw, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		s, err := Compile(inDraft(draft, g.Schema))
		if err != nil {
			continue // it refers to a document of the suite's own server
		}
		for _, c := range g.Tests {
			name := draft + " " + filepath.Base(file) + ": " + g.Description + ": " + c.Description
			found, err := s.Validate(document.Known(c.Data))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if (len(found) == 0) != c.Valid && !slices.Contains(libraryDiffers, g.Description) {
				t.Errorf("%s: valid should be %v, found %v", name, c.Valid, found)
			}
			cases++
			if agree(t, s, c.Data) != unsure {
				sure++
			}
		}
	}
	return cases, sure
}

// libraryDiffers names the groups in which the library departs from the suite.
var libraryDiffers = []string{"$dynamicRef skips over intermediate resources - direct reference"}

// inDraft names the draft where a schema does not.
func inDraft(draft string, raw json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil || m["$schema"] != nil {
		return raw
	}
	m["$schema"] = json.RawMessage(map[string]string{
		"draft7": `"http://json-schema.org/draft-07/schema#"`, "draft2020-12": `"https://json-schema.org/draft/2020-12/schema"`,
	}[draft])
	out, err := json.Marshal(m)
	if err != nil {
		return raw
	}
	return out
}

// Generators of small schemas and documents that have something to do with one
// another: they use the same few keys and values.
func drawScalar(t *rapid.T) any {
	return rapid.SampledFrom([]any{
		nil, true, false, "", "a", "ab", "é", "2026-01-31", json.Number("0"), json.Number("-1"), json.Number("1"), json.Number("1.0"),
		json.Number("1.5"), json.Number("2"), json.Number("4"), json.Number("1e1"), json.Number("0.1"), json.Number("9007199254740993"), json.Number("123456789012345.6"),
	}).Draw(t, "scalar")
}

// Among the keys are some that look like keywords or need escapes in a location.
var drawKey = rapid.SampledFrom([]string{"a", "b", "c", "x-d", "é", "", "anyOf", "a/~%2", "minContains"})

func drawDocument(t *rapid.T, depth int) any {
	switch k := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case k < 2 && depth > 0:
		m := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			m[drawKey.Draw(t, "key")] = drawDocument(t, depth-1)
		}
		return m
	case k == 2 && depth > 0:
		list := []any{}
		items := rapid.IntRange(0, 3)
		if depth == 1 {
			items = rapid.IntRange(0, fewItems+8)
		}
		for range items.Draw(t, "items") {
			list = append(list, drawDocument(t, depth-1))
		}
		return list
	}
	return drawScalar(t)
}

func drawSchema(t *rapid.T, depth int) any {
	if depth == 0 || rapid.IntRange(0, 9).Draw(t, "boolean") == 0 {
		return rapid.SampledFrom([]any{true, true, false, map[string]any{}, map[string]any{"$ref": "#/$defs/r"}}).Draw(t, "leaf")
	}
	sub := func() any { return drawSchema(t, depth-1) }
	list := func() any {
		out := []any{sub()}
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			out = append(out, sub())
		}
		return out
	}
	named := func(keys *rapid.Generator[string]) any {
		m := map[string]any{}
		for range rapid.IntRange(1, 3).Draw(t, "named") {
			m[keys.Draw(t, "name")] = sub()
		}
		return m
	}
	typeName := rapid.SampledFrom([]string{"null", "boolean", "integer", "number", "string", "array", "object"})
	small := rapid.IntRange(0, 3)
	bounds := rapid.SampledFrom([]any{json.Number("1"), json.Number("0.1"), json.Number("1.50"), json.Number("-1"), json.Number("9007199254740993"), json.Number("2")})
	keywords := map[string]func() any{
		"type": func() any { return typeName.Draw(t, "type") },
		"types": func() any {
			return []any{"null", typeName.Filter(func(s string) bool { return s != "null" }).Draw(t, "type")}
		},
		"enum":    func() any { return []any{drawScalar(t), []any{drawScalar(t)}} },
		"const":   func() any { return drawDocument(t, 1) },
		"minimum": func() any { return bounds.Draw(t, "bound") }, "exclusiveMinimum": func() any { return bounds.Draw(t, "bound") },
		"maximum": func() any { return bounds.Draw(t, "bound") }, "exclusiveMaximum": func() any { return bounds.Draw(t, "bound") },
		"multipleOf": func() any {
			return rapid.SampledFrom([]any{json.Number("1"), json.Number("2"), json.Number("0.5")}).Draw(t, "of")
		},
		"minLength": func() any { return small.Draw(t, "n") }, "maxLength": func() any { return small.Draw(t, "n") },
		"pattern":    func() any { return rapid.SampledFrom([]string{"^a", "b$", "."}).Draw(t, "p") },
		"format":     func() any { return rapid.SampledFrom([]string{"date", "email"}).Draw(t, "f") },
		"required":   func() any { return []any{drawKey.Draw(t, "k"), "a"}[rapid.IntRange(0, 1).Draw(t, "from"):] },
		"properties": func() any { return named(drawKey) }, "patternProperties": func() any { return named(rapid.SampledFrom([]string{"^x-", "a", "."})) },
		"additionalProperties": sub, "propertyNames": sub, "minProperties": func() any { return small.Draw(t, "n") }, "maxProperties": func() any { return small.Draw(t, "n") },
		"items": sub, "prefixItems": list, "minItems": func() any { return small.Draw(t, "n") }, "maxItems": func() any { return small.Draw(t, "n") },
		"uniqueItems": func() any { return true }, "contains": sub, "minContains": func() any { return small.Draw(t, "n") }, "maxContains": func() any { return small.Draw(t, "n") }, "allOf": list, "anyOf": list, "oneOf": list, "not": sub, "if": sub, "then": sub, "else": sub,
		"dependentRequired": func() any { return map[string]any{"a": []any{"b"}} }, "unevaluatedProperties": sub,
	}
	names := sortedKeys(keywords)
	m := map[string]any{}
	for range rapid.IntRange(1, 6).Draw(t, "keywords") {
		name := rapid.SampledFrom(names).Draw(t, "keyword")
		v := keywords[name]()
		if name == "types" {
			name = "type"
		}
		if list, ok := v.([]any); ok && name == "required" && len(list) == 2 && list[0] == list[1] {
			v = list[:1]
		}
		m[name] = v
	}
	return m
}

func TestRecogniserAgreesWithTheLibrary(t *testing.T) {
	t.Parallel()
	known := map[verdict]int{}
	rapid.Check(t, func(t *rapid.T) {
		root, ok := drawSchema(t, 3).(map[string]any)
		if !ok {
			return
		}
		root["$defs"] = map[string]any{"r": drawSchema(t, 1)}
		raw, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Compile(raw)
		if err != nil {
			return // such as a reference of r to itself
		}
		for range 10 {
			doc, err := json.Marshal(drawDocument(t, 3))
			if err != nil {
				t.Fatal(err)
			}
			if s.fast == nil {
				t.Fatalf("no recogniser for %s", raw)
			}
			func() {
				defer func() {
					if r := recover(); r != nil {
						t.Fatalf("schema %s, document %s: %v", raw, doc, r)
					}
				}()
				known[agree(t, s, doc)]++
				if Simple(raw) {
					checkSteps(t, s, document.Known(doc))
				}
			}()
		}
	})
	t.Logf("unsure %d, no %d, yes %d", known[unsure], known[no], known[yes])
}

// checkSteps holds a simple schema to what Simple says of it.
func checkSteps(t *rapid.T, s *Schema, doc document.JSON) {
	m := matcher{steps: maxSteps, silent: true}
	m.matchValue(s.fast, doc)
	if took, values := maxSteps-m.steps, countValues(doc); took > simpleLoad*values {
		t.Fatalf("%d steps for %d values", took, values)
	}
}

func countValues(v document.JSON) int {
	n := 1
	for _, value := range v.Members() {
		n += 1 + countValues(value)
	}
	for _, item := range v.Elements() {
		n += countValues(item)
	}
	return n
}

func TestRecogniserReadsJSON(t *testing.T) {
	t.Parallel()
	s, err := Compile(json.RawMessage(`{"properties":{"s":{"maxLength":3},"n":{"type":"number"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for doc, want := range map[string]verdict{
		" { \"s\" : \"abc\" , \"n\" : 1 } \n": yes, `{"s":"\u00e9\u0041\n"}`: yes, `{"s":"éèà"}`: yes, `{"s":"éèàü"}`: no, `{"\u0073":"abcd"}`: no,
		`{"s":"abc"} x`: unsure, `{"s":"abc"`: unsure, `{"s":"abc",}`: unsure, `{"s" "abc"}`: unsure, `{"s":"a` + "\xff" + `"}`: unsure, `{"s":"\x"}`: unsure,
		`{"n":01}`: unsure, `{"n":1.}`: unsure, `{"n":-}`: unsure, `{"n":1e5}`: yes, `{"n":1e99999}`: unsure, `{"n":1e5,"s":3}`: yes, `{"x":[1,]}`: unsure, `[,]`: unsure, `[]`: yes, ``: unsure, `tru`: unsure,
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000): yes,
	} {
		if got := agree(t, s, []byte(doc)); got != want {
			t.Errorf("%.60q: got %d, want %d", doc, got, want)
		}
	}
}

// FuzzValidate: no panic, bounded results, and both ways through a schema agree.
func FuzzValidate(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"minLength":2}},"required":["a"]}`, `{"a":"x"}`)
	f.Add(`{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}`, `[1]`)
	f.Add(`{"pattern":"("}`, `"x"`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true}`, `1.0`)
	f.Fuzz(func(t *testing.T, rawSchema, doc string) {
		if len(rawSchema) > 256 || len(doc) > 256 || !Simple(json.RawMessage(rawSchema)) {
			return // time is bounded by the sandbox, not here
		}
		s, err := Compile(json.RawMessage(rawSchema))
		if err != nil {
			if err.Error() == "" {
				t.Error("an empty message")
			}
			return
		}
		if out, err := s.Validate(document.Known([]byte(doc))); err == nil && len(out) > MaxViolations+1 {
			t.Errorf("%d violations", len(out))
		}
		if distinctKeys(doc) {
			agree(t, s, []byte(doc))
		}
	})
}

// distinctKeys is roughly the promise under which Validate works.
func distinctKeys(doc string) bool {
	v, err := readJSON([]byte(doc))
	if err != nil {
		return true
	}
	again, err := json.Marshal(v.Any())
	return err == nil && strings.Count(string(again), ":") >= strings.Count(doc, ":")
}
