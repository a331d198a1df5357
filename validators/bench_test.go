package validators_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

const reviewSchema = `{"type":"object","required":["documentId","title","reviewer","comments"],"properties":{
	"documentId":{"type":"string","pattern":"^doc-[0-9]+$"},"title":{"type":"string","minLength":3,"maxLength":200},"reviewer":{"type":"string","format":"email"},
	"priority":{"type":"integer","minimum":1,"maximum":5},"approved":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"},"maxItems":10},
	"sections":{"type":"array","minItems":1,"items":{"type":"object","required":["id","heading"],"properties":{"id":{"type":"integer"},"heading":{"type":"string"},"words":{"type":"integer","minimum":0},"ratio":{"type":"number"},"body":{"type":"string"}}}},
	"comments":{"type":"string","minLength":20},"meta":{"type":"object","properties":{"source":{"enum":["cli","web"]}}}}}`

func reviewDocument() json.RawMessage {
	doc := `{"documentId":"doc-2291","title":"Quarterly infrastructure review","reviewer":"dana@example.com","priority":3,"approved":false,"tags":["infra","q3","cost"],"sections":[`
	for i := range 5 {
		if i > 0 {
			doc += ","
		}
		doc += fmt.Sprintf(`{"id":%d,"heading":"Section %d","words":%d,"ratio":0.%d5,"body":"The cluster was moved in May; see the notes of %d Jun for details."}`, i, i, 120+i, i, i+1)
	}
	return json.RawMessage(doc + `],"comments":"Checked every section against the runbook and the bill; two typos in section 3 were fixed while reading.","meta":{"source":"cli","attempt":1,"host":null}}`)
}

// BenchmarkFieldsAndSchema measures the two cheapest layers on a document of 1 KB, including a compilation
// that hits the cache. Package schema has a benchmark of the underlying library.
func BenchmarkFieldsAndSchema(b *testing.B) {
	fields := validators.Checks{RequiredFields: []string{"documentId", "reviewer", "comments", "meta.source", "/sections/0/id"}}
	schema := validators.Checks{Schema: json.RawMessage(reviewSchema)}
	doc := document.ReadTrusted(reviewDocument())
	run := func(name string, owner validators.Owner, c *validators.Compiler) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, _, err := c.Compile(b.Context(), "caller", owner, fields)
				if err != nil || len(f.CheckFields(doc)) > 0 {
					b.Fatal(err)
				}
				s, _, err := c.Compile(b.Context(), "caller", owner, schema)
				if err != nil {
					b.Fatal(err)
				}
				if r, err := s.CheckSchema(b.Context(), "caller", doc); err != nil || len(r.Findings) > 0 {
					b.Fatal(r.Findings, err)
				}
			}
		})
	}
	run("operator", operator, validators.NewCompiler(nil, validators.Options{}))
	run("stranger_in_sandbox", stranger, validators.NewCompiler(sandbox(b, script.Config{}), validators.Options{}))
	b.Run("baseline_json.Unmarshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v map[string]any
			if err := json.Unmarshal(doc.Raw(), &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
