package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/folder"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
	"github.com/gavel-mcp/gavel/internal/term"
)

// importCommand imports a folder of definitions, instances and histories.
type importCommand struct {
	Dir    string `arg:"" name:"dir" help:"The folder, such as .workflows."`
	DryRun bool   `name:"dry-run" help:"Print what would happen; write nothing."`
	Rename string `name:"rename" placeholder:"PREFIX" help:"Add a prefix to the ids of instances and the names of definitions."`
	Counts bool   `name:"counts" help:"Let imported visits of states count toward mustPassThrough."`
	Owner  string `name:"owner" default:"local:agent" placeholder:"ID" help:"The owner of the instances. Default: local:agent, the principal of gavel mcp."`
	Rules  string `name:"definitions-owner" placeholder:"ID" help:"Agent that owns the definitions, such as local:agent: it may redefine and loosen them, and roll back. Default: the operator."`
	JSON   bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

// Help is the text of gavel help import.
func (importCommand) Help() string {
	return `Imports a folder of the Generic DFA server or of gavel export: first the definitions,
which become the operator's (or --definitions-owner's), then every instance with its
history and checkpoints. The folder is only read. An instance is imported completely or
not at all, and refused if its id is already in the store; --rename imports it under
another id.

Steps are recorded as imported, not as judged. If a log and the instance's file differ,
the file is used, and a note describes the difference.

Examples:

    gavel import .workflows --dry-run
    gavel import .workflows
    gavel import .workflows --definitions-owner local:agent
    gavel import backup/.workflows --rename backup- --owner local:ada --json

Exit codes: 0 everything was imported, 1 something was refused, set aside or differs, 2 wrong usage,
3 could not find out.`
}

// Run imports the folder and prints a report.
func (c *importCommand) Run(ctx context.Context, con *cli.Console) error {
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return term.UsageErrorf("give the folder that holds definitions and wf-*.json files", "cannot open the folder: %w", err)
	}
	defer root.Close()
	from, err := folder.Open(root.FS())
	if err != nil {
		return term.UnknownErrorf("", "cannot read %s: %w", c.Dir, err)
	}
	if from.Empty() {
		return term.UsageErrorf("give the folder that holds definitions and wf-*.json files", "%s holds no workflows", c.Dir)
	}
	sys, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer sys.Close()
	report, err := portable.Import(ctx, sys.Engine, sys.Store, gavel.Operator, portable.ImportRequest{
		Source: c.Dir, Owner: c.Owner, DefinitionsOwner: c.Rules, Rename: c.Rename, Counts: c.Counts, DryRun: c.DryRun,
		Definitions: from.Definitions(), Instances: from.Instances(),
	})
	if err != nil {
		return cli.EngineFailure(err)
	}
	err = con.Print(c.JSON, report, func() { printImport(con, report) })
	return cmp.Or(err, cli.ExitBadUnless(report.Refused+report.Differed+report.SetAside == 0))
}

// open opens the store to import into. A dry run creates none and only reads an existing one.
func (c *importCommand) open(ctx context.Context, con *cli.Console) (*cli.System, error) {
	path, err := gavel.Memory, error(nil)
	if !c.DryRun {
		path, err = c.FindStore(con.Log, true, func(*slog.Logger, string) {})
	} else if gavel.IsDatabase(c.Store) || slices.ContainsFunc(c.Candidates(), func(path string) bool { _, err := os.Stat(path); return !errors.Is(err, fs.ErrNotExist) }) {
		return cli.OpenForReading(ctx, con, c.StoreFlag)
	}
	if err != nil {
		return nil, err
	}
	at, err := c.LocateAt(path)
	if err != nil {
		return nil, err
	}
	return cli.OpenSystem(ctx, con.Log, at, cli.SystemOptions{})
}

func printImport(con *cli.Console, report portable.ImportReport) {
	rows := [][]string{{"FILE", "STATUS", "WHAT"}}
	var remarks []string
	for _, d := range report.Definitions {
		rows = append(rows, []string{d.File, string(d.Status), nameVersion(d.Name, d.Version)})
		for _, issue := range d.Issues {
			remarks = append(remarks, cli.IssueLine(d.File, issue))
		}
		switch {
		case d.Status == portable.SetAside:
			remarks = append(remarks, d.File+": "+d.Reason)
		case d.Reason != "" && len(d.Issues) == 0:
			remarks = append(remarks, d.File+": refused: "+d.Reason)
		}
	}
	for _, i := range report.Instances {
		what := i.ID
		if i.Status != portable.Refused {
			what = fmt.Sprintf("%s in %q, %s, %s", nameVersion(i.Workflow, i.Version), i.State,
				term.Count(i.Events-i.Checkpoints, "step"), term.Count(i.Checkpoints, "checkpoint"))
		}
		rows = append(rows, []string{i.File, string(i.Status), what})
		if i.Reason != "" {
			remarks = append(remarks, i.File+": refused: "+i.Reason)
		}
		for _, note := range i.Notes {
			remarks = append(remarks, i.File+": "+note)
		}
	}
	con.Out.Table(rows)
	for _, remark := range remarks {
		con.Out.Printf("%s\n", remark)
	}
	if report.DryRun {
		con.Err.Printf("nothing was written\n")
	}
	if bad := report.Refused + report.Differed + report.SetAside; bad > 0 {
		con.Err.Printf("%s of %d were not imported as they are\n", con.Err.Red(fmt.Sprint(bad)), len(report.Definitions)+len(report.Instances))
	}
}

func nameVersion(name string, version int) string {
	if version == 0 {
		return name
	}
	return fmt.Sprintf("%s v%d", name, version)
}

// exportCommand exports definitions, instances and histories to a folder.
type exportCommand struct {
	Dir      string `arg:"" name:"dir" help:"Folder to write to: a new one, or that of an earlier export."`
	Instance string `name:"instance" placeholder:"ID" help:"Only this instance."`
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only this workflow with its instances."`
	JSON     bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

// Help is the text of gavel help export.
func (exportCommand) Help() string {
	return `Writes definitions, instances, histories and checkpoints in the form of a .workflows
folder: canonical JSON, one event per line, with the hashes of the chain. Imported events
keep all of their content, and exporting an imported export writes the same bytes.
Sensitive values are keyed digests, with a new salt in each export. Files appear complete
or not at all.

Examples:

    gavel export out
    gavel export out --workflow document-review
    gavel export out --instance wf-019bc119-ef48-77d8-97b5-82f5b5696c97 && jq . out/wf-*.log`
}

// Run writes the folder and prints what it contains.
func (c *exportCommand) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.CompleteInstance(ctx, &c.Instance); err != nil {
		return err
	}
	exported, err := portable.Export(ctx, sys.Engine, sys.Store, gavel.Operator, portable.ExportRequest{Instance: c.Instance, Workflow: c.Workflow})
	if err != nil {
		return cli.EngineFailure(err)
	}
	to, err := folder.OpenDir(c.Dir)
	switch {
	case errors.Is(err, folder.ErrForeign):
		return term.UsageErrorf("give a new folder, such as "+filepath.Join(c.Dir, "export"), "cannot export to %s: %w", c.Dir, err)
	case err != nil:
		return term.UnknownErrorf("", "cannot export to %s: %w", c.Dir, err)
	}
	written, err := folder.Write(to, exported)
	if err := errors.Join(err, to.Close()); err != nil {
		if _, known := errors.AsType[*engine.Error](err); known {
			return cli.EngineFailure(err)
		}
		return term.UnknownErrorf("files written so far stay; export again", "cannot export to %s: %w", c.Dir, err)
	}
	return con.Print(c.JSON, written, func() {
		con.Out.Printf("%s: %s, %s with %s and %s\n", c.Dir, term.Count(written.Definitions, "definition"), term.Count(written.Instances, "instance"),
			term.Count(written.Lines, "line"), term.Count(written.Checkpoints, "checkpoint"))
	})
}
