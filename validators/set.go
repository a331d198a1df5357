package validators

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

// CodeSchema is the code of a Finding for a violation of a JSON Schema.
const CodeSchema = "schema"

// Set is compiled Checks. It is immutable and safe for concurrent use. Its three
// parts are asked one by one: cheap ones first, and a "no" ends it.
type Set struct {
	owner      Owner
	runner     script.Runner
	fields     []field
	schema     *schema.Schema
	validators []script.Script
	routes     []script.Script
}

// HasFields reports whether there are required fields.
func (s *Set) HasFields() bool { return len(s.fields) > 0 }

// HasSchema reports whether there is a schema.
func (s *Set) HasSchema() bool { return s.schema != nil }

// HasValidators reports whether there are validators.
func (s *Set) HasValidators() bool { return len(s.validators) > 0 }

// HasRoutes reports whether conditions choose the target.
func (s *Set) HasRoutes() bool { return len(s.routes) > 0 }

// Fields returns a finding per required field that doc (a JSON object) does not
// have or has as null, in the order of the definition.
func (s *Set) Fields(doc json.RawMessage) []Finding {
	if len(s.fields) == 0 {
		return nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(doc, &top); err != nil {
		return []Finding{{Code: CodeRequiredField, Message: "a JSON object is required"}}
	}
	var out []Finding
	for _, f := range s.fields {
		if found := f.check(top); found != nil {
			out = append(out, *found)
		}
	}
	return out
}

// Schema returns a finding per violation of the schema by doc. The error means
// that the schema could not be applied; it says nothing about doc.
func (s *Set) Schema(_ context.Context, doc json.RawMessage) ([]Finding, error) {
	if s.schema == nil {
		return nil, nil
	}
	violations, err := s.schema.ValidateJSON(doc)
	if err != nil {
		return nil, fmt.Errorf("apply the schema: %w", err)
	}
	out := make([]Finding, 0, len(violations))
	for _, v := range violations {
		out = append(out, Finding{Code: CodeSchema, Path: v.Path, Keyword: v.Keyword, Message: v.Message, Hint: v.Hint})
	}
	return out, nil
}

// Input is what scripts see. The documents are JSON objects; nil is {}.
type Input struct {
	Data, Context, Evidence json.RawMessage
	// Now and Seed fix the clock and the random source.
	Now  time.Time
	Seed int64
}

// Script asks the sandbox for the route and every validator, in one round trip.
// The error is the sandbox's own (ErrUnavailable) or ctx's; what a script can
// cause is in the reply.
func (s *Set) Script(ctx context.Context, in Input) (script.Reply, error) {
	if len(s.validators) == 0 && len(s.routes) == 0 {
		return script.Reply{Route: -1}, nil
	}
	return s.runner.Run(ctx, script.Batch{
		Owner: s.owner.ID, Now: in.Now, Seed: in.Seed, Routes: s.routes, Validators: s.validators,
		Data: in.Data, Context: in.Context, Evidence: in.Evidence,
	})
}
