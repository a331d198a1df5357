package main

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
)

// A server anchors periodically if there are new events, and once more when it stops.
func TestServersAnchor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key, err := record.GenerateSigner("test")
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		sys, err := cli.OpenSystem(t.Context(), log, cli.StoreLocation{Path: gavel.Memory}, cli.SystemOptions{Anchors: key})
		if err != nil {
			t.Fatal(err)
		}
		defer sys.Close()
		flags := cli.AnchorFlags{AnchorEvery: 10 * time.Minute, AnchorFile: filepath.Join(t.TempDir(), "notes")}
		stop := flags.Watch(t.Context(), log, sys)
		start := func() {
			t.Helper()
			if _, err := sys.Engine.Start(t.Context(), gavel.Operator, engine.StartRequest{Type: "w"}); err != nil {
				t.Fatal(err)
			}
		}
		anchors := func(want int) {
			t.Helper()
			synctest.Wait()
			got := 0
			for _, err := range sys.Auditor.Anchors(t.Context(), gavel.Operator, 0) {
				if err != nil {
					t.Fatal(err)
				}
				got++
			}
			p, err := cli.ReadAnchorLog(flags.AnchorFile)
			if got != want || len(p.Notes) != want || err != nil {
				t.Fatalf("%d anchors, %d published, want %d; %v", got, len(p.Notes), want, err)
			}
		}
		if _, err := sys.Engine.Define(t.Context(), gavel.Operator, engine.DefineRequest{
			Source: "test", Document: []byte(`{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":"a"}}}}`),
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Minute) //nolint:forbidigo // the synctest clock
		anchors(1)                   // the definition
		start()
		time.Sleep(4 * time.Minute) //nolint:forbidigo // the synctest clock
		anchors(1)
		time.Sleep(2 * time.Minute) //nolint:forbidigo // the synctest clock
		anchors(2)
		time.Sleep(time.Hour) //nolint:forbidigo // the synctest clock
		anchors(2)
		start()
		stop()
		anchors(3)
		start()
		time.Sleep(time.Hour) //nolint:forbidigo // the synctest clock
		anchors(3)            // the server has stopped
	})
}
