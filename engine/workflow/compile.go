package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// problem is something that does not compile, with its place in the definition.
type problem struct {
	kind    problemKind
	path    string
	message string
}

type problemKind uint8

const (
	badField problemKind = iota
	badSchema
	badScript
)

// compile compiles all scripts in one call, and each pair of schema and required fields
// in one. No script goes to the sandbox twice.
func (d *Definition) compile(ctx context.Context, o LintOptions) ([]problem, error) {
	var out []problem
	for _, part := range d.listParts() {
		_, found, err := o.Compiler.Compile(ctx, o.Owner.ID, o.Owner, part.checks)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			out = append(out, part.locate(p))
		}
	}
	return out, nil
}

// part is one call of the compiler.
type part struct {
	checks validators.Checks
	// fields and schema are where these stand in the definition; scripts carry
	// their place as their name.
	fields, schema string
}

func (p part) locate(found validators.Problem) problem {
	switch found.Part {
	case "requiredFields":
		return problem{badField, p.fields + found.Path, found.Message}
	case "schema":
		return problem{badSchema, p.schema + found.Path, "the schema does not compile: " + found.Message}
	}
	message := "the script does not compile: " + found.Message
	if found.Line > 0 {
		message = fmt.Sprintf("the script does not compile at its line %d, column %d: %s", found.Line, found.Column, found.Message)
	}
	return problem{badScript, found.Part, message}
}

// listParts splits the definition into calls of the compiler.
func (d *Definition) listParts() []part {
	var out []part
	add := func(fields []string, schema json.RawMessage, at string, schemaKey string) {
		if len(fields) > 0 || len(schema) > 0 {
			out = append(out, part{
				checks: validators.Checks{RequiredFields: fields, Schema: schema},
				fields: at + "/requiredFields", schema: at + "/" + schemaKey,
			})
		}
	}
	add(nil, d.InputSchema, "", "inputSchema")
	var scripts validators.Checks
	d.visitTransitions(func(s *State, t *Transition) {
		at := transitionPath(s.Name, t.Action)
		add(t.RequiredFields, t.Schema, at, "schema")
		if t.Validator != "" {
			scripts.Validators = append(scripts.Validators, script.Script{Name: at + "/validator", Kind: script.Validator, Source: t.Validator})
		}
		if !t.Conditional() {
			return
		}
		for i, r := range t.Routes {
			scripts.Routes = append(scripts.Routes, script.Script{Name: d.routePath(s, t, i, "condition"), Kind: script.Condition, Source: r.Condition})
		}
	})
	for _, state := range sortedKeys(d.StateValidators) {
		v := d.StateValidators[state]
		add(v.RequiredFields, v.Schema, joinPointer("/stateValidators", state), "schema")
	}
	for _, name := range sortedKeys(d.TransitionValidators) {
		scripts.Validators = append(scripts.Validators, script.Script{
			Name: joinPointer("/transitionValidators", name), Kind: script.Validator, Source: d.TransitionValidators[name],
		})
	}
	if len(scripts.Validators)+len(scripts.Routes) > 0 {
		out = append(out, part{checks: scripts})
	}
	return out
}
