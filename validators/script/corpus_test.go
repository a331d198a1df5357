package script_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// quiet is a logger for tests in which many workers die.
var quiet = slog.New(slog.DiscardHandler)

// TestCorpus runs a sample of the corpus of hostile scripts, or all of it with GAVEL_LONG, if the corpus is
// present.
func TestCorpus(t *testing.T) { //nolint:tparallel // its pieces run side by side, and nothing beside them
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "corpus", "hostile.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the corpus is not here")
	} else if err != nil {
		t.Fatal(err)
	}
	every := 8
	if long {
		every = 1
	}
	runHostile(t, raw, every)
}

// TestHostile runs this project's own hostile scripts and schemas.
func TestHostile(t *testing.T) {
	for _, name := range []string{"scripts.json", "schemas.json"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "hostile", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { runHostile(t, raw, 1) })
	}
}

// runHostile runs every n-th case of a hostile set. Each case must end as required and in time, an honest call
// immediately after it must succeed, and no worker may grow beyond 200 MB. Most of the time is spent waiting
// for workers to be killed, so parts of the set run in parallel.
func runHostile(t *testing.T, raw []byte, every int) {
	t.Helper()
	cases, err := script.ReadCases(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	// These cases were recorded before scripts had a console, and before valid was read like a JavaScript
	// condition.
	cases = slices.DeleteFunc(cases, func(c script.Case) bool { return c.Name == "host_no_console" })
	for i := range cases {
		if slices.Contains([]string{"ret_valid_truthy", "ret_valueof", "ret_valid_null"}, cases[i].Name) {
			cases[i].Must = "ok"
		}
	}
	const pieces = 2
	for n := range pieces {
		t.Run(fmt.Sprintf("%d of %d", n+1, pieces), func(t *testing.T) {
			t.Parallel()
			var piece []script.Case
			for i := n * every; i < len(cases); i += pieces * every {
				piece = append(piece, cases[i])
			}
			runPiece(t, piece)
		})
	}
}

func runPiece(t *testing.T, cases []script.Case) {
	t.Helper()
	// The limits add up to two seconds. The test allows ten times that, because the machine may be busy.
	const bound = 20 * time.Second
	const honest = "(data, context) => ({ valid: data.n === 3 && context.state === 'draft', confidence: 0.75, reason: 'r' })"
	cfg := script.Config{Soft: 20 * time.Millisecond, Hard: 50 * time.Millisecond} // a script that hangs never ends, so short limits suffice
	if long {
		cfg.Soft, cfg.Hard = 0, 0
	}
	p := newPool(t, cfg)
	patient := newPool(t, script.Config{Soft: 500 * time.Millisecond, Hard: 2 * time.Second, Total: 5 * time.Second})
	slowest, at := time.Duration(0), -1
	sum, err := p.RunCases(context.Background(), cases, func(r script.CaseReport) {
		at++
		switch {
		case r.Pass:
		case r.Got == "timeout": // inconclusive on a busy machine
			again, err := patient.RunCases(context.Background(), cases[at:at+1], nil)
			if err != nil || again.Failed > 0 {
				t.Errorf("%s (%s), with ten times the time: %+v, %v", r.Name, r.Class, again, err)
			}
		default:
			t.Errorf("%s (%s): %s", r.Name, r.Class, r.Miss)
		}
		slowest = max(slowest, r.Took.Duration())
		if r.Took.Duration() > bound {
			t.Errorf("%s took %v", r.Name, r.Took.Duration())
		}
		got := one(t, p, honest, `{"n":3}`)
		for try := 0; got.Code == script.Timeout && try < 3; try++ { // inconclusive on a busy machine
			got = one(t, p, honest, `{"n":3}`)
		}
		if got.Code != script.OK || !got.Valid || got.Confidence != 0.75 || got.Reason != "r" {
			t.Errorf("honest call after %s: %+v", r.Name, got)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum.PeakMemory > 200<<20 {
		t.Errorf("a worker used %d MB", sum.PeakMemory>>20)
	}
	t.Logf("%d passed, %d failed in %v, slowest %v, peak %d MB, %+v", sum.Passed, sum.Failed, sum.Took, slowest, sum.PeakMemory>>20, p.Stats())
}
