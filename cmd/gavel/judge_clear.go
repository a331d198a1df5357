package main

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/store"
)

type judgeClearCmd struct {
	Principal string `name:"principal" placeholder:"ID" help:"Whose refusals."`
	Workflow  string `name:"workflow" placeholder:"NAME" help:"Of which workflow."`
	Action    string `name:"action" placeholder:"ACTION" help:"Of which action. Default: all."`
	JSON      bool   `name:"json" help:"Print the number as JSON."`
	storeFlag
}

// Help says what for.
func (judgeClearCmd) Help() string {
	return `Who was refused the same thing three times by the model is not asked about again: a
person has to decide (loop_guard). This forgets the refusals, so that the model is
asked anew; the decisions themselves stay on record.

Examples:

    gavel judge clear --principal local:agent --workflow document-review
    gavel judge clear --workflow document-review --action approve --json

Exit codes: 0 done (also when there was nothing to forget), 2 wrong usage, 3 could not.`
}

// Run forgets refusals.
func (c *judgeClearCmd) Run(ctx context.Context, con *console) error {
	if c.Principal == "" && c.Workflow == "" {
		return term.UsageErrorf("", "say whose refusals to forget: --principal, --workflow, or both")
	}
	sys, err := openForWriting(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	n, err := sys.engine.ClearRefusals(ctx, localCLI, store.RefusalQuery{Principal: c.Principal, Workflow: c.Workflow, Action: c.Action})
	if err != nil {
		return errors.Join(engineFailure(err), sys.Close())
	}
	if c.JSON {
		err = con.out.JSON(map[string]int{"forgotten": n})
	} else {
		con.out.Printf("%d refusals forgotten\n", n)
	}
	return errors.Join(err, sys.Close())
}
