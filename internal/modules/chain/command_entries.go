package chain

import (
	"bytes"
	"context"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// warnEntries logs problems with the chains that the states of stored workflows start.
func (c *chains) warnEntries(ctx context.Context) error {
	stored, err := c.sys.Store.Definitions(ctx)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	var starting []*workflow.Definition
	for _, newest := range stored {
		d, err := c.sys.Store.Definition(ctx, newest.Name, newest.Version)
		if err != nil {
			return term.UnknownErrorf("", "cannot read the store: %w", err)
		}
		if !d.Operator || !bytes.Contains(d.Document, []byte(`"onEnter":{`)) { // documents are compact JSON
			continue
		}
		if parsed, err := workflow.Parse(d.Name, d.Document); err == nil {
			starting = append(starting, parsed)
		}
	}
	for name, issues := range CheckEntries(starting, c.list()) {
		for _, issue := range issues {
			c.log.WarnContext(ctx, "a state has a problem with the chain that it starts", "workflow", name, "path", issue.Path, "issue", issue.Message)
		}
	}
	return nil
}

type cancelEntryCommand struct {
	Instance string `arg:"" name:"instance" help:"The waiting instance."`
	cli.StoreFlag
}

func (cancelEntryCommand) Help() string {
	return `An instance in a state with onEnter and wait: true waits for its chain. If no server ever ran that
chain, this frees the instance as if the chain had failed, and performs its onFailure.
To end a run that has begun, use gavel chain cancel.

Examples:

    gavel chain cancel-entry wf-019d0a11 --store gavel.db

Exit codes: 0 freed, 1 it does not wait for a chain that never ran, 2 wrong usage, 3 could not
find out.`
}

func (c *cancelEntryCommand) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer func() { _ = sys.Close() }() // committed writes are durable
	name, err := CancelEntry(ctx, EntryLog{sys.Engine, sys.Store}, localOperator, c.Instance)
	if err != nil {
		return cli.OperationFailure(err)
	}
	con.Out.Printf("%s no longer waits for the chain %s\n", c.Instance, name)
	return nil
}
