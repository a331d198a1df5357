package main

import (
	"context"
	"strings"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
)

type graphCmd struct {
	Subject  string `arg:"" optional:"" name:"file-or-name" help:"A definition file, or the name of a workflow in the store."`
	Instance string `name:"instance" placeholder:"ID" xor:"subject" help:"Draw this instance's workflow with its path and current state."`
	Format   string `name:"format" enum:"mermaid,dot" default:"mermaid" placeholder:"FORMAT" help:"What to write: mermaid, the default, or dot."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

// Help shows examples.
func (graphCmd) Help() string {
	return `Examples:

    gavel graph flows/document-review.json
    gavel graph flows/document-review.json --format dot | dot -Tsvg > flow.svg
    gavel graph document-review --store ./.workflows/gavel.db
    gavel graph --instance wf-01926f0e-7c1a-7000-8000-000000000000`
}

// Run prints the diagram.
func (c *graphCmd) Run(ctx context.Context, con *console) error {
	if (c.Subject == "") == (c.Instance == "") {
		return term.UsageErrorf(`run "gavel graph --help"`, "give a file, a workflow's name or --instance ID, and one only")
	}
	result, err := c.draw(ctx, con)
	if err != nil {
		return err
	}
	if c.JSON {
		return con.out.JSON(result)
	}
	con.out.Text(strings.TrimRight(result.Diagram, "\n") + "\n")
	return nil
}

func (c *graphCmd) draw(ctx context.Context, con *console) (engine.DiagramResult, error) {
	if c.Subject != "" && (isFile(c.Subject) || looksLikeFile(c.Subject)) {
		return drawFile(c.Subject, c.Format)
	}
	g, done, err := c.open(ctx, con)
	if err != nil {
		return engine.DiagramResult{}, err
	}
	defer done()
	result, err := operation.Diagram.Do(ctx, g, engine.DiagramRequest{Name: c.Subject, ID: c.Instance, Format: c.Format})
	return result, engineFailure(err)
}

// looksLikeFile tells a file that is missing from a workflow's name: names hold
// no separators, and the usual endings are not names that people choose.
func looksLikeFile(subject string) bool {
	for _, ending := range []string{".json", ".yaml", ".yml"} {
		if strings.HasSuffix(strings.ToLower(subject), ending) {
			return true
		}
	}
	return strings.ContainsAny(subject, `/\`)
}

func drawFile(file, format string) (engine.DiagramResult, error) {
	out := engine.DiagramResult{Format: format}
	if !isFile(file) {
		return out, term.UsageErrorf("", "there is no file %s", file)
	}
	document, err := readDefinition(file)
	if err != nil {
		return out, err
	}
	d, err := workflow.Parse(file, document)
	if err != nil {
		return out, unparsable(file, err)
	}
	var b strings.Builder
	// What parses can be drawn, and a picture helps to see what lint means.
	if format == "dot" {
		err = d.WriteDOT(&b, workflow.Marks{})
	} else {
		err = d.WriteMermaid(&b, workflow.Marks{})
	}
	out.Name, out.Diagram = d.Name, b.String()
	return out, err
}
