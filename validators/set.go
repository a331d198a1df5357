// Package validators is the deterministic part of a judgement: whether required fields are present, a document
// conforms to a JSON Schema, and scripts agree.
//
// It promises:
//
//   - The same checks and the same input give the same findings.
//   - A finding states the problem, its location and the remedy, without showing a value of the document.
//   - Any failure of a script counts as a "no".
//
// It must never parse or run a script in this process, access the network or the file system, or depend on
// workflows.
package validators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Checks is the deterministic part of a transition or of the entry to a state: required fields, a schema and
// scripts. It is configuration; Compiler turns it into a Set.
type Checks struct {
	// RequiredFields are JSON pointers ("/customer/id") or dotted names ("customer.id"); a plain name is a
	// top-level key. Each must be present, not null and not a blank string.
	RequiredFields []string `json:"requiredFields,omitempty"`
	// Schema is a JSON Schema, of version 2020-12 unless $schema names another. It may be empty.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Validators are functions that must all agree.
	Validators []script.Script `json:"validators,omitempty"`
	// Routes are the conditions of a route list, in order. It is empty for a plain target.
	Routes []script.Script `json:"routes,omitempty"`
}

// Owner is the author of checks. An untrusted author's code never runs unguarded in this process.
type Owner = script.Owner

// Finding is one objection: the problem, its location and the remedy. The messages of findings become a
// decision's violations.
type Finding struct {
	// Code is a stable machine code such as "required_field" or "schema".
	Code string `json:"code,omitzero"`
	// Path is a JSON pointer (RFC 6901) into the examined document; "" is the whole document.
	Path string `json:"path,omitempty"`
	// Keyword is the JSON Schema keyword that failed, for Code "schema".
	Keyword string `json:"keyword,omitempty"`
	// Message is one sentence that a model can act on. It never contains the value of a sensitive field.
	Message string `json:"message,omitzero"`
	// Hint is the next step, or "" if the message already states it.
	Hint string `json:"hint,omitempty"`
}

// Codes of this package's findings other than CodeRequiredField.
const (
	// CodeSchema marks a violation of a JSON Schema.
	CodeSchema = "schema"
	// CodeSchemaFault marks a schema that could not be applied. It implies nothing about the document but
	// still blocks the move. Scripts that fail have the same code.
	CodeSchemaFault = "validator_error"
)

// Set is compiled Checks. It is immutable and safe for concurrent use. Callers run its three parts in order of
// cost (fields, schema, scripts) and stop at the first "no".
type Set struct {
	owner      Owner
	runner     script.Runner
	fields     []field
	schema     *schema.Schema // runs in this process; nil if remote is set or there is no schema
	remote     *script.Script // runs in the sandbox
	validators []script.Script
	routes     []script.Script
}

// SchemaReport is the result of applying a schema.
type SchemaReport struct {
	// Findings has one entry for each violation; it is empty if the document conforms.
	Findings []Finding
	// Fault is true if the schema could not be applied: it recursed without end or hit a limit of the sandbox.
	// Findings then has one entry, with CodeSchemaFault.
	Fault bool
	// Unhardened lists the protections that were missing in the process that applied the schema.
	Unhardened []string
}

// CheckSchema applies the schema to doc, a JSON value without duplicate keys, on behalf of the principal
// caller. The error is the sandbox's (ErrUnavailable) or ctx's; faults of the schema are in the report.
func (s *Set) CheckSchema(ctx context.Context, caller string, doc document.JSON) (SchemaReport, error) {
	switch {
	case s.schema != nil:
		return s.applyLocally(doc)
	case s.remote != nil:
		report, _, err := s.CheckThenRun(ctx, doc, &Set{}, Input{Caller: caller})
		return report, err
	}
	return SchemaReport{}, nil
}

// IsSandboxed reports whether the schema is applied in the sandbox.
func (s *Set) IsSandboxed() bool { return s.remote != nil }

// CheckThenRun applies a sandboxed schema to doc and runs scripts of the same owner in one round trip. The
// scripts run only if the schema has no findings; otherwise callers must ignore the reply.
func (s *Set) CheckThenRun(ctx context.Context, doc document.JSON, scripts *Set, in Input) (SchemaReport, script.Reply, error) {
	b := scripts.newBatch(in)
	b.Owner, b.Schema, b.Document = s.owner, s.remote, doc.Raw()
	reply, err := s.runner.Run(ctx, b)
	if err != nil {
		return SchemaReport{}, reply, fmt.Errorf("apply the schema: %w", err)
	}
	report := SchemaReport{Unhardened: reply.Unhardened}
	switch reply.Schema.Code {
	case "":
		return SchemaReport{}, reply, fmt.Errorf("apply the schema: the sandbox did not answer: %w", ErrUnavailable)
	case script.OK:
		for _, v := range reply.Schema.Violations {
			report.Findings = append(report.Findings, newSchemaFinding(v))
		}
	default:
		report = newFaultReport(fmt.Sprintf("%s (%s)", reply.Schema.Detail, reply.Schema.Code))
		report.Unhardened = reply.Unhardened
	}
	return report, reply, nil
}

func (s *Set) applyLocally(doc document.JSON) (SchemaReport, error) {
	violations, err := s.schema.Validate(doc)
	if errors.Is(err, schema.ErrUnapplied) {
		return newFaultReport(err.Error()), nil
	}
	if err != nil {
		return SchemaReport{}, fmt.Errorf("apply the schema: %w", err)
	}
	var r SchemaReport
	for _, v := range violations {
		r.Findings = append(r.Findings, newSchemaFinding(script.Violation(v)))
	}
	return r, nil
}

func newSchemaFinding(v script.Violation) Finding {
	return Finding{Code: CodeSchema, Path: v.Path, Keyword: v.Keyword, Message: v.Message, Hint: v.Hint}
}

func newFaultReport(why string) SchemaReport {
	return SchemaReport{Fault: true, Findings: []Finding{{
		Code:    CodeSchemaFault,
		Message: "The JSON Schema could not be applied: " + why,
		Hint:    "This is a fault of the workflow, not of the data; report it to its owner.",
	}}}
}

// Input is what scripts see. The documents are JSON objects; nil means {}.
type Input struct {
	// Caller is the calling principal; scripts do not see it.
	Caller                  string
	Data, Context, Evidence json.RawMessage
	// Call is the call that the action represents, in the form of script.Batch.Call; nil means none.
	Call json.RawMessage
	// Now and Seed fix the clock and the random source.
	Now  time.Time
	Seed int64
}

// RunScripts evaluates the routes and all validators in one round trip. The error is the sandbox's
// (ErrUnavailable) or ctx's; failures of scripts are in the reply.
func (s *Set) RunScripts(ctx context.Context, in Input) (script.Reply, error) {
	if len(s.validators) == 0 && len(s.routes) == 0 {
		return script.Reply{Route: -1}, nil
	}
	return s.runner.Run(ctx, s.newBatch(in))
}

func (s *Set) newBatch(in Input) script.Batch {
	return script.Batch{
		Caller: in.Caller, Owner: s.owner, Now: in.Now, Seed: in.Seed, Routes: s.routes, Validators: s.validators,
		Data: in.Data, Context: in.Context, Evidence: in.Evidence, Call: in.Call,
	}
}
