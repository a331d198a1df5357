package module

import (
	"cmp"
	"errors"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// LintReport is what is wrong with files of definitions.
type LintReport struct {
	OK       bool       `json:"ok"`
	Errors   int        `json:"errors"`
	Warnings int        `json:"warnings"`
	Notes    int        `json:"notes"`
	Files    []LintFile `json:"files"`
}

// LintFile is what is wrong with one.
type LintFile struct {
	File   string           `json:"file"`
	Name   string           `json:"name,omitempty"` // of the workflow, when it parses
	Hash   string           `json:"hash,omitempty"`
	Issues []workflow.Issue `json:"issues"`
	// Schemas say where each runs; none where the definition does not parse.
	Schemas []workflow.SchemaPlace `json:"schemas"`

	// Definition is nil when it does not parse.
	Definition *workflow.Definition `json:"-"`
}

// Finish prints the issues, and where schemas run, and returns the verdict.
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
				out.Printf("%s:%d: schema: %s: %s\n", f.File, s.Line, s.Path, describePlace(s))
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

// verdict says how much is wrong, behind all that is.
func (r *LintReport) verdict() error {
	found := term.Count(r.Warnings, "warning")
	if r.Errors > 0 {
		found = term.Count(r.Errors, "error") + ", " + found
	}
	return &term.ExitError{Code: term.ExitBad, Err: errors.New(found)}
}

func describePlace(s workflow.SchemaPlace) string {
	if s.Sandbox {
		return "runs in the sandbox: " + s.Why
	}
	return "runs in this process: " + s.Why
}

// AddMisfits adds what of the configuration does not fit the definition.
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
