package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// RepairCommand saves the readable part of a damaged store.
type RepairCommand struct {
	Out  string `name:"out" required:"" placeholder:"FILE" help:"The file to write the saved data to."`
	JSON bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

type repairResult struct {
	Store string `json:"store"`
	File  string `json:"file"`
	sqlite.Salvaged
}

// Run writes the readable part to a new store.
func (c *RepairCommand) Run(ctx context.Context, con *cli.Console) error {
	path, lost := c.FindLost() // if lost, its log is repaired
	if !lost {
		var err error
		if path, err = c.FilePath(con.Log, false, "PostgreSQL checks its own pages; restore a dump, or a point in time: docs/postgres.md"); err != nil {
			return err
		}
	}
	saved, err := sqlite.Salvage(ctx, path, c.Out)
	if errors.Is(err, sqlite.ErrCorrupt) || errors.Is(err, sqlite.ErrNotAStore) {
		return &term.ExitError{Code: term.ExitBad, Hint: "restore a backup: gavel restore FILE --force", Err: fmt.Errorf("no part of the store can be read: %w", err)}
	} else if err != nil {
		return copyFailure(err, "give another --out")
	}
	if err := con.Print(c.JSON, repairResult{Store: path, File: c.Out, Salvaged: saved}, func() { printSaved(con, c.Out, saved) }); err != nil {
		return err
	}
	if key := gavel.KeyPath(path); cli.IsFile(key) && !isSameContent(key, gavel.KeyPath(c.Out)) {
		con.Err.Printf("%s its key is %s; put a copy next to %s, otherwise its definitions are not used\n", con.Err.Dim("note:"), key, c.Out)
	}
	return cli.ExitBadUnless(saved.Whole())
}

func isSameContent(a, b string) bool {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// maxShown limits a list for people. --json prints all of it.
const maxShown = 20

func printSaved(con *cli.Console, file string, s sqlite.Salvaged) {
	con.Out.Printf("%s holds %s\n", file, describeContents(s.Contents))
	if l := s.Log; l != nil {
		con.Out.Printf("the database was lost; %s of its log were replayed\n", term.Count(int64(l.Frames), "frame"))
		if l.MissingPages > 0 {
			con.Out.Printf("%d of %d pages were not in the log\n", l.MissingPages, l.Pages)
		}
		if l.Cut {
			con.Out.Printf("the log ends with a damaged or incomplete frame\n")
		}
	}
	n := len(s.Lost)
	switch {
	case s.Whole():
		con.Out.Printf("nothing is lost\n")
		fallthrough
	case n == 0:
		return
	}
	rows := [][]string{{"WHERE", "LOST", "NOTE"}}
	for _, l := range s.Lost[:min(n, maxShown)] {
		where, note := "table "+l.Table, l.Why
		if l.Instance != "" {
			where, note = l.Instance, fmt.Sprintf("was at event %d, is at %d: %s", l.Was, l.Is, l.Why)
		}
		rows = append(rows, []string{where, term.OrNone(joinRanges(l.Ranges)), term.Truncate(note, 160)})
	}
	con.Out.Table(rows)
	if n > maxShown {
		con.Out.Printf("and %d more; --json lists them\n", n-maxShown)
	}
	con.Out.Printf("%s\n", con.Out.Red(term.Count(n, "loss")))
}

// joinRanges formats ranges as a person writes them: 3-5, 9.
func joinRanges(all []sqlite.Range) string {
	var parts []string
	for i, r := range all {
		switch {
		case i == maxShown:
			return strings.Join(append(parts, "..."), ", ")
		case r.From == r.To:
			parts = append(parts, fmt.Sprint(r.From))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", r.From, r.To))
		}
	}
	return strings.Join(parts, ", ")
}
