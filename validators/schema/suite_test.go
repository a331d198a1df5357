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

	"github.com/gavel-mcp/gavel/validators/document"
)

// TestPropertyNamedLikeAKeyword: its violations are reported like those of any other property.
func TestPropertyNamedLikeAKeyword(t *testing.T) {
	t.Parallel()
	s, err := Compile(json.RawMessage(`{"required":["z"],"properties":{"anyOf":{"required":["a","b"],"minProperties":3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Validate(document.ReadTrusted([]byte(`{"anyOf":{}}`)))
	if err != nil || len(found) != 4 || found[0].Keyword != "minProperties" || found[1].Path != "/anyOf/a" {
		t.Errorf("found %+v, %v", found, err)
	}
}

// TestEqualItems: long lists are hashed and short ones compared. Both recognize equal items in different
// spellings.
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
		for _, more := range []int{0, 20} {
			doc := "[" + pair
			for i := range more {
				doc += fmt.Sprintf(`,"x%d"`, i)
			}
			found, err := s.Validate(document.ReadTrusted([]byte(doc + "]")))
			if err != nil || (len(found) > 0) != equal {
				t.Errorf("%s]: found %v, %v", doc, found, err)
			}
		}
	}
}

// TestOfficialSuite runs the JSON Schema test suite, which comes with a module that the build depends on
// anyway. The results must match.
func TestOfficialSuite(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata")
	if err != nil || !exists(dir) {
		t.Skip("the suite is not here")
	}
	cases := 0
	for _, draft := range []string{"draft7", "draft2020-12"} {
		files, err := filepath.Glob(filepath.Join(dir, draft, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			cases += suite(t, draft, file)
		}
	}
	if cases < 1500 {
		t.Errorf("%d cases", cases)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func suite(t *testing.T, draft, file string) (cases int) {
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
			continue // the schema refers to a document on the suite's own server
		}
		for _, c := range g.Tests {
			name := draft + " " + filepath.Base(file) + ": " + g.Description + ": " + c.Description
			found, err := s.Validate(document.ReadTrusted(c.Data))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if (len(found) == 0) != c.Valid && !slices.Contains(libraryDiffers, g.Description) {
				t.Errorf("%s: valid should be %v, found %v", name, c.Valid, found)
			}
			cases++
		}
	}
	return cases
}

// libraryDiffers names the groups in which the library deviates from the suite.
var libraryDiffers = []string{"$dynamicRef skips over intermediate resources - direct reference"}

// inDraft adds $schema to a schema without one.
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

// FuzzValidate: Validate never panics, and its results are bounded.
func FuzzValidate(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"minLength":2}},"required":["a"]}`, `{"a":"x"}`)
	f.Add(`{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}`, `[1]`)
	f.Add(`{"pattern":"("}`, `"x"`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true}`, `1.0`)
	f.Fuzz(func(t *testing.T, rawSchema, doc string) {
		if len(rawSchema) > 256 || len(doc) > 256 || !Simple(json.RawMessage(rawSchema)) {
			return // the sandbox limits time, not this package
		}
		s, err := Compile(json.RawMessage(rawSchema))
		if err != nil {
			if err.Error() == "" {
				t.Error("an empty message")
			}
			return
		}
		if out, err := s.Validate(document.ReadTrusted([]byte(doc))); err == nil && len(out) > MaxViolations+1 {
			t.Errorf("%d violations", len(out))
		}
	})
}
