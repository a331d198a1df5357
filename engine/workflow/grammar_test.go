package workflow_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// format is the compiled schema of the format.
func format(t testing.TB) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(workflow.FormatSchema())
	if err != nil {
		t.Fatalf("the schema does not compile: %v", err)
	}
	return s
}

// asJSON returns a JSON or YAML definition as JSON.
func asJSON(t testing.TB, name string, doc []byte) json.RawMessage {
	t.Helper()
	d, err := workflow.Parse(name, doc)
	if err != nil {
		t.Fatal(err)
	}
	return d.Document
}

func TestFormatSchemaAcceptsParsedDocuments(t *testing.T) {
	s := format(t)
	docs := map[string]json.RawMessage{"everything": raw(everything), "guarded": asJSON(t, "guarded", []byte(guarded)), "hostile": raw(hostile)}
	for name, doc := range examples(t) {
		docs[name] = asJSON(t, name, doc)
	}
	for _, c := range lintCases {
		if !strings.Contains(c.issues, "malformed-pointer") { // the schema knows the prefix of a pointer
			docs[c.name] = raw(c.doc)
		}
	}
	for name, doc := range docs {
		if v, err := s.Validate(document.ReadTrusted(doc)); err != nil || len(v) > 0 {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

// The schema rejects what the parser rejects because of its form: unknown and missing keys, wrong
// kinds, wrong values. Other problems are visible only to a strict reader of text, and the schema
// cannot describe hidden characters.
func TestFormatSchemaRejectsInvalidDocuments(t *testing.T) {
	s := format(t)
	for _, c := range rejected {
		rule, _, _ := strings.Cut(c.issues, " ")
		switch rule {
		case "syntax", "duplicate-key", "utf8", "number", "depth", "unsupported":
			continue
		}
		if slices.Contains(beyondSchema, c.name) || !json.Valid([]byte(c.doc)) {
			continue
		}
		if v, err := s.Validate(document.ReadTrusted(raw(c.doc))); err == nil && len(v) == 0 {
			t.Errorf("%s: the schema accepts what Parse refuses (%s)", c.name, c.issues)
		}
	}
}

// beyondSchema are cases that a JSON Schema cannot express.
var beyondSchema = []string{
	"a criterion given twice", "a grade above the scale", "grades that are too few", "a proof with a pattern that is none", "a proof from data with the basis evidence",
	"panel and samples",
	"hidden state name", "evidence twice", "a reference to nothing known", "a reference that is an expression",
	"a reference that is not closed", "a timeout that is too long", "validator in a file", "a review that expires at once", "retention of a day",
}

// The parser reads every key that the schema describes: it rejects a value of the wrong kind
// as such, and not as unknown.
func TestParserReadsEveryKeyOfTheSchema(t *testing.T) {
	type object struct {
		Description string
		Properties  map[string]struct{ Description string }
	}
	var root struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(workflow.FormatSchema(), &root); err != nil {
		t.Fatal(err)
	}
	places := map[string]struct {
		object object
		around func(pair string) string
	}{
		"": {root.object, func(p string) string { return "{" + p + "}" }},
		"/states/a": {root.Defs["state"], func(p string) string {
			return `{"states":{"a":{` + p + `}}}`
		}},
		"/states/a/awaits": {root.Defs["awaits"], func(p string) string {
			return `{"states":{"a":{"awaits":{` + p + `}}}}`
		}},
		"/states/a/transitions/go": {root.Defs["transition"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{` + p + `}}}}}`
		}},
		"/states/a/transitions/go/0": {root.Defs["route"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":[{` + p + `}]}}}}`
		}},
		"/states/a/transitions/go/exemplars/0": {root.Defs["exemplar"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"exemplars":[{` + p + `}]}}}}}`
		}},
		"/states/a/transitions/go/evidence/0": {root.Defs["evidence"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"evidence":[{` + p + `}]}}}}}`
		}},
		"/states/a/transitions/go/review": {root.Defs["review"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"review":{` + p + `}}}}}}`
		}},
		"/states/a/transitions/go/validator": {root.Defs["file"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"validator":{` + p + `}}}}}}`
		}},
		"/states/a/transitions/go/criteria/0": {root.Defs["criterion"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"criteria":[{` + p + `}]}}}}}`
		}},
		"/states/a/transitions/go/criteria/0/proof": {root.Defs["proof"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"criteria":[{"text":"t","proof":{` + p + `}}]}}}}}`
		}},
		"/states/a/transitions/go/criteria/0/scale": {root.Defs["scale"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"criteria":[{"text":"t","scale":{` + p + `}}]}}}}}`
		}},
		"/states/a/transitions/go/panel": {root.Defs["panel"], func(p string) string {
			return `{"states":{"a":{"transitions":{"go":{"panel":{` + p + `}}}}}}`
		}},
		"/agents":            {root.Defs["agents"], func(p string) string { return `{"agents":{` + p + `}}` }},
		"/retention":         {root.Defs["retention"], func(p string) string { return `{"retention":{` + p + `}}` }},
		"/judgeConfig":       {root.Defs["judgeConfig"], func(p string) string { return `{"judgeConfig":{` + p + `}}` }},
		"/stateValidators/a": {root.Defs["stateValidator"], func(p string) string { return `{"stateValidators":{"a":{` + p + `}}}` }},
	}
	if len(places) != len(root.Defs) { // routes is a list, not an object
		t.Errorf("%d kinds of objects, %d in the schema", len(places), len(root.Defs))
	}
	for at, p := range places {
		if p.object.Description == "" || len(p.object.Properties) == 0 {
			t.Errorf("%s: not described", at)
		}
		for key, property := range p.object.Properties {
			if !strings.HasSuffix(property.Description, ".") {
				t.Errorf("%s/%s: description %q", at, key, property.Description)
			}
			_, err := workflow.Parse("test", []byte(p.around(`"`+key+`":null`)))
			var pe *workflow.ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("%s/%s: %v", at, key, err)
			}
			found := false
			for _, i := range pe.Issues {
				found = found || i.Rule == "type" && i.Path == at+"/"+key
			}
			if !found {
				t.Errorf("%s/%s is not read: %v", at, key, err)
			}
		}
	}
}
