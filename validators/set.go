// Package validators is the deterministic part of a judgement: are the required
// fields there, does JSON Schema hold, do the scripts agree.
//
// It promises that the same checks and the same input give the same findings,
// that a finding says what is wrong, where and what to do without showing a value
// of the document, and that anything a script does wrong is a "no".
//
// It must never parse or run a script in this process, reach the network or the
// file system, or know what a workflow is.
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

// Checks is the deterministic part of one transition (or of one state's
// entry): what must be there, what shape it must have, and which scripts must
// agree. It is configuration; Compiler turns it into a Set.
type Checks struct {
	// RequiredFields are JSON pointers ("/customer/id") or dotted names
	// ("customer.id"); a plain name is a top-level key. Present and not null.
	RequiredFields []string `json:"requiredFields,omitempty"`
	// Schema is a JSON Schema, 2020-12 unless $schema says otherwise. Empty: none.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Validators are functions that must all agree.
	Validators []script.Script `json:"validators,omitempty"`
	// Routes are the conditions of a route list, in order. Empty for a plain target.
	Routes []script.Script `json:"routes,omitempty"`
}

// Owner is who wrote the checks. What a stranger wrote never runs in this
// process unguarded.
type Owner = script.Owner

// Finding is one objection: what is wrong, where, and what to do about it. A
// decision's violations are its findings' messages.
type Finding struct {
	// Code is a stable machine code such as "required_field" or "schema".
	Code string `json:"code,omitzero"`
	// Path is a JSON pointer (RFC 6901) into the document examined, "" for the whole.
	Path string `json:"path,omitempty"`
	// Keyword is the JSON Schema keyword that failed, for Code "schema".
	Keyword string `json:"keyword,omitempty"`
	// Message is one sentence that a model can act on. It never holds the value
	// of a sensitive field.
	Message string `json:"message,omitzero"`
	// Hint says what to do next, "" when the message already does.
	Hint string `json:"hint,omitempty"`
}

// The codes of the findings of this package.
const (
	// CodeSchema is for a violation of a JSON Schema.
	CodeSchema = "schema"
	// CodeSchemaFault is for a schema that could not be applied. It says nothing
	// about the document and blocks the move all the same; it is the code of a
	// script that failed.
	CodeSchemaFault = "validator_error"
)

// Set is compiled Checks. It is immutable and safe for concurrent use. Its three parts
// are called one by one, cheap ones first; a "no" ends it.
type Set struct {
	owner      Owner
	runner     script.Runner
	fields     []field
	schema     *schema.Schema // one that runs here, or
	remote     *script.Script // one that is sent to the sandbox
	validators []script.Script
	routes     []script.Script
}

// SchemaReport is the result of applying a schema.
type SchemaReport struct {
	// Findings has one entry per violation, none when the document conforms.
	Findings []Finding
	// Fault is true when the schema could not be applied (it recursed without end,
	// or hit a limit of the sandbox); Findings then holds one of CodeSchemaFault.
	Fault bool
	// Unhardened lists the protections that were missing where the schema ran.
	Unhardened []string
}

// CheckSchema applies the schema to doc, a JSON value without duplicate keys, for the
// calling principal. The error is the sandbox's (ErrUnavailable) or ctx's; what the
// schema can cause is in the report.
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

// IsSandboxed reports that the schema is applied in the sandbox.
func (s *Set) IsSandboxed() bool { return s.remote != nil }

// CheckThenRun is CheckSchema of a schema that is applied in the sandbox and, unless that finds
// something, RunScripts of scripts of the same owner, in one round trip. Where it does, the
// reply is to be ignored.
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

// Input is what scripts see. The documents are JSON objects; nil is {}.
type Input struct {
	// Caller is the principal who calls; scripts do not see it.
	Caller                  string
	Data, Context, Evidence json.RawMessage
	// Call is the call that the action stands for, as script.Batch has it; nil is none.
	Call json.RawMessage
	// Now and Seed fix the clock and the random source.
	Now  time.Time
	Seed int64
}

// RunScripts evaluates the routes and every validator in one round trip. The error is
// the sandbox's (ErrUnavailable) or ctx's; what a script can cause is in the reply.
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
