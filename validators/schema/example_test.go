package schema_test

import (
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

func Example() {
	s, err := schema.Compile(json.RawMessage(`{
		"required": ["comments"],
		"properties": {
			"reviewers": {"type": "array", "minItems": 2},
			"due":       {"type": "string", "format": "date"}
		}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	violations, err := s.Validate(document.ReadTrusted([]byte(`{"reviewers": ["rob"], "due": "tomorrow"}`)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range violations {
		fmt.Printf("%s: %s\n", v.Keyword, v.Message)
	}
	// Output:
	// required: "/comments" is required
	// format: "/due" must be a valid date
	// minItems: "/reviewers" must have at least 2 items, has 1
}

func ExampleCompile() {
	_, err := schema.Compile(json.RawMessage(`{"properties": {"owner": {"$ref": "https://example.com/person.json"}}}`))
	fmt.Println(err)
	// Output: at /properties/owner/$ref: the reference to "https://example.com/person.json" leaves the document; nothing is loaded from the network or from files: put that schema under $defs and refer to it as #/$defs/NAME
}

func ExampleSimple() {
	fmt.Println(schema.Simple(json.RawMessage(`{"properties": {"n": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}`)))
	fmt.Println(schema.Simple(json.RawMessage(`{"properties": {"next": {"$ref": "#"}}}`)))
	// Output:
	// true
	// false
}
