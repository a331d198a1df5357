package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// still has a workflow and a review that never change.
type still struct{ Workflows }

func (still) Status(_ context.Context, _ engine.Principal, id string) (engine.StatusResult, error) {
	return engine.StatusResult{Position: engine.Position{ID: id, State: "draft", Status: record.Running}}, nil
}

func (still) Review(_ context.Context, _ engine.Principal, id string) (engine.ReviewView, error) {
	return engine.ReviewView{ReviewSummary: engine.ReviewSummary{ID: id, Status: record.ReviewOpen}}, nil
}

// TestQuestions: what a run waits for and what its steps do is visible to everyone, even from another
// process.
func TestQuestions(t *testing.T) {
	leave := make(chan struct{})
	door := Executor{Workflows: still{}}
	r := openRuns(t, t.TempDir(), effectsFunc(func(ctx context.Context, c Command) Outcome {
		if c.Op == OpMove {
			return door.Do(ctx, c)
		}
		<-leave
		return Outcome{Value: "ok"}
	}))
	defer r.Close()
	defer close(leave)
	d := parse(t, "variables: {input: {path: notes}}\n"+steps(`{id: p, type: parallel, tasks: [`+strings.Join([]string{
		`{id: pay, type: tool, server: bank, action: pay}`,
		`{id: read, type: resource, server: files, uri: "file:///{{variables.input.path}}"}`,
		`{id: nap, type: wait, seconds: 3600}`,
		`{id: word, type: wait, signal: go, timeout: 60s}`,
		`{id: seen, type: wait, review: rev-1}`,
		`{id: done, type: workflow, action: wait, instance: wf-1, state: done}`,
	}, ", ")+`]}`))
	run, want := startRun(t, r, d, ""), []string{
		"call p/pay pay bank/pay", "call p/read read files/", "sleep p/nap nap 1h0m0s", "signal go word 1m0s", "review p/seen seen rev-1", "state p/done done wf-1 done",
	}
	slices.Sort(want)
	s, chains := &Service{}, func() map[string]*Definition { return nil }
	for _, from := range []*Runs{r, openControl(t, r)} {
		s = NewService(ServiceConfig{Runs: from, Chains: chains})
		await(t, "what is under way", func() ([]string, bool) {
			page, err := s.ListRuns(t.Context(), operator, ListRuns{})
			if err != nil || len(page.Runs) != 1 {
				t.Fatal(page, err)
			}
			var got []string
			for _, q := range slices.Concat(page.Runs[0].Waiting, page.Runs[0].UnderWay) {
				line := strings.Join([]string{q.Kind, q.Key, q.Step, q.Server + "/" + q.Name}, " ")
				if q.Server == "" {
					line = strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s %s", q.Kind, q.Key, q.Step, q.Review, q.Instance, q.State)), " ")
				}
				if !q.Until.IsZero() {
					line += " " + q.Until.Sub(q.Since).Round(time.Second).String()
				}
				if since := time.Since(q.Since); since < 0 || since > time.Minute {
					t.Errorf("%s is since %v", line, since)
				}
				got = append(got, line)
			}
			slices.Sort(got)
			return got, slices.Equal(got, want)
		})
	}
	v, err := s.ReadRun(t.Context(), operator, run)
	if err != nil || len(v.Waiting) != 4 || len(v.UnderWay) != 2 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestShortStepsWriteNoBoard: short steps cost no write.
func TestShortStepsWriteNoBoard(t *testing.T) {
	folder := t.TempDir()
	r := openRuns(t, folder, effectsFunc(func(context.Context, Command) Outcome { return Outcome{Value: "ok"} }))
	defer r.Close()
	run := startRun(t, r, parse(t, steps(`{id: l, type: loop, max_iterations: 300, steps: [{id: a, type: tool, server: s, action: x}]}`)), "")
	waitRun(t, r, run)
	if list, err := openControl(t, r).questions(t.Context(), run); err != nil || len(list) != 0 {
		t.Errorf("others see %v, %v", list, err)
	}
	var boards int
	if err := openSQLite(t, r.config.Path).QueryRowContext(t.Context(), "SELECT count(*) FROM workflow_status WHERE workflow_uuid = ? AND json_extract(attributes, '$.board') IS NOT NULL", run).Scan(&boards); err != nil || boards != 0 {
		t.Errorf("%d boards were written, %v", boards, err)
	}
}

// TestWaitIsShownByItsStep: the steps of a run show a wait under the key of its step; its record keeps the
// name of the signal.
func TestWaitIsShownByItsStep(t *testing.T) {
	s := openService(t, &fakeServers{})
	r := s.config.Runs
	run := startRun(t, r, parse(t, steps(`{id: l, type: loop, max_iterations: 2, steps: [{id: w, type: wait, signal: go}]}`, `{id: late, type: wait, signal: never, timeout: 50ms, on_error: x}`, `{id: x, type: wait, seconds: 0}`)), "")
	for range 2 {
		if err := r.Signal(t.Context(), run, "go", "ann", 1); err != nil {
			t.Fatal(err)
		}
	}
	waitRun(t, r, run)
	v, err := s.ReadRun(t.Context(), operator, run)
	var keys []string
	for _, step := range v.Steps {
		keys = append(keys, step.Key+" "+string(step.Status))
	}
	if got := strings.Join(keys, ", "); err != nil || got != "l#1/w done, l#2/w done, late failed" {
		t.Errorf("the steps are %s, %v", got, err)
	}
	var names int
	if err := openSQLite(t, r.config.Path).QueryRowContext(t.Context(), "SELECT count(*) FROM operation_outputs WHERE function_name IN ('wait signal/go/1', 'wait signal/go/2')").Scan(&names); err != nil || names != 2 {
		t.Errorf("%d waits are recorded by their signals, %v", names, err)
	}
}

// TestReadNewSteps: a reader that follows a run gets the steps that have ended since, in whichever order
// they end.
func TestReadNewSteps(t *testing.T) {
	slow, leave := make(chan struct{}), make(chan struct{})
	s := openService(t, effectsFunc(func(_ context.Context, c Command) Outcome {
		switch c.Step {
		case "slow":
			<-slow
		case "last":
			<-leave
		}
		return Outcome{Value: "ok"}
	}))
	run := startRun(t, s.config.Runs, parse(t, steps(
		`{id: l, type: loop, max_iterations: 150, steps: [{id: a, type: tool, server: s, action: x}]}`,
		`{id: p, type: parallel, tasks: [{id: slow, type: tool, server: s, action: x}, {id: quick, type: tool, server: s, action: x}]}`, `{id: last, type: tool, server: s, action: x}`)), "")
	seen, cursor := map[string]int{}, ""
	read := func() int {
		v, err := s.ReadNewSteps(t.Context(), operator, run, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range v.Steps {
			seen[step.Key]++
		}
		cursor = v.NextCursor
		return len(v.Steps)
	}
	await(t, "the quick step", func() (int, bool) { read(); return len(seen), seen["p/quick"] > 0 })
	if again := read(); again != 1 || len(seen) != 151 || seen["a"] > 1 {
		t.Errorf("%d steps come again of %d", again, len(seen))
	}
	close(slow)
	await(t, "the slow step", func() (int, bool) { return read(), seen["p/slow"] > 0 })
	await(t, "nothing new", func() (int, bool) { n := read(); return n, n == 0 })
	close(leave)
	waitRun(t, s.config.Runs, run)
	if read(); len(seen) != 153 || seen["last"] != 1 || seen["p/slow"] > 2 {
		t.Errorf("of 153 steps %d came", len(seen))
	}
	for _, cursor := range []string{"-1", "x"} {
		if _, err := s.ReadNewSteps(t.Context(), operator, run, cursor); engine.CodeOf(err) != engine.CodeInvalidArgument {
			t.Errorf("the cursor %q: %v", cursor, errors.Unwrap(err))
		}
	}
}
