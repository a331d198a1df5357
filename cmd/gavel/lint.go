package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

type lintCmd struct {
	Files  []string `arg:"" name:"file" help:"Definition files, folders or patterns."`
	Strict bool     `name:"strict" help:"Fail on warnings too."`
	JSON   bool     `name:"json" help:"Print JSON."`
	configFlag
}

// Help shows examples.
func (lintCmd) Help() string {
	return `Nothing is printed when all is well. An error keeps a definition from being
loaded; a warning does not. Schemas and scripts are compiled in the sandbox, as
they are when a definition is loaded. With --config, evidence from sources that it does
not declare is told too.

Examples:

    gavel lint flows/document-review.json
    gavel lint --strict flows/           # every .json, .yaml and .yml in it
    gavel lint --config gavel.yaml flows/release.yaml
    gavel lint --json flows/*.yaml | jq '.files[].issues[].rule'

Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 wrong usage,
3 could not find out.`
}

// lintReport is what --json prints.
type lintReport struct {
	OK       bool       `json:"ok"`
	Errors   int        `json:"errors"`
	Warnings int        `json:"warnings"`
	Files    []lintFile `json:"files"`
}

type lintFile struct {
	File   string           `json:"file"`
	Name   string           `json:"name,omitempty"` // of the workflow, when it parses
	Hash   string           `json:"hash,omitempty"`
	Issues []workflow.Issue `json:"issues"`
}

// Run lints every file and fails when one is bad.
func (c *lintCmd) Run(ctx context.Context, con *console) error {
	files, err := definitionFiles(c.Files)
	if err != nil {
		return err
	}
	declared, err := c.configFlag.open(con.log)
	if err != nil {
		return err
	}
	defer declared.Close()
	box, err := newSandbox(con.log)
	if err != nil {
		return err
	}
	defer box.Close()

	report := lintReport{Files: []lintFile{}}
	for _, file := range files {
		result, err := lintOne(ctx, box, declared.names(), file)
		if err != nil {
			return err
		}
		for _, issue := range result.Issues {
			if issue.Severity == workflow.SeverityError {
				report.Errors++
			} else {
				report.Warnings++
			}
		}
		report.Files = append(report.Files, result)
	}
	report.OK = report.Errors == 0 && (!c.Strict || report.Warnings == 0)
	if err := c.print(con, report); err != nil {
		return err
	}
	if !report.OK {
		return term.ErrBad
	}
	return nil
}

// lintOne examines a file; its error is that it could not be examined.
func lintOne(ctx context.Context, box *sandbox, known []string, file string) (lintFile, error) {
	out := lintFile{File: file, Issues: []workflow.Issue{}}
	document, err := readDefinition(file)
	if err != nil {
		return out, err
	}
	d, err := workflow.Parse(file, document)
	if err != nil {
		var parse *workflow.ParseError
		if !errors.As(err, &parse) {
			return out, fmt.Errorf("parse %s: %w", file, err)
		}
		out.Issues = parse.Issues
		sortIssues(out.Issues)
		return out, nil
	}
	out.Name, out.Hash = d.Name, d.Hash
	issues, err := d.Lint(ctx, workflow.LintOptions{Compiler: box.compiler, Owner: operatorOwner, Sources: known})
	if err != nil {
		return out, term.UnknownErrorf("try again", "cannot check %s: %w", file, err)
	}
	out.Issues = append(out.Issues, issues...)
	sortIssues(out.Issues)
	return out, nil
}

func (c *lintCmd) print(con *console, report lintReport) error {
	if c.JSON {
		return con.out.JSON(report)
	}
	for _, f := range report.Files {
		for _, issue := range f.Issues {
			con.out.Printf("%s\n", issueLine(f.File, issue))
		}
	}
	return nil
}
