package workflow

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// FormatSchema is the JSON Schema (2020-12) of the definition format, for
// editors: every key with its description. It refuses every unknown key that
// Parse refuses; what only Lint can find, such as an unknown target, it cannot
// say.
func FormatSchema() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"gavel workflow definition",`)
	documentObject.writeSchema(&b)
	b.WriteString(`,"$defs":{`)
	for _, o := range objects[1:] {
		b.WriteString(strconv.Quote(o.name) + `:{`)
		o.writeSchema(&b)
		b.WriteString(`},`)
	}
	b.WriteString(`"routes":{"description":"Routes that are tried in order; when none matches, the action is rejected.","type":"array","minItems":1,"items":{"$ref":"#/$defs/route"}}`)
	b.WriteString(`}}`)
	return b.Bytes()
}

// writeSchema writes the members of the object's schema, without the braces.
func (o *objectGrammar) writeSchema(b *bytes.Buffer) {
	b.WriteString(`"description":` + quoteJSON(o.doc) + `,"type":"object","properties":{`)
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		// In 2020-12 a $ref may have siblings, so the description stands beside it.
		b.WriteString(quoteJSON(k.name) + `:{"description":` + quoteJSON(k.doc) + `,` + k.shape[1:])
	}
	b.WriteString(`},"additionalProperties":false`)
	if len(o.required) > 0 {
		required, _ := json.Marshal(o.required) // strings always marshal
		b.WriteString(`,"required":` + string(required))
	}
}

// quoteJSON quotes for JSON and leaves <, > and & readable.
func quoteJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // strings always encode
	return string(bytes.TrimSpace(b.Bytes()))
}
