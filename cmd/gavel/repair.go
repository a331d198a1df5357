package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/term"
)

type repairCmd struct {
	Out  string `name:"out" required:"" placeholder:"FILE" help:"Where to write what can be saved."`
	JSON bool   `name:"json" help:"Print JSON."`
	storeFlag
}

type repairResult struct {
	Store string `json:"store"`
	File  string `json:"file"`
	sqlite.Salvaged
}

func (c *repairCmd) Run(ctx context.Context, con *console) error {
	path, lost := c.lostStore() // if lost, its log is repaired
	if !lost {
		var err error
		if path, err = c.filePath(con.log, false, "the server checks its own pages; restore a dump, or a point in time: docs/postgres.md"); err != nil {
			return err
		}
	}
	saved, err := sqlite.Salvage(ctx, path, c.Out)
	if errors.Is(err, sqlite.ErrCorrupt) || errors.Is(err, sqlite.ErrNotAStore) {
		return &term.ExitError{Code: term.ExitBad, Hint: "restore a backup: gavel restore FILE --force", Err: fmt.Errorf("nothing of it can be read: %w", err)}
	} else if err != nil {
		return copyFailure(err, "give another --out")
	}
	if err := con.print(c.JSON, repairResult{Store: path, File: c.Out, Salvaged: saved}, func() { printSaved(con, c.Out, saved) }); err != nil {
		return err
	}
	if key := gavel.KeyBeside(path); isFile(key) && !sameContent(key, gavel.KeyBeside(c.Out)) {
		con.err.Printf("%s its key is %s; put a copy of it next to %s, or its definitions are not used\n", con.err.Dim("note:"), key, c.Out)
	}
	return badUnless(saved.Whole())
}

func sameContent(a, b string) bool {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// mostShown limits a list for people. --json prints all of it.
const mostShown = 20

func printSaved(con *console, file string, s sqlite.Salvaged) {
	con.out.Printf("%s holds %s\n", file, describeContents(s.Contents))
	if l := s.Log; l != nil {
		con.out.Printf("the database was lost; %s of its log were replayed\n", term.Count(int64(l.Frames), "frame"))
		if l.MissingPages > 0 {
			con.out.Printf("%d of %d pages were not in the log\n", l.MissingPages, l.Pages)
		}
		if l.Cut {
			con.out.Printf("the log ends with a frame that is damaged or was never finished\n")
		}
	}
	n := len(s.Lost)
	switch {
	case s.Whole():
		con.out.Printf("nothing is lost\n")
		fallthrough
	case n == 0:
		return
	}
	rows := [][]string{{"WHERE", "LOST", "NOTE"}}
	for _, l := range s.Lost[:min(n, mostShown)] {
		where, note := "table "+l.Table, l.Why
		if l.Instance != "" {
			where, note = l.Instance, fmt.Sprintf("was at event %d, is at %d: %s", l.Was, l.Is, l.Why)
		}
		rows = append(rows, []string{where, term.OrNone(joinRanges(l.Ranges)), term.Truncate(note, 160)})
	}
	con.out.Table(rows)
	if n > mostShown {
		con.out.Printf("and %d more; --json lists them\n", n-mostShown)
	}
	con.out.Printf("%s\n", con.out.Red(term.Count(n, "loss")))
}

// joinRanges formats ranges as a person writes them: 3-5, 9.
func joinRanges(all []sqlite.Range) string {
	var parts []string
	for i, r := range all {
		switch {
		case i == mostShown:
			return strings.Join(append(parts, "..."), ", ")
		case r.From == r.To:
			parts = append(parts, fmt.Sprint(r.From))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", r.From, r.To))
		}
	}
	return strings.Join(parts, ", ")
}
