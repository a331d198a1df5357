package main

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// turning is what undo and redo have in common.
type turning struct {
	ID       string `arg:"" name:"id" help:"The instance."`
	Expected *int64 `name:"expected-revision" placeholder:"N" help:"Only if the instance is at this revision."`
	Key      string `name:"idempotency-key" placeholder:"KEY" help:"The same call with the same key is answered and not repeated."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

type instancesUndoCmd struct{ turning }

func (instancesUndoCmd) Help() string {
	return `State and context are again what they were before the move; called again, the move before
that is taken back. What a move did outside is not undone. The history is kept: undoing is
an event like any other. Reviews that wait become stale.

Examples:

    gavel instances undo wf-019bd776-1194-7ef4-9469-880929f82c0f

Exit codes: 0 undone, 1 there is nothing to undo, 2 wrong usage, 3 could not find out.`
}

func (c *instancesUndoCmd) Run(ctx context.Context, con *console) error {
	return c.turn(ctx, con, operation.Undo)
}

type instancesRedoCmd struct{ turning }

func (instancesRedoCmd) Help() string {
	return `The move that was undone last is made again, exactly as it was; nothing is judged again.
After another move, a rollback or a migration there is nothing to redo.

Examples:

    gavel instances redo wf-019bdd0d-1a27-7a14-958a-eb0007d1dfe2

Exit codes: 0 made again, 1 there is nothing to redo, 2 wrong usage, 3 could not find out.`
}

func (c *instancesRedoCmd) Run(ctx context.Context, con *console) error {
	return c.turn(ctx, con, operation.Redo)
}

func (c turning) turn(ctx context.Context, con *console, op operation.Typed[engine.UndoRequest, engine.UndoResult]) error {
	g, done, err := c.openToWrite(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	r, err := op.Do(ctx, g, engine.UndoRequest{ID: c.ID, Key: c.Key, ExpectedRevision: c.Expected})
	if err != nil {
		return badEnd(err, engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict)
	}
	return con.print(c.JSON, r, func() { con.out.Printf("%s\n%s\n", r.Message, r.Progress) })
}
