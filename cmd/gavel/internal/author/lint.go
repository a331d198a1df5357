package author

import (
	"context"
	"errors"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// LintCommand checks definitions.
type LintCommand struct {
	Files   []string `arg:"" name:"file" help:"Definition files, folders or patterns."`
	Strict  bool     `name:"strict" help:"Fail on warnings too."`
	Schemas bool     `name:"schemas" help:"Report where each schema runs, and why."`
	JSON    bool     `name:"json" help:"Print JSON."`
	cli.ConfigFlag
	cli.ModelFlags
}

// Run prints the issues of each definition.
func (c *LintCommand) Run(ctx context.Context, con *cli.Console) error {
	files, err := cli.DefinitionFiles(c.Files)
	if err != nil {
		return err
	}
	declared, end, err := c.OpenAlone(ctx, con.Log)
	if err != nil {
		return err
	}
	defer end()
	rules, err := c.readRules()
	if err != nil {
		return err
	}
	options := workflow.LintOptions{Owner: cli.OperatorOwner, Sources: cli.ListSources(declared), Try: true}
	if options.Models, err = c.ModelFlags.ListModels(con.Log); err != nil {
		return err
	}
	box, err := cli.NewSandbox(con.Log)
	if err != nil {
		return err
	}
	defer box.Close()
	options.Compiler = box.Compiler

	report := cli.LintReport{Files: []cli.LintFile{}}
	for _, file := range files {
		result, err := lintFile(ctx, options, file)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			result.AddMisfits(rule.name, rule.check)
		}
		report.Files = append(report.Files, result)
	}
	return report.Finish(con.Out, c.Strict, c.JSON, c.Schemas)
}

// lintRule compares definitions with the configuration file.
type lintRule struct {
	name  string
	check func(*workflow.Definition) error
}

// readRules returns the rules of the configuration file.
func (c *LintCommand) readRules() (rules []lintRule, err error) {
	if c.Config == "" {
		return nil, nil
	}
	file, err := config.Load(c.Config)
	if err != nil {
		return nil, module.ConfigError(err)
	}
	for _, rule := range module.LintRules() {
		check, err := rule.Read(file)
		if err != nil {
			return nil, module.ConfigError(err)
		}
		rules = append(rules, lintRule{rule.Name, check})
	}
	return rules, nil
}

// lintFile examines a file; its error means that the file could not be examined.
func lintFile(ctx context.Context, o workflow.LintOptions, file string) (cli.LintFile, error) {
	out := cli.LintFile{File: file, Issues: []workflow.Issue{}, Schemas: []workflow.SchemaPlace{}}
	d, err := cli.ParseDefinition(file)
	if parse, ok := errors.AsType[*workflow.ParseError](err); ok {
		out.Issues = parse.Issues
		cli.SortIssues(out.Issues)
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Name, out.Hash, out.Definition = d.Name, d.Hash, d
	out.Schemas = d.ListSchemas(cli.OperatorOwner)
	issues, err := d.Lint(ctx, o)
	if err != nil {
		return out, term.UnknownErrorf("try again", "cannot check %s: %w", file, err)
	}
	out.Issues = append(out.Issues, issues...)
	cli.SortIssues(out.Issues)
	return out, nil
}

// GraphCommand draws a workflow or an instance.
type GraphCommand struct {
	Subject  string `arg:"" optional:"" name:"file-or-name" help:"A definition file, or in the store a workflow's name or an instance's id."`
	Instance string `name:"instance" placeholder:"ID" xor:"subject" help:"Draw this instance's workflow with its path and current state."`
	Format   string `name:"format" enum:"mermaid,dot,svg,text" default:"mermaid" placeholder:"FORMAT" help:"The output format: mermaid (the default), dot, svg, or text for a few lines about the present state."`
	JSON     bool   `name:"json" help:"Print JSON."`
	cli.TargetFlags
}

// Run prints the diagram.
func (c *GraphCommand) Run(ctx context.Context, con *cli.Console) error {
	if (c.Subject == "") == (c.Instance == "") {
		return term.UsageErrorf(`run "gavel graph --help"`, "give exactly one file, workflow name or instance id")
	}
	result, err := c.draw(ctx, con)
	if err != nil {
		return err
	}
	return con.Print(c.JSON, result, func() { con.Out.Text(strings.TrimRight(result.Diagram, "\n") + "\n") })
}

func (c *GraphCommand) draw(ctx context.Context, con *cli.Console) (engine.DiagramResult, error) {
	if c.Subject != "" && (cli.IsFile(c.Subject) || looksLikeFile(c.Subject)) {
		return drawFile(c.Subject, c.Format)
	}
	drawn, err := cli.Ask(ctx, con, c.TargetFlags, operation.Diagram, engine.DiagramRequest{Name: c.Subject, ID: c.Instance, Format: c.Format})
	if failed, ok := errors.AsType[*term.ExitError](err); ok && failed.Reason == string(engine.CodeUnknownWorkflow) && strings.HasPrefix(c.Subject, cli.InstancePrefix) {
		return cli.Ask(ctx, con, c.TargetFlags, operation.Diagram, engine.DiagramRequest{ID: c.Subject, Format: c.Format})
	}
	return drawn, err
}

// looksLikeFile distinguishes a missing file from a workflow's name. Names contain no separators, and people do not
// choose names with the usual file extensions.
func looksLikeFile(subject string) bool {
	return cli.HasDefinitionEnding(subject) || strings.ContainsAny(subject, `/\`)
}

func drawFile(file, format string) (engine.DiagramResult, error) {
	out := engine.DiagramResult{Format: format}
	if !cli.IsFile(file) {
		return out, term.UsageErrorf("", "there is no file %s", file)
	}
	d, err := cli.ParseDefinition(file)
	if err != nil {
		return out, cli.ParseError(file, "workflow definition", err)
	}
	var b strings.Builder
	// Any definition that parses can be drawn, and a drawing helps to understand the output of lint.
	switch format {
	case "dot":
		err = d.WriteDOT(&b, workflow.Marks{})
	case "svg":
		err = d.WriteSVG(&b, workflow.Marks{})
	case "text":
		err = d.WriteText(&b, workflow.Marks{})
	default:
		err = d.WriteMermaid(&b, workflow.Marks{})
	}
	out.Name, out.Diagram = d.Name, b.String()
	return out, err
}
