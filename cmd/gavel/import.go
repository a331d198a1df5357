package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/folder"
)

type importCmd struct {
	Dir    string `arg:"" name:"dir" help:"The folder, such as .workflows."`
	DryRun bool   `name:"dry-run" help:"Say what would happen and write nothing."`
	Counts bool   `name:"counts" help:"Let what was visited elsewhere count toward mustPassThrough."`
	Owner  string `name:"owner" default:"local:agent" placeholder:"ID" help:"Principal that the instances belong to. Default: local:agent, the one of gavel mcp."`
	JSON   bool   `name:"json" help:"Print JSON."`
	storeFlag
}

// Help says what is imported and what is not believed.
func (importCmd) Help() string {
	return `Brings the workflows here that the Generic DFA server keeps in a folder, or that gavel
export wrote: definitions first, which become the operator's, then every instance with its
history and its checkpoints. The folder is only read. Importing it again changes nothing;
a log that has grown meanwhile is continued.

What nobody here saw is recorded as imported, not as judged. Where a log does not lead to
what its instance is said to be, the instance's file holds, and the difference is told.

Examples:

    gavel import .workflows --dry-run
    gavel import .workflows
    gavel import backup/.workflows --owner local:ada --json

Exit codes: 0 all was imported, 1 something was refused or differs, 2 wrong usage, 3 could
not find out.`
}

// Run imports a folder.
func (c *importCmd) Run(ctx context.Context, con *console) error {
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return misused("give the folder that holds definitions and wf-*.json files", "cannot open the folder: %w", err)
	}
	defer root.Close()
	from, err := folder.Open(root.FS())
	if err != nil {
		return unclear("", "cannot read %s: %w", c.Dir, err)
	}
	if from.Empty() {
		return misused("give the folder that holds definitions and wf-*.json files", "%s holds no workflows", c.Dir)
	}
	path, err := c.place(con.log)
	if err != nil {
		return err
	}
	sys, err := c.open(ctx, con, path)
	if err != nil {
		return err
	}
	defer sys.Close()
	report, err := sys.engine.Import(ctx, localCLI, engine.ImportRequest{
		Source: c.Dir, Owner: c.Owner, Counts: c.Counts, DryRun: c.DryRun,
		Definitions: from.Definitions(), Instances: from.Instances(),
	})
	if err != nil {
		return engineFailure(err)
	}
	if err := c.print(con, report); err != nil {
		return err
	}
	if report.Refused > 0 || report.Differed > 0 {
		return found()
	}
	return nil
}

// place is the store to import into. A dry run makes none.
// open opens the store; a dry run only looks.
func (c *importCmd) open(ctx context.Context, con *console, path string) (*system, error) {
	if c.DryRun && path != memoryStore {
		return openPathForReading(ctx, con, path)
	}
	return openSystem(ctx, con.log, path, equipment{})
}

func (c *importCmd) place(log *slog.Logger) (string, error) {
	if !c.DryRun {
		return c.storeAt(log, true, func(*slog.Logger, string) {})
	}
	if c.Store == "" {
		if path, err := c.storePath(log, false); err == nil {
			return path, nil
		}
		return memoryStore, nil
	}
	if _, err := os.Stat(c.Store); errors.Is(err, fs.ErrNotExist) {
		return memoryStore, nil
	}
	return c.storePath(log, true)
}

func (c *importCmd) print(con *console, report engine.ImportReport) error {
	if c.JSON {
		return con.out.json(report)
	}
	rows := [][]string{{"FILE", "STATUS", "WHAT"}}
	for _, d := range report.Definitions {
		rows = append(rows, []string{d.File, string(d.Status), versioned(d.Name, d.Version)})
	}
	for _, i := range report.Instances {
		rows = append(rows, []string{i.File, string(i.Status), instanceImported(i)})
	}
	con.out.table(rows)
	for _, d := range report.Definitions {
		if d.Status != engine.ImportRefused {
			continue
		}
		if len(d.Issues) == 0 {
			con.out.printf("%s: refused: %s\n", d.File, d.Reason)
		}
		for _, issue := range d.Issues {
			con.out.printf("%s\n", issueLine(d.File, issue))
		}
	}
	for _, i := range report.Instances {
		if i.Reason != "" {
			con.out.printf("%s: refused: %s\n", i.File, i.Reason)
		}
		for _, text := range i.Differences {
			con.out.printf("%s: difference: %s\n", i.File, text)
		}
		for _, text := range i.Notes {
			con.out.printf("%s: note: %s\n", i.File, text)
		}
	}
	if report.DryRun {
		con.err.printf("nothing was written\n")
	}
	return nil
}

func versioned(name string, version int) string {
	if version == 0 {
		return name
	}
	return fmt.Sprintf("%s v%d", name, version)
}

func instanceImported(i engine.InstanceImport) string {
	if i.Status == engine.ImportRefused {
		return i.ID
	}
	parts := []string{fmt.Sprintf("%s in %q", versioned(i.Workflow, i.Version), i.State)}
	if steps := i.Events - i.Checkpoints; steps > 0 {
		parts = append(parts, plural(steps, "step"))
	}
	if i.Checkpoints > 0 {
		parts = append(parts, plural(i.Checkpoints, "checkpoint"))
	}
	return strings.Join(parts, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type exportCmd struct {
	Dir      string `arg:"" name:"dir" help:"Folder to write to: a new one, or that of an earlier export."`
	Instance string `name:"instance" placeholder:"ID" help:"Only this instance."`
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only this workflow with its instances."`
	JSON     bool   `name:"json" help:"Print JSON."`
	storeFlag
}

// Help says what is written and what is not.
func (exportCmd) Help() string {
	return `Writes definitions, instances, histories and checkpoints in the form of a .workflows
folder: canonical JSON, one event a line, with the hashes of the chain. What was imported
keeps everything that its lines held, and exporting an import of an export writes the same
bytes. Sensitive values are keyed digests, salted anew by each export. Files appear whole or not at all.

Examples:

    gavel export out
    gavel export out --workflow document-review
    gavel export out --instance wf-01926f0e-7c1a-7000-8000-000000000000 && jq . out/wf-*.log`
}

// Run exports to a folder.
func (c *exportCmd) Run(ctx context.Context, con *console) error {
	sys, err := openForReading(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	exported, err := sys.engine.Export(ctx, localCLI, engine.ExportRequest{Instance: c.Instance, Workflow: c.Workflow})
	if err != nil {
		return engineFailure(err)
	}
	to, err := folder.OpenDir(c.Dir)
	switch {
	case errors.Is(err, folder.ErrForeign):
		return misused("give a new folder, such as "+filepath.Join(c.Dir, "export"), "cannot export to %s: %w", c.Dir, err)
	case err != nil:
		return unclear("", "cannot export to %s: %w", c.Dir, err)
	}
	written, err := folder.Write(to, exported)
	if err := errors.Join(err, to.Close()); err != nil {
		var known *engine.Error
		if errors.As(err, &known) {
			return engineFailure(err)
		}
		return unclear("what was written by then stays; export again", "cannot export to %s: %w", c.Dir, err)
	}
	if c.JSON {
		return con.out.json(written)
	}
	con.out.printf("%s: %s, %s with %s and %s\n", c.Dir, plural(written.Definitions, "definition"), plural(written.Instances, "instance"),
		plural(written.Lines, "line"), plural(written.Checkpoints, "checkpoint"))
	return nil
}
