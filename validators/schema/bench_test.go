package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/document"
)

// reviewSchema uses the common keywords. reviewDocument conforms to it and has about 1 KB.
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
	decoded := document.ReadTrusted(good).Any()
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
	run("conforms", func() bool { return valid(s.Validate(document.ReadTrusted(good))) })
	run("violates", func() bool { found, err := s.Validate(document.ReadTrusted(bad)); return err == nil && len(found) > 0 })
	run("baseline_library_decoded", func() bool { return s.library.Validate(decoded) == nil })
	run("baseline_decode_and_library", func() bool {
		return s.library.Validate(document.ReadTrusted(good).Any()) == nil
	})
}

// gateSchema is a typical operator's schema for a transition: the keywords of reviewSchema, unique items, and
// a condition that looks into a list. gateDocument conforms to it and has about 1 KB.
const gateSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["orderId","approver","total","reason","tags"],"properties":{
	"orderId":{"type":"string","pattern":"^O-[0-9]+$"},"approver":{"type":"string","pattern":"^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$"},
	"total":{"type":"number","minimum":0,"maximum":100000},"reason":{"type":"string","minLength":20},
	"tags":{"type":"array","maxItems":10,"uniqueItems":true,"items":{"type":"string"}}},
	"if":{"required":["total"],"properties":{"total":{"exclusiveMinimum":10000}}},"then":{"properties":{"tags":{"contains":{"const":"board"}}}}}`

func gateDocument(orderID, total, tags string) json.RawMessage {
	reason := strings.Repeat("The order was compared with its quote and with the budget line. ", 13)
	return fmt.Appendf(nil, `{"orderId":%q,"approver":"approver17@example.com","total":%s,"tags":[%s],"reason":%q}`, orderID, total, tags, reason)
}

func BenchmarkGate1KB(b *testing.B) {
	s, err := Compile(json.RawMessage(gateSchema))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, order, total, tags string
		found                    int
	}{
		{"accept", "O-2291", "412.5", `"finance","urgent","legal","q4"`, 0},
		{"accept_then", "O-2291", "50000.25", `"finance","urgent","board"`, 0},
		{"reject_pattern", "X-12a", "412.5", `"finance","urgent"`, 1},
		{"reject_bound", "O-2291", "-1", `"finance","urgent"`, 1},
		{"reject_unique", "O-2291", "412.5", `"finance","urgent","urgent"`, 1},
		{"reject_contains", "O-2291", "50000.25", `"finance","urgent"`, 1},
		{"reject_many", "X-12a", "\"500\"", `"finance",7`, 4},
	} {
		doc := gateDocument(c.order, c.total, c.tags)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			known := document.ReadTrusted(doc)
			for b.Loop() {
				if found, err := s.Validate(known); err != nil || len(found) != c.found {
					b.Fatal(found, err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(json.RawMessage(reviewSchema)); err != nil {
			b.Fatal(err)
		}
	}
}
