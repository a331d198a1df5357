package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// BackupCommand copies a store.
type BackupCommand struct {
	File  string `arg:"" name:"file" help:"Where to write the backup."`
	Force bool   `name:"force" help:"Replace an existing file."`
	JSON  bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

type backupResult struct {
	Store string `json:"store"`
	File  string `json:"file"`
	sqlite.Contents
}

// Run copies the store and verifies the copy.
func (c *BackupCommand) Run(ctx context.Context, con *cli.Console) error {
	path, err := c.FilePath(con.Log, false, "back up a database with pg_dump, or archive its write-ahead log; see docs/postgres.md")
	if err != nil {
		return err
	}
	found, err := sqlite.Copy(ctx, path, c.File, c.Force)
	if err != nil {
		return copyFailure(err, "give another name, or --force to replace it")
	}
	if key := filepath.Join(filepath.Dir(path), gavel.KeyFile); cli.IsFile(key) {
		con.Err.Printf("%s the backup does not contain %s; keep a copy elsewhere\n", con.Err.Dim("note:"), key)
	}
	return con.Print(c.JSON, backupResult{Store: path, File: c.File, Contents: found}, func() {
		con.Out.Printf("%s holds %s, and verifies\n", c.File, describeContents(found))
	})
}

func describeContents(c sqlite.Contents) string {
	if c.Events == 0 {
		return fmt.Sprintf("%s of definitions and no instances", term.Count(c.Definitions, "version"))
	}
	return fmt.Sprintf("%s with %s, the newest of %s", term.Count(c.Instances, "instance"),
		term.Count(c.Events, "event"), c.Newest.UTC().Format(time.RFC3339))
}

// copyFailure maps an error from copying a store to its exit code.
func copyFailure(err error, existsHint string) error {
	switch {
	case errors.Is(err, sqlite.ErrExists):
		return term.UsageErrorf(existsHint, "cannot %w", err)
	case errors.Is(err, store.ErrOtherSchema):
		return term.UsageErrorf("use the gavel that wrote it", "cannot %w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, sqlite.ErrNetworkFS):
		return term.UsageErrorf("", "cannot %w", err)
	case errors.Is(err, sqlite.ErrCorrupt), errors.Is(err, sqlite.ErrNotAStore), errors.Is(err, record.ErrBroken):
		return &term.ExitError{Code: term.ExitBad, Hint: "run gavel verify for details; gavel repair saves the readable parts", Err: fmt.Errorf("cannot %w", err)}
	}
	return term.UnknownErrorf("", "cannot %w", err)
}

// RestoreCommand puts a backup in place of a store.
type RestoreCommand struct {
	File  string `arg:"" name:"file" help:"The backup."`
	Force bool   `name:"force" help:"Replace an existing store; the old one is kept next to it."`
	JSON  bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

type restoreResult struct {
	Store string `json:"store"`
	File  string `json:"file"`
	sqlite.Restored
}

// Run verifies the backup and restores it.
func (c *RestoreCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.Store == gavel.Memory {
		return term.UsageErrorf("give the path of a store file", "a store in memory belongs to the server that made it")
	}
	if !cli.IsFile(c.File) {
		return term.UsageErrorf("give the file that gavel backup wrote", "there is no backup at %s", c.File)
	}
	path, err := c.FilePath(con.Log, true, "restore a database with pg_restore, or to a point in time; see docs/postgres.md")
	if err != nil {
		return err
	}
	done, err := sqlite.Restore(ctx, sqlite.RestoreRequest{From: c.File, To: path, Replace: c.Force, Now: time.Now()})
	switch {
	case errors.Is(err, sqlite.ErrInUse):
		return term.UsageErrorf("stop every gavel server that uses it, then try again", "cannot %w", err)
	case err != nil:
		return copyFailure(err, "give another --store, or --force to put the backup in its place")
	}
	return con.Print(c.JSON, restoreResult{Store: path, File: c.File, Restored: done}, func() {
		con.Out.Printf("%s holds %s\n", path, describeContents(done.Contents))
		for _, name := range done.Kept {
			con.Out.Printf("the previous file is kept as %s\n", name)
		}
	})
}
