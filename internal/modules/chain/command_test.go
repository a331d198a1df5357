package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// newConsole returns a console for commands that only print.
func newConsole(out, err io.Writer) *cli.Console {
	return &cli.Console{Out: term.New(out), Err: term.New(err)}
}

// runAnswers returns its answers in order, each a RunView or an error.
type runAnswers struct {
	left  []any
	asked []any
}

func (r *runAnswers) Ask(_ context.Context, _ *operation.Operation, req any) (any, error) {
	next := r.left[0]
	r.asked = append(r.asked, req)
	r.left = r.left[1:]
	if err, failed := next.(error); failed {
		return nil, err
	}
	return next, nil
}

// TestWatchRun: each step and question is printed once, and a server that restarts is awaited.
func TestWatchRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &engine.Error{Code: engine.CodeUnavailable, Message: "The server is away."}
		view := func(status RunStatus, steps ...string) RunView {
			v := RunView{Run: "r", Status: status, NextCursor: fmt.Sprint(len(steps)), Waiting: []RunQuestion{{Kind: "signal", Key: "go", Step: "word"}}}
			for _, key := range steps {
				v.Steps = append(v.Steps, RunStep{Key: key, Op: "call", Status: StatusDone})
			}
			return v
		}
		ended := view(StatusDone, "a", "b")
		ended.Output = json.RawMessage(`{"n":1.50}`)
		var out, told bytes.Buffer
		con := newConsole(&out, &told)
		answers := &runAnswers{left: []any{view(StatusRunning, "a"), away, away, view(StatusRunning, "a"), ended}}
		if err := watchRun(t.Context(), con, answers, "r", false, ""); err != nil {
			t.Error(err)
		}
		if diff := gocmp.Diff([]any{&RunRequest{Run: "r"}, &RunRequest{Run: "r", Cursor: "1"}}, answers.asked[:2]); diff != "" {
			t.Errorf("only what is new is asked for: %s", diff)
		}
		const want = "done      a\nwaiting   word: the signal go\nunknown   r: cannot read the run, trying again: The server is away.\ndone      b\n"
		if got := told.String(); got != want || !strings.Contains(out.String(), "1.50") {
			t.Errorf("it says\n%s\nand prints %s", got, out.String())
		}
		// A run that was never seen is not awaited.
		if err := watchRun(t.Context(), con, &runAnswers{left: []any{away}}, "r", false, ""); err == nil {
			t.Error("a server that cannot be reached is waited for")
		}
	})
}

// TestPrintRun: one line shows what a run waits for or does, since when, and how to answer. A pipe gets the
// full error.
func TestPrintRun(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 10, 9, 30, 0, 0, time.UTC)
	long := strings.Repeat("much went wrong, ", 20) + "at last"
	r := RunView{
		Run: "r 1", Chain: "c", Status: StatusRunning, Principal: "ann", Started: began,
		Waiting: []RunQuestion{
			{Kind: "signal", Key: "go", Step: "word", Since: began, Until: began.Add(time.Hour)},
			{Kind: "step", Key: "pay!", Step: "pay", Server: "bank", Name: "pay", Since: began, Review: "rev-1"},
			{Kind: "review", Key: "ask", Step: "ask", Since: began, Review: "rev-2"},
			{Kind: "state", Key: "w", Step: "w", Since: began, Instance: "wf-1", State: "done"},
			{Kind: "sleep", Key: "nap", Step: "nap", Since: began, Until: began.Add(time.Hour)},
		},
		UnderWay: []RunQuestion{{Kind: "call", Key: "look", Step: "look", Server: "s", Name: "look", Since: began.Add(time.Minute)}, {Kind: "complete", Key: "p>", Step: "p", Name: "small", Since: began}},
		Steps:    []RunStep{{Key: "x", Op: "call", Status: StatusFailed, Started: began, Ended: began, Error: &RunError{Code: "tool_error", Message: long}}},
	}
	var b bytes.Buffer
	printRun(term.New(&b), r, began.Add(3*time.Minute), " --config g.yaml")
	for _, want := range []string{
		"waits for  the signal go (step word, since 2026-03-10T09:30:00Z, for 3m), until 2026-03-10T10:30:00Z; gavel chain signal 'r 1' go --config g.yaml\n",
		"waits for  a person's answer about bank/pay (step pay, since 2026-03-10T09:30:00Z, for 3m); gavel review show rev-1 --config g.yaml\n",
		"waits for  a person's decision (step ask, since 2026-03-10T09:30:00Z, for 3m); gavel review show rev-2 --config g.yaml\n",
		"waits for  wf-1 to be in state done (step w, since 2026-03-10T09:30:00Z, for 3m); gavel status wf-1 --config g.yaml\n",
		"waits for  its time, 2026-03-10T10:30:00Z (step nap, since 2026-03-10T09:30:00Z, for 3m)\n",
		"under way  a call of s/look (step look, since 2026-03-10T09:31:00Z, for 2m)\n", "under way  an answer from the model small (step p,", long,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	for want, r := range map[string]RunView{
		"waits for the signal go, for 3m, and 4 more":             r,
		"a call of s/look, for 2m":                                {Status: StatusRunning, UnderWay: r.UnderWay[:1]},
		"waits for its turn, or for a server that runs its chain": {Status: StatusQueued},
		"run_error":  {Status: StatusFailed, Error: &RunError{Code: "run_error"}},
		"x: " + long: {Status: StatusFailed, Error: &RunError{Code: "tool_error", Step: "x", Message: long}},
	} {
		rows := runRows(term.New(&b), []RunView{r})
		if got := noteOnRun(r, began.Add(3*time.Minute)); got != want || rows[1][len(rows[1])-1] == "" || len(want) > 80 && rows[1][len(rows[1])-1] != want {
			t.Errorf("the note is %q, want %q, in the row %q", got, want, rows[1])
		}
	}
	for status, want := range map[RunStatus]string{StatusQueued: "waits for  its turn", StatusPaused: "to resume  gavel chain resume r\n"} {
		b.Reset()
		if printRun(term.New(&b), RunView{Run: "r", Status: status}, began, ""); !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	b.Reset()
	printRun(term.New(&b), RunView{Run: "r", Status: StatusFailed, Error: &RunError{Message: "it could not be read"}}, began, "")
	if !strings.Contains(b.String(), "failed    it could not be read\n") {
		t.Errorf("a failure without a step:\n%s", b.String())
	}
}
