package chain

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recordings are runs of the version chain-1 that a build of gavel left halfway, as SQL in
// testdata/chain-1. From the first release on they are a contract with every installation: no later build
// may strand or repeat what an earlier one began. A recording of a release is therefore never changed or
// removed. To add one for the current build, add a row and run
//
//	go test ./internal/modules/chain -run TestRecordedRuns -update
//
// which records the rows whose files are missing.
var recordings = []string{"2026-11-28"}

// recordedChain produces every kind of record: an outcome, a choice, the beginning of a non-repeatable
// call, the end of a wait, a signal, a retry.
const recordedChain = `
name: recorded
variables: {input: {who: nobody}, global: {last: 0}}
steps:
- {id: look, type: tool, server: s, action: look, arguments: {who: "{{variables.input.who}}"}}
- id: p
  type: parallel
  tasks:
  - {id: log, type: tool, server: s, action: log}
  - {id: each, type: forEach, items: [1, 2, 3], maxConcurrent: 1, steps: [{id: one, type: tool, server: s, action: one, arguments: {n: "{{item}}"}, save_output_to: variables.global.last}]}
  - {id: go, type: wait, signal: go}
  - {id: rest, type: wait, seconds: 2}
  - {id: pay, type: tool, server: s, action: pay}
  - {id: flaky, type: tool, server: s, action: flaky, retry: {max_attempts: 3, delay_seconds: 0.01}}
- {id: z, type: tool, server: s, action: z, arguments: {all: ["{{look.output}}", "{{p.output}}", "{{variables.global.last}}"]}, save_output_to: variables.output.z}
- {id: thank, type: tool, server: s, action: thank}
conditionals: {c: {condition: "{{pay.output}} == 'receipt 7'", if_true: [thank]}}
`

// recordedRunID is the id of the run of each recording.
const recordedRunID = "run-recorded"

// TestRecordedRuns: this build finishes a run that an earlier build left halfway, and repeats nothing that
// had ended.
func TestRecordedRuns(t *testing.T) {
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", version, name+".sql")
			if _, err := os.Stat(file); os.IsNotExist(err) && *update {
				recordRun(t, file)
			}
			folder := t.TempDir()
			loadSQL(t, file, filepath.Join(folder, "chains.db"))
			f := &fakeServers{answers: map[string]func(Command, int) Outcome{
				"s/flaky": says("done"),
				"s/z":     func(c Command, _ int) Outcome { return Outcome{Value: c.Arguments} },
			}}
			r, err := Open(context.Background(), Config{Path: filepath.Join(folder, "chains.db"), Effects: f, Repeatable: isRecordedRepeatable})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := r.Answer(context.Background(), recordedRunID, "p/pay!", AnswerHappened, "receipt 7"); err != nil {
				t.Fatal(err)
			}
			result := waitRun(t, r, recordedRunID)
			const want = `{"z":{"all":[{"who":"ann"},{"each":[1,2,3],"flaky":"done","go":{"n":7},"log":"logged","pay":"receipt 7","rest":null},3]}}`
			if got := marshal(result.Output); got != want || result.Err != nil {
				t.Errorf("it ends with %s, %v; want %s", got, result.Err, want)
			}
			calls := []string{
				`s/flaky null`,
				`s/thank null`,
				`s/z {"all":[{"who":"ann"},{"each":[1,2,3],"flaky":"done","go":{"n":7},"log":"logged","pay":"receipt 7","rest":null},3]}`,
			}
			if diff := cmp.Diff(calls, f.calls); diff != "" {
				t.Errorf("calls after it was taken up: %s", diff)
			}
		})
	}
}

func isRecordedRepeatable(_, tool string) bool { return tool != "pay" && tool != "log" }

// recordRun leaves a run halfway, and writes the contents of the file as a kill would leave them.
func recordRun(t *testing.T, file string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chains.db")
	begun := make(chan string, 100)
	effects := effectsFunc(func(ctx context.Context, c Command) Outcome {
		switch {
		case c.Name == "flaky" && !strings.Contains(c.Key, "~"):
			return Outcome{Err: &StepError{Code: CodeToolError, Message: "not yet"}}
		case c.Name == "flaky" || c.Name == "pay":
			begun <- c.Name
			<-ctx.Done()
			return Outcome{}
		case c.Name == "log":
			return Outcome{Value: "logged"}
		case c.Name == "one":
			return Outcome{Value: c.Arguments.(map[string]any)["n"]}
		}
		return Outcome{Value: c.Arguments}
	})
	r, err := Open(context.Background(), Config{Path: path, Effects: effects, Repeatable: isRecordedRepeatable})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Start(t.Context(), StartRequest{Run: recordedRunID, Definition: parse(t, recordedChain), Input: []byte(`{"who":"ann"}`), Principal: operator})
	if err == nil {
		err = r.Signal(t.Context(), recordedRunID, "go", "ann", map[string]any{"n": 7})
	}
	if err != nil {
		t.Fatal(err)
	}
	blocked := []string{<-begun, <-begun}
	if slices.Sort(blocked); !slices.Equal(blocked, []string{"flaky", "pay"}) {
		t.Fatalf("under way are %v", blocked)
	}
	const ended = "SELECT count(*) FROM operation_outputs WHERE function_name GLOB 'call *' OR function_name GLOB 'wait *'"
	for db := openSQLite(t, path); readRows(t, db, ended)[0][0] != "7"; { // look, log, three of each, the signal, and the first of flaky
		<-time.After(10 * time.Millisecond)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(dumpSQL(t, path)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dumpSQL returns a database as the statements that create it.
func dumpSQL(t *testing.T, path string) string {
	t.Helper()
	db := openSQLite(t, path)
	var out strings.Builder
	out.WriteString("-- A run in the middle; see internal/modules/chain/recorded_test.go. Never change or remove it.\n")
	for _, s := range readRows(t, db, "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'table' DESC, rowid") {
		kind, name := s[0], s[1]
		out.WriteString(s[2] + ";\n")
		if kind != "table" {
			continue
		}
		var columns []string
		for _, c := range readRows(t, db, fmt.Sprintf("SELECT name FROM pragma_table_info('%s')", name)) {
			columns = append(columns, fmt.Sprintf("quote(%q)", c[0]))
		}
		for _, row := range readRows(t, db, fmt.Sprintf("SELECT %s FROM %q ORDER BY rowid", strings.Join(columns, ", "), name)) {
			fmt.Fprintf(&out, "INSERT INTO %q VALUES (%s);\n", name, strings.Join(row, ", "))
		}
	}
	return out.String()
}

func loadSQL(t *testing.T, file, path string) {
	t.Helper()
	statements, err := os.ReadFile(file)
	if err == nil {
		_, err = openSQLite(t, path).ExecContext(t.Context(), string(statements))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func openSQLite(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(30000)") // another process writes to the file
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func readRows(t testing.TB, db *sql.DB, query string) (out [][]string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		row, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		err = rows.Scan(into...)
		out = append(out, row)
	}
	if err != nil || rows.Err() != nil {
		t.Fatal(err, rows.Err())
	}
	return out
}
