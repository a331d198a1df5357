package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// CursorCommand has the commands for cursors. A cursor is a reader's position in the event log.
type CursorCommand struct {
	List cursorListCmd `cmd:"" help:"List the cursors of a store."`
	Show cursorShowCmd `cmd:"" help:"Show one cursor."`
	Move cursorMoveCmd `cmd:"" help:"Move a cursor, so that its reader gets events again or skips some."`
	Drop cursorDropCmd `cmd:"" help:"Drop a cursor whose reader is gone."`
}

// cursorView is a cursor with its lag.
type cursorView struct {
	store.Cursor
	// Behind is the number of positions after the cursor.
	Behind int64 `json:"behind"`
}

func readCursors(ctx context.Context, sys *cli.System) (views []cursorView, last int64, err error) {
	if last, err = sys.Store.LastPosition(ctx); err != nil {
		return nil, 0, term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	all, err := sys.Store.Cursors(ctx)
	if err != nil {
		return nil, 0, term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	views = []cursorView{}
	for _, c := range all {
		views = append(views, cursorView{Cursor: c, Behind: max(0, last-c.Position)})
	}
	return views, last, nil
}

func findCursor(views []cursorView, name string) (cursorView, error) {
	at := slices.IndexFunc(views, func(v cursorView) bool { return v.Name == name })
	if at < 0 {
		return cursorView{}, term.UsageErrorf("gavel cursor list shows them", "there is no cursor %q", name)
	}
	return views[at], nil
}

type cursorListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *cursorListCmd) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	views, _, err := readCursors(ctx, sys)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "POSITION", "BEHIND", "MOVED AT", "FILTER"}}
	for _, v := range views {
		rows = append(rows, []string{v.Name, fmt.Sprint(v.Position), fmt.Sprint(v.Behind), cli.FormatTime(v.MovedAt), term.OrNone(v.Filter)})
	}
	return con.PrintList(c.JSON, map[string]any{"cursors": views}, rows, "there are no cursors", "")
}

type cursorShowCmd struct {
	Name string `arg:"" name:"name" help:"The cursor, such as webhook:audit."`
	JSON bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *cursorShowCmd) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	views, _, err := readCursors(ctx, sys)
	if err != nil {
		return err
	}
	v, err := findCursor(views, c.Name)
	if err != nil {
		return err
	}
	next, err := sys.Engine.Tail(ctx, gavel.Operator, engine.TailRequest{After: v.Position, Limit: 1})
	if err != nil {
		return cli.EngineFailure(err)
	}
	shown := struct {
		cursorView
		// Next is the event that the reader gets next, unless its filter excludes it.
		Next []engine.EventView `json:"next"`
	}{v, next.Events}
	return con.Print(c.JSON, shown, func() {
		con.Out.Printf("%s is at %d, with a lag of %s\ncreated %s, moved %s\n", v.Name, v.Position, term.Count(v.Behind, "event"), cli.FormatTime(v.MadeAt), cli.FormatTime(v.MovedAt))
		if v.Filter != "" {
			con.Out.Printf("filter %s\n", v.Filter)
		}
		for _, e := range next.Events {
			con.Out.Printf("next %d: %s of %s, event %d, at %s\n", e.Position, e.Kind, e.Instance, e.Seq, cli.FormatTime(e.Time))
		}
	})
}

type cursorMoveCmd struct {
	Name string `arg:"" name:"name" help:"The cursor, such as webhook:audit."`
	To   string `arg:"" name:"to" help:"The position of the last event that its reader has, or start or end."`
	New  bool   `name:"new" help:"Create the cursor, which must not exist yet. For a program that follows /v1/events and moves its cursor with this command."`
	JSON bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *cursorMoveCmd) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	views, last, err := readCursors(ctx, sys)
	if err != nil {
		return err
	}
	to, err := parsePosition(c.To, last)
	if err != nil {
		return err
	}
	from, moved := int64(store.NoCursor), store.Cursor{Name: c.Name}
	if c.New {
		if !isCursorName(c.Name) {
			return term.UsageErrorf("", "a cursor name must be 1 to 64 letters, digits or - _ . :")
		}
	} else {
		v, err := findCursor(views, c.Name)
		if err != nil {
			return err
		}
		from, moved = v.Position, v.Cursor
	}
	moved.Position = to
	switch err := sys.Store.MoveCursor(ctx, moved, from, nil); {
	case errors.Is(err, store.ErrConflict) && c.New:
		return term.UsageErrorf("leave out --new to move it", "the cursor %q already exists", c.Name)
	case errors.Is(err, store.ErrConflict):
		return &term.ExitError{Code: term.ExitBad, Hint: "its reader is active; try again", Err: fmt.Errorf("the cursor %q was moved at the same time", c.Name)}
	case err != nil:
		return term.UnknownErrorf("", "cannot move the cursor: %w", err)
	}
	return con.Print(c.JSON, map[string]any{"name": c.Name, "was": from, "position": to}, func() {
		switch {
		case c.New:
			con.Out.Printf("%s is at %d\n", c.Name, to)
		case to < from:
			con.Out.Printf("%s moved back from %d to %d: its reader gets the events in between again\n", c.Name, from, to)
		default:
			con.Out.Printf("%s moved from %d to %d: its reader skips the events in between\n", c.Name, from, to)
		}
	})
}

func isCursorName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:", r)
	})
}

// parsePosition parses the target position of a cursor, from 0 to last.
func parsePosition(text string, last int64) (int64, error) {
	switch text {
	case "start":
		return 0, nil
	case "end":
		return last, nil
	}
	to, err := strconv.ParseInt(text, 10, 64)
	if err != nil || to < 0 || to > last {
		return 0, term.UsageErrorf("", "the position must be 0 to %d, start or end, not %q", last, text)
	}
	return to, nil
}

type cursorDropCmd struct {
	Name string `arg:"" name:"name" help:"The cursor, such as webhook:audit."`
	cli.StoreFlag
}

func (c *cursorDropCmd) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	views, _, err := readCursors(ctx, sys)
	if err == nil {
		_, err = findCursor(views, c.Name)
	}
	if err != nil {
		return err
	}
	if err := sys.Store.DropCursor(ctx, c.Name); err != nil && !errors.Is(err, store.ErrNotFound) {
		return term.UnknownErrorf("", "cannot drop the cursor: %w", err)
	}
	con.Out.Printf("dropped %s\n", c.Name)
	return nil
}
