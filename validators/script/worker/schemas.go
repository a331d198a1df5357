package worker

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

func compileSchema(text string) *program {
	s, err := schema.Compile(json.RawMessage(text))
	if err != nil {
		return &program{fault: &script.Outcome{Code: script.BadSource, Detail: err.Error()}}
	}
	return &program{schema: s}
}

// applySchema checks the request's document. Nothing can interrupt it: what takes
// too long or too much memory ends with the process.
func applySchema(s *schema.Schema, q *script.Request) script.Outcome {
	if q.Op == script.OpCheck {
		return script.Outcome{Code: script.OK, Valid: true, Confidence: 1}
	}
	if len(q.Data) == 0 {
		q.Data = []byte("{}")
	}
	if !json.Valid(q.Data) {
		return script.Outcome{Code: script.BadInput, Detail: "the document is not JSON"}
	}
	violations, err := s.ValidateJSON(q.Data)
	if err != nil {
		return script.Outcome{Code: script.BadSource, Detail: err.Error()}
	}
	o := script.Outcome{Code: script.OK, Valid: len(violations) == 0, Confidence: 1}
	for _, v := range violations {
		o.Objections = append(o.Objections, script.ClipViolation(script.Violation(v)))
	}
	return o
}
