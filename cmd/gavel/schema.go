package main

import (
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

type schemaCmd struct {
	Name string `arg:"" optional:"" name:"schema" help:"The schema to print; without it, the list of schemas."`
	JSON bool   `name:"json" help:"Print the list as JSON. A schema is JSON anyhow."`
}

// Help shows examples.
func (schemaCmd) Help() string {
	return `The schemas are for editors and other tools: with "definition", an editor
completes and checks workflow definitions while you write them.

Examples:

    gavel schema
    gavel schema definition > gavel-definition.schema.json`
}

// schemaInfo is one line of the list.
type schemaInfo struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

var schemas = []schemaInfo{{"definition", "a workflow definition (JSON Schema 2020-12)"}}

// Run prints one schema, or which there are.
func (c *schemaCmd) Run(con *console) error {
	if c.Name == "definition" {
		return con.out.JSON(workflow.FormatSchema())
	}
	if c.Name != "" {
		return term.UsageErrorf("run \"gavel schema\" for the list", "there is no schema %q", c.Name)
	}
	if c.JSON {
		return con.out.JSON(schemas)
	}
	for _, s := range schemas {
		con.out.Printf("%s  %s\n", s.Name, s.About)
	}
	return nil
}
