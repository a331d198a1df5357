package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
)

var (
	peersRounds = flag.Int("peers.rounds", 0, "rounds of the comparison with peers")
	peersDir    = flag.String("peers.dir", "", "where run.sh of the comparison is")
)

// Names of rows in the comparison. If two have the same prefix, the first counts.
const (
	floorRow    = "net/http + hand-written Go (ceiling)"
	syncedRow   = "net/http + hand-written Go + fdatasync group commit"
	writeRow    = "append 1 KB + fdatasync"
	quietRow    = "OPA server, rego, --log-level error"
	loggingRow  = "OPA server, rego, decision logs to console"
	decideRow   = "gavel decide, fields + schema"
	advanceRow  = "gavel advance, fields + schema"
	bareRow     = "mcp-go v1.2.1 bare tool, same 1 KB body, no checks"
	overPipeRow = "gavel advance over stdio, fields + schema"
)

// peerRow is a row of results/rows.jsonl, with medians over the rounds.
type peerRow struct {
	Name, Note     string
	C              int // concurrent callers
	PerS, P50, P99 float64
}

type peerRows map[string]map[int]peerRow

// TestBenchPeers compares a build of this tree with other projects in the same run (make bench-peers). The
// comparison is in a folder next to the checkout. The test copies it and never writes to it.
func TestBenchPeers(t *testing.T) {
	if *peersRounds == 0 {
		t.Skip("compared with -peers.rounds only")
	}
	if !cli.IsFile(filepath.Join(*peersDir, "run.sh")) {
		t.Skipf("there is nothing to compare with: no run.sh in %q (PEERS=folder names another one)", *peersDir)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(root, ".tmp", "peers")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-R", *peersDir+"/.", work).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(work, "bin", "gavel")); err != nil { // built from another tree
		t.Fatal(err)
	}
	readTokenFromFile(t, filepath.Join(work, "bench.py"))
	t.Logf("before: %s", machineLoad())
	comparison := exec.CommandContext(t.Context(), "./run.sh", strconv.Itoa(*peersRounds)) //nolint:gosec // the folder is selected by PEERS
	// Its MCP client reads structured content.
	comparison.Dir, comparison.Env = work, append(cli.WithoutSettings(os.Environ()), "GAVEL_SRC="+root, "GAVEL_OUTPUT_SCHEMAS=true")
	if out, err := comparison.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("after: %s", machineLoad())
	printRatios(t, readPeers(t, filepath.Join(work, "results", "rows.jsonl")))
}

// readTokenFromFile makes the comparison read its token from the file that the first start writes. It was written
// for a gavel that printed the token.
func readTokenFromFile(t *testing.T, script string) {
	t.Helper()
	raw, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	const printed, written = `[w for w in open(f"{R}/log-{port}.txt").read().split() if w.startswith("gvl_")][-1]`, `open(f"{R}/gavel/{port}/agent.token").read().strip()`
	if !bytes.Contains(raw, []byte(printed)) && !bytes.Contains(raw, []byte(written)) {
		t.Fatalf("%s reads the token in a way that this test does not know", script)
	}
	if err := os.WriteFile(script, bytes.ReplaceAll(raw, []byte(printed), []byte(written)), 0o644); err != nil { //nolint:gosec // the copied script has no secrets
		t.Fatal(err)
	}
}

func machineLoad() string {
	load, _ := os.ReadFile("/proc/loadavg")
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	_, model, _ := strings.Cut(string(cpus), "model name\t: ")
	model, _, _ = strings.Cut(model, "\n")
	return fmt.Sprintf("%d processors (%s), load %s", bytes.Count(cpus, []byte("processor\t")), model, bytes.TrimSpace(load))
}

func readPeers(t *testing.T, path string) peerRows {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := peerRows{}
	for line := range bytes.Lines(raw) {
		var r peerRow
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.Note, "WRONG ANSWERS") {
			t.Errorf("%s, %d callers: %s", r.Name, r.C, r.Note)
		}
		if rows[r.Name] == nil {
			rows[r.Name] = map[int]peerRow{}
		}
		rows[r.Name][r.C] = r
	}
	for _, name := range []string{floorRow, syncedRow, writeRow, quietRow, loggingRow, decideRow, advanceRow, bareRow, overPipeRow} {
		for _, c := range []int{1, 8} {
			if rows[name][c].PerS == 0 {
				t.Fatalf("the comparison has no row %q with %d callers", name, c)
			}
		}
	}
	return rows
}

// printRatios prints gavel's figures and their lower limits.
func printRatios(t *testing.T, rows peerRows) {
	t.Helper()
	perSecond := func(name, of string, c int) float64 { return rows[name][c].PerS / rows[of][c].PerS }
	t.Logf("| figure | measured | at least | aim |")
	t.Logf("|---|---|---|---|")
	for _, f := range []struct {
		figure                 string
		measured, atLeast, aim float64
		less                   bool // whether less is better
	}{
		{"/v1/decide / OPA quiet, 1 caller", perSecond(decideRow, quietRow, 1), 1.0, 1.5, false},
		{"/v1/decide / OPA quiet, 8 callers", perSecond(decideRow, quietRow, 8), 1.2, 2.0, false},
		{"REST advance, durable / OPA with decision log (no fsync), 1 caller", perSecond(advanceRow, loggingRow, 1), 0.8, 1.1, false},
		{"REST advance, durable / OPA with decision log (no fsync), 8 callers", perSecond(advanceRow, loggingRow, 8), 1.2, 1.5, false},
		{"stdio advance, durable / bare mcp-go echo, 1 caller", perSecond(overPipeRow, bareRow, 1), 0.4, 0.6, false},
		{"stdio advance p50 / (bare echo p50 + one durable write p50)", rows[overPipeRow][1].P50 / (rows[bareRow][1].P50 + rows[writeRow][1].P50), 2.0, 1.2, true},
	} {
		reached := "missed"
		if f.measured >= f.aim != f.less {
			reached = "aim"
		} else if f.measured >= f.atLeast != f.less {
			reached = "reached"
		}
		t.Logf("| %s | %.2f (%s) | %.1f | %.1f |", f.figure, f.measured, reached, f.atLeast, f.aim)
	}
	t.Logf("| row | requests/s, 1 caller | 8 callers | p50 µs, 1 caller | 8 callers |")
	t.Logf("|---|---|---|---|---|")
	for _, name := range []string{floorRow, syncedRow, writeRow, quietRow, loggingRow, decideRow, advanceRow, bareRow, overPipeRow} {
		one, eight := rows[name][1], rows[name][8]
		t.Logf("| %s | %.0f | %.0f | %.0f | %.0f |", name, one.PerS, eight.PerS, one.P50, eight.P50)
	}
}
