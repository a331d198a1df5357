package main

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
)

type restoreCmd struct {
	File  string `arg:"" name:"file" help:"The backup."`
	Force bool   `name:"force" help:"Put it in place of the store that is there; that one is kept beside it."`
	JSON  bool   `name:"json" help:"Print JSON."`
	storeFlag
}

// Help says what is safe about it.
func (restoreCmd) Help() string {
	return `Puts a backup in place. The backup is copied and read whole before anything that
is there is touched, and a store that another process has open is left alone:
end every server first. With --force, the store that was there is kept as
gavel.db.before-restore-TIME.

Examples:

    gavel restore /mnt/backups/gavel-2026-01-02.db
    gavel restore nightly.db --store /srv/gavel/gavel.db --force`
}

// restoreResult is what --json prints.
type restoreResult struct {
	Store string `json:"store"`
	File  string `json:"file"`
	sqlitestore.Restored
}

// Run restores a backup.
func (c *restoreCmd) Run(ctx context.Context, con *console) error {
	if c.Store == memoryStore {
		return term.UsageErrorf("give the path of a store file", "a store in memory belongs to the server that made it")
	}
	if !isFile(c.File) {
		return term.UsageErrorf("give the file that gavel backup wrote", "there is no backup at %s", c.File)
	}
	path, err := c.storePath(con.log, true)
	if err != nil {
		return err
	}
	done, err := sqlitestore.Restore(ctx, sqlitestore.RestoreRequest{From: c.File, To: path, Replace: c.Force, Now: time.Now()})
	switch {
	case errors.Is(err, sqlitestore.ErrInUse):
		return term.UsageErrorf("end every gavel server that uses it, then try again", "cannot %w", err)
	case err != nil:
		return copyFailure(err, "give another --store, or --force to put the backup in its place")
	}
	if c.JSON {
		return con.out.JSON(restoreResult{Store: path, File: c.File, Restored: done})
	}
	con.out.Printf("%s holds %s\n", path, holding(done.Contents))
	for _, name := range done.Kept {
		con.out.Printf("what was there is kept as %s\n", name)
	}
	return nil
}
