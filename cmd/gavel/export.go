package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/transfer"
	"github.com/gavel-mcp/gavel/engine/transfer/folder"
)

type exportCmd struct {
	Dir      string `arg:"" name:"dir" help:"Folder to write to: a new one, or that of an earlier export."`
	Instance string `name:"instance" placeholder:"ID" help:"Only this instance."`
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only this workflow with its instances."`
	JSON     bool   `name:"json" help:"Print JSON."`
	storeFlag
}

func (exportCmd) Help() string {
	return `Writes definitions, instances, histories and checkpoints in the form of a .workflows
folder: canonical JSON, one event a line, with the hashes of the chain. What was imported
keeps everything that its lines held, and exporting an import of an export writes the same
bytes. Sensitive values are keyed digests, with a new salt in each export. Files appear whole or not at all.

Examples:

    gavel export out
    gavel export out --workflow document-review
    gavel export out --instance wf-019bc119-ef48-77d8-97b5-82f5b5696c97 && jq . out/wf-*.log`
}

func (c *exportCmd) Run(ctx context.Context, con *console) error {
	sys, err := openForReading(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	exported, err := transfer.Export(ctx, sys.engine, sys.store, localCLI, transfer.ExportRequest{Instance: c.Instance, Workflow: c.Workflow})
	if err != nil {
		return engineFailure(err)
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
			return engineFailure(err)
		}
		return term.UnknownErrorf("what was written by then stays; export again", "cannot export to %s: %w", c.Dir, err)
	}
	return con.print(c.JSON, written, func() {
		con.out.Printf("%s: %s, %s with %s and %s\n", c.Dir, term.Count(written.Definitions, "definition"), term.Count(written.Instances, "instance"),
			term.Count(written.Lines, "line"), term.Count(written.Checkpoints, "checkpoint"))
	})
}
