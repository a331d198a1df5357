package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
)

// exportPage is how many decisions are held at a time.
const exportPage = 200

type historyExportCmd struct {
	decisionFilter
	Out string `name:"out" placeholder:"FILE" help:"Write to this file, which appears when it is complete; standard output when left out."`
	storeFlag
}

// Help says what is written.
func (historyExportCmd) Help() string {
	return `One decision per line as JSON, newest first, with the same fields in the same order each
time. Sensitive values are masked; there is no way to have them plain. Of evidence
there is that it was fetched, when, and its digest.

Examples:

    gavel history export --out decisions.jsonl
    gavel history export --workflow document-review --since 2026-01-01 | jq -c '{time, outcome, code}'`
}

// Run exports decisions.
func (c *historyExportCmd) Run(ctx context.Context, con *console) error {
	q, err := c.query(time.Now())
	if err != nil {
		return err
	}
	sys, err := openForReading(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	export := func(w io.Writer) error { return exportDecisions(ctx, sys.engine, q, w) }
	if c.Out == "" {
		return export(con.rawOut)
	}
	return writeWhole(c.Out, export)
}

// exportDecisions writes decisions page by page. What a terminal would obey is escaped,
// so standard output may be one.
func exportDecisions(ctx context.Context, e *engine.Engine, q store.DecisionQuery, w io.Writer) error {
	out := bufio.NewWriter(w)
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	for req := (engine.DecisionsRequest{Query: q, Limit: exportPage, BareEvidence: true}); ; {
		page, err := e.Decisions(ctx, localCLI, req)
		if err != nil {
			return engineFailure(err)
		}
		for _, d := range page.Decisions {
			line.Reset()
			if err := enc.Encode(d); err != nil {
				return term.UnknownErrorf("", "cannot encode decision %d of %s: %w", d.Seq, d.WorkflowID, err)
			}
			if _, err := out.WriteString(term.EscapeJSON(line.String())); err != nil {
				return term.UnknownErrorf("", "cannot write the export: %w", err)
			}
		}
		if req.Cursor = page.NextCursor; req.Cursor == "" {
			if err := out.Flush(); err != nil {
				return term.UnknownErrorf("", "cannot write the export: %w", err)
			}
			return nil
		}
	}
}

// writeWhole makes a file appear with all of its content, on the disk, or not at all.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".gavel-export-*") // 0600
	if err != nil {
		return term.UsageErrorf("give another --out", "cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is the one to tell
		}
	}()
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return term.UnknownErrorf("free some space, or give another --out", "cannot write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return term.UsageErrorf("give another --out", "cannot write %s: %w", path, err)
	}
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there
	}
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("make %s last: %w", path, err)
	}
	return nil
}
