package chain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// TestDescribeInput: exactly what the schema of the input states is enforced. An input that follows it is
// accepted, and any other is rejected.
func TestDescribeInput(t *testing.T) {
	const defaults = "variables: {input: {text: x, number: 1.5, flag: true, list: [1], object: {a: 1}, none: null}}\n"
	for name, doc := range map[string]string{
		"defaults":    defaults,
		"no defaults": "",
		"a schema":    defaults + "inputSchema: {type: object, required: [text], properties: {text: {type: string}, number: {type: number}}}\n",
	} {
		d := parse(t, doc+steps(`{id: a, type: wait, seconds: 0}`))
		described := d.DescribeInput()
		stated, err := schema.Compile(described)
		if err != nil {
			t.Fatal(err)
		}
		for _, input := range []string{
			`{}`, `{"text":"y"}`, `{"text":7,"number":"7","flag":null,"list":{},"object":[],"none":1}`, `{"text":"y","number":"7"}`, `{"texts":"y"}`, `{"number":2}`, `[]`,
		} {
			wrong, err := stated.Validate(document.ReadTrusted([]byte(input)))
			if err != nil {
				t.Fatal(err)
			}
			_, refused := d.CheckInput(json.RawMessage(input))
			if name == "a schema" && !strings.Contains(input, `"text":`) {
				continue // keys with defaults need not be sent
			}
			if (len(wrong) > 0) != (refused != nil) {
				t.Errorf("%s, %s: the schema %s says %v, the chain %v", name, input, described, wrong, refused)
			}
		}
	}
}
