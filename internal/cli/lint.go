package cli

import (
	"cmp"
	"errors"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// LintReport holds the problems found in definition files.
type LintReport struct {
	OK       bool       `json:"ok"`
	Errors   int        `json:"errors"`
	Warnings int        `json:"warnings"`
	Notes    int        `json:"notes"`
	Files    []LintFile `json:"files"`
}

// LintFile holds the problems found in one file.
type LintFile struct {
	File   string           `json:"file"`
	Name   string           `json:"name,omitempty"` // of the workflow, if it parses
	Hash   string           `json:"hash,omitempty"`
	Issues []workflow.Issue `json:"issues"`
	// Schemas lists where each schema runs; empty if the definition does not parse.
	Schemas []workflow.SchemaPlace `json:"schemas"`

	// Definition is nil if the file does not parse.
	Definition *workflow.Definition `json:"-"`
}

// Finish prints the issues and, if schemas is set, where schemas run. It returns the verdict.
func (r *LintReport) Finish(out *term.Terminal, strict, asJSON, schemas bool) error {
	for _, f := range r.Files {
		r.count(f.Issues)
	}
	r.OK = r.Errors == 0 && (!strict || r.Warnings == 0)
	if asJSON {
		return cmp.Or(out.JSON(r), map[bool]error{false: term.ErrBad}[r.OK])
	}
	for _, f := range r.Files {
		for _, issue := range f.Issues {
			out.Printf("%s\n", IssueLine(f.File, issue))
		}
		for _, s := range f.Schemas {
			if schemas {
				out.Printf("%s:%d: schema: %s: %s\n", f.File, s.Line, s.Path, describeSchemaPlace(s))
			}
		}
	}
	if r.OK {
		return nil
	}
	return r.verdict()
}

func (r *LintReport) count(issues []workflow.Issue) {
	for _, issue := range issues {
		switch issue.Severity {
		case workflow.SeverityError:
			r.Errors++
		case workflow.SeverityWarning:
			r.Warnings++
		case workflow.SeverityNote:
			r.Notes++
		}
	}
}

// verdict returns the error with the number of problems, which is printed after them.
func (r *LintReport) verdict() error {
	found := term.Count(r.Warnings, "warning")
	if r.Errors > 0 {
		found = term.Count(r.Errors, "error") + ", " + found
	}
	return &term.ExitError{Code: term.ExitBad, Err: errors.New(found)}
}

func describeSchemaPlace(s workflow.SchemaPlace) string {
	if s.Sandbox {
		return "runs in the sandbox: " + s.Why
	}
	return "runs in this process: " + s.Why
}

// AddMisfits adds the mismatches between the configuration and the definition.
func (f *LintFile) AddMisfits(rule string, check func(*workflow.Definition) error) {
	if f.Definition == nil {
		return
	}
	err := check(f.Definition)
	if parse, ok := errors.AsType[*workflow.ParseError](err); ok {
		f.Issues = append(f.Issues, parse.Issues...)
	}
	wrong, _ := errors.AsType[document.Errors](err)
	for _, issue := range wrong {
		f.Issues = append(f.Issues, workflow.Issue{Rule: rule, Severity: workflow.SeverityError, Message: issue.Error()})
	}
}
