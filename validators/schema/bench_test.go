package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gavel-mcp/gavel/validators/document"
)

// reviewSchema has the keywords that people use, reviewDocument conforms to it
// and has about 1 KB.
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

func BenchmarkValidate1KB(b *testing.B) {
	s, err := Compile(json.RawMessage(reviewSchema))
	if err != nil {
		b.Fatal(err)
	}
	good := reviewDocument()
	bad := bytes.Replace(bytes.Replace(good, []byte(`"priority":3`), []byte(`"priority":9`), 1), []byte(`"id":2`), []byte(`"id":"2"`), 1)
	decoded, err := decodeJSON(good)
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, f func() bool) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !f() {
					b.Fatal("the wrong answer")
				}
			}
		})
	}
	valid := func(found []Violation, err error) bool { return err == nil && len(found) == 0 }
	run("conforms", func() bool { return valid(s.Validate(document.Known(good))) })
	run("violates", func() bool { found, err := s.Validate(document.Known(bad)); return err == nil && len(found) > 0 })
	run("baseline_library_decoded", func() bool { return s.library.Validate(decoded) == nil })
	run("baseline_decode_and_library", func() bool {
		v, err := decodeJSON(good)
		return err == nil && s.library.Validate(v) == nil
	})
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(json.RawMessage(reviewSchema)); err != nil {
			b.Fatal(err)
		}
	}
}
