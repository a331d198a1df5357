package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
)

// shortGrace is the Grace of tests whose calls never end.
const shortGrace = 20 * time.Millisecond

func openRuns(t testing.TB, folder string, e Effects) *Runs {
	t.Helper()
	r, err := Open(context.Background(), Config{Path: filepath.Join(folder, "chains.db"), Effects: e, Grace: shortGrace})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var operator = engine.Principal{ID: "ann", Role: engine.RoleOperator}

func startRun(t testing.TB, r *Runs, d *Definition, input string) string {
	t.Helper()
	id, err := r.Start(context.Background(), StartRequest{Definition: d, Input: json.RawMessage(input), Principal: operator})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func waitRun(t testing.TB, r *Runs, run string) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	result, err := r.Wait(ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// effectsFunc implements Effects with a function.
type effectsFunc func(ctx context.Context, c Command) Outcome

func (f effectsFunc) Do(ctx context.Context, c Command) Outcome { return f(ctx, c) }

func TestDurableRun(t *testing.T) {
	f := &fakeServers{answers: map[string]func(Command, int) Outcome{
		"s/n": func(c Command, _ int) Outcome {
			if c.Principal.ID != "ann" || !strings.HasPrefix(c.Run, "run-") {
				t.Errorf("the call is for %q in the run %q", c.Principal.ID, c.Run)
			}
			return Outcome{Value: map[string]any{"n": json.Number("12345678901234567890.5"), "list": []any{true, nil}}}
		},
		"s/list": func(c Command, _ int) Outcome { return Outcome{Value: c.Arguments} },
	}}
	r := openRuns(t, t.TempDir(), f)
	defer r.Close()
	d := parse(t, "variables: {input: {who: x}, saved: {runs: 0}}\n"+steps(
		`{id: n, type: tool, server: s, action: n, save_output_to: saved.last}`,
		`{id: p, type: parallel, tasks: [{id: a, type: tool, server: s, action: list, arguments: {v: "{{n.output}}"}}, {id: b, type: wait, seconds: 0.01}, {id: l, type: forEach, items: [1, 2, 3], steps: [{id: c, type: tool, server: s, action: list, arguments: {v: "{{item}}", by: "{{variables.input.who}}"}}]}]}`,
		`{id: out, type: tool, server: s, action: list, arguments: {a: "{{a.output.v.n}}", l: "{{l.output}}", before: "{{saved.last}}"}, save_output_to: variables.output.all}`))
	result := waitRun(t, r, startRun(t, r, d, `{"who":"me"}`))
	const want = `{"all":{"a":12345678901234567890.5,"before":{"list":[true,null],"n":12345678901234567890.5},"l":[{"by":"me","v":1},{"by":"me","v":2},{"by":"me","v":3}]}}`
	if got := marshal(result.Output); got != want || result.Err != nil {
		t.Errorf("got %s, %v", got, result.Err)
	}
	again := parse(t, "variables: {saved: {last: none}}\n"+steps(`{id: o, type: tool, server: s, action: list, arguments: {v: "{{saved.last.n}}"}, save_output_to: variables.output.all}`))
	if result := waitRun(t, r, startRun(t, r, again, "")); marshal(result.Output) != `{"all":{"v":12345678901234567890.5}}` {
		t.Errorf("the next run of the chain finds %s", marshal(result.Output))
	}
	list, err := r.List(context.Background(), 10)
	if err != nil || len(list) != 2 || list[0].Status != StatusDone || list[0].Chain != "c" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if _, err := Open(context.Background(), Config{Path: r.config.Path, Effects: f}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second process gets %v", err)
	}
}

// TestTakenUp closes the runs halfway and opens them again. Completed commands are not repeated, and a
// person is asked about a non-repeatable call.
func TestTakenUp(t *testing.T) {
	folder := t.TempDir()
	begun := make(chan string, 10)
	blocked := effectsFunc(func(ctx context.Context, c Command) Outcome {
		begun <- c.Name
		if c.Name == "pay" {
			<-ctx.Done()
		}
		return Outcome{Value: "first"}
	})
	d := parse(t, steps(`{id: a, type: tool, server: s, action: look}`, `{id: b, type: tool, server: s, action: pay}`, `{id: z, type: tool, server: s, action: log, arguments: {a: "{{a.output}}", b: "{{b.output}}"}, save_output_to: variables.output.z}`))
	ctx, interrupt := context.WithCancel(context.Background())
	r, err := Open(ctx, Config{Path: filepath.Join(folder, "chains.db"), Effects: blocked, Grace: shortGrace})
	if err != nil {
		t.Fatal(err)
	}
	run := startRun(t, r, d, "")
	for _, want := range []string{"look", "pay"} {
		if got := <-begun; got != want {
			t.Fatalf("%s began, want %s", got, want)
		}
	}
	interrupt() // must not cancel the run
	r.Close()

	f := &fakeServers{answers: map[string]func(Command, int) Outcome{"s/log": func(c Command, _ int) Outcome { return Outcome{Value: c.Arguments} }}}
	r = openRuns(t, folder, f)
	defer r.Close()
	if err := r.Answer(context.Background(), run, "b!", AnswerHappened, "receipt 7"); err != nil {
		t.Fatal(err)
	}
	result := waitRun(t, r, run)
	if got := marshal(result.Output); got != `{"z":{"a":"first","b":"receipt 7"}}` || result.Err != nil {
		t.Errorf("got %s, %v", got, result.Err)
	}
	if diff := cmp.Diff([]string{`s/log {"a":"first","b":"receipt 7"}`}, f.calls); diff != "" {
		t.Errorf("done after it was taken up: %s", diff)
	}
}

func TestSignals(t *testing.T) {
	r := openRuns(t, t.TempDir(), &fakeServers{})
	defer r.Close()
	d := parse(t, steps(`{id: l, type: loop, max_iterations: 2, steps: [{id: w, type: wait, signal: go, save_output_to: variables.output.last}]}`, `{id: never, type: wait, signal: never, timeout: 20ms, on_error: late}`, `{id: late, type: tool, server: s, action: late, save_output_to: variables.output.late}`))
	run := startRun(t, r, d, "")
	for n := range 2 {
		if err := r.Signal(context.Background(), run, "go", "ann", map[string]any{"n": n}); err != nil {
			t.Fatal(err)
		}
	}
	if got := marshal(waitRun(t, r, run).Output); got != `{"last":{"n":1},"late":"ok"}` {
		t.Errorf("got %s", got)
	}
	if err := r.Signal(context.Background(), "run-x", "go", "ann", nil); !errors.Is(err, ErrUnknownRun) {
		t.Errorf("a signal to no run: %v", err)
	}
}

// TestRedriveFrom: a run continues from a failed test. It does not continue from a step if a non-repeatable
// step ran in parallel, whatever that step is called.
func TestRedriveFrom(t *testing.T) {
	ctx := context.Background()
	var works atomic.Bool
	paid := make(chan struct{})
	r := openRuns(t, t.TempDir(), effectsFunc(func(ctx context.Context, c Command) Outcome {
		switch {
		case c.Name == "pay":
			close(paid)
			return Outcome{Value: "paid"}
		case works.Load():
			return Outcome{Value: true}
		case c.Name == "look":
			<-paid
		}
		return Outcome{Err: &StepError{Code: CodeToolError, Message: "no", Final: true}}
	}))
	defer r.Close()
	run := startRun(t, r, parse(t, steps(`{id: s, type: switch, cases: [{when: {script: "data"}, steps: [{id: nap, type: wait, seconds: 0}]}]}`)), "")
	if result := waitRun(t, r, run); result.Err == nil {
		t.Fatal("the test does not fail")
	}
	works.Store(true)
	again, err := r.Redrive(ctx, run, "ann", "")
	if err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, again); result.Err != nil {
		t.Errorf("redriven it ends with %v", result.Err)
	}
	works.Store(false)
	both := `{id: both, type: parallel, mode: all, tasks: [{id: a, type: tool, server: s, action: look}, {id: ab, type: tool, server: s, action: pay}]}`
	run = startRun(t, r, parse(t, steps(both)), "")
	if result := waitRun(t, r, run); result.Err == nil || result.Err.Key != "both/a" {
		t.Fatalf("it ends with %+v", result.Err)
	}
	if _, err := r.Redrive(ctx, run, "ann", ""); err == nil || !strings.Contains(err.Error(), `"both/ab", which began later, may have been done, and may not run twice`) {
		t.Errorf("a step that may not run twice would: %v", err)
	}
}

// TestRedriveTick: redriving the run of a tick must not extend its rights beyond those of the schedule.
func TestRedriveTick(t *testing.T) {
	r := openRuns(t, t.TempDir(), effectsFunc(func(context.Context, Command) Outcome {
		return Outcome{Err: &StepError{Code: CodeToolError, Message: "no"}}
	}))
	defer r.Close()
	d := parse(t, steps(first))
	ids := map[string]bool{}
	for run, isTick := range map[string]bool{TickRun(d.Name, time.Now()): true, "": false} {
		run, err := r.Start(t.Context(), StartRequest{Run: run, Definition: d, Principal: operator})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			waitRun(t, r, run)
			if ids[run] = true; IsTickRun(run) != isTick {
				t.Errorf("%s is taken for the run of a tick: %t", run, !isTick)
			}
			if run, err = r.Redrive(t.Context(), run, "ann", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d runs and not 6", len(ids))
	}
}

func TestPauseCancelRedrive(t *testing.T) {
	ctx := context.Background()
	entered, leave := make(chan string), make(chan Outcome)
	r := openRuns(t, t.TempDir(), effectsFunc(func(ctx context.Context, c Command) Outcome {
		select {
		case entered <- c.Name:
		case <-ctx.Done():
			return Outcome{}
		}
		select {
		case o := <-leave:
			return o
		case <-ctx.Done():
			return Outcome{}
		}
	}))
	defer r.Close()
	d := parse(t, steps(`{id: a, type: tool, server: s, action: one}`, `{id: b, type: tool, server: s, action: two, save_output_to: variables.output.b}`))

	run := startRun(t, r, d, "")
	<-entered
	if err := r.Pause(ctx, run, "ann", "look first"); err != nil {
		t.Fatal(err)
	}
	leave <- Outcome{Value: "one"}
	select {
	case name := <-entered:
		t.Fatalf("%s began while the run was paused", name)
	case <-time.After(50 * time.Millisecond):
	}
	if s, _ := r.Get(ctx, run); s.Status != StatusPaused || s.Note.By != "ann" || s.Note.Why != "look first" {
		t.Errorf("paused it is %+v", s)
	}
	if err := r.Resume(ctx, run, "ann", ""); err != nil {
		t.Fatal(err)
	}
	<-entered
	leave <- Outcome{Err: &StepError{Code: CodeToolError, Message: "no"}}
	if result := waitRun(t, r, run); errorText(result.Err) != "no" {
		t.Errorf("it ended with %v", result.Err)
	}
	if err := r.Cancel(ctx, run, "ann", ""); err == nil || err.Error() != "the run "+run+" has ended: it is failed" {
		t.Errorf("cancelling what has ended: %v", err)
	}

	again, err := r.Redrive(ctx, run, "ann", "the server is up")
	if err != nil {
		t.Fatal(err)
	}
	if name := <-entered; name != "two" {
		t.Errorf("redriven it begins with %s", name)
	}
	leave <- Outcome{Value: "two"}
	if result := waitRun(t, r, again); result.Err != nil || marshal(result.Output) != `{"b":"two"}` {
		t.Errorf("redriven it ends with %s, %v", marshal(result.Output), result.Err)
	}
	if _, err := r.Redrive(ctx, again, "ann", ""); err == nil || !strings.Contains(err.Error(), "has no failed step to continue from: it is done") {
		t.Errorf("redriving what is done: %v", err)
	}

	run = startRun(t, r, d, "")
	<-entered
	if err := r.Cancel(ctx, run, "ann", "not needed"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(ctx, run); err == nil || err.Error() != "the run "+run+" was cancelled by ann: not needed" {
		t.Errorf("a cancelled run: %v", err)
	}
}

// crashChain has parallel steps, a flaky step, a sleep that is longer than the process usually lives, and a
// non-repeatable step.
const crashChain = `
name: crash
steps:
- {id: a, type: tool, server: s, action: a}
- {id: p, type: parallel, tasks: [{id: b1, type: tool, server: s, action: b1}, {id: b2, type: tool, server: s, action: b2}, {id: pay1, type: tool, server: s, action: pay1}]}
- {id: rest, type: wait, seconds: 1.2}
- {id: flaky, type: tool, server: s, action: flaky, retry: {max_attempts: 5, delay_seconds: 0.02}}
- {id: pay2, type: tool, server: s, action: pay2}
- {id: z, type: tool, server: s, action: z, arguments: {all: ["{{a.output}}", "{{b1.output}}", "{{b2.output}}", "{{pay1.output}}", "{{flaky.output}}", "{{pay2.output}}"]}, save_output_to: variables.output.z}
`

// diary is a file in which servers immediately record what they did.
type diary struct{ path string }

func (d diary) add(line string) {
	f, err := os.OpenFile(d.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
}

func (d diary) read() []string {
	raw, _ := os.ReadFile(d.path) //nolint:errcheck // a missing file is empty
	return strings.Fields(string(raw))
}

// runUntilKilled is the process of the crash test. It runs one chain to its end, and answers questions
// about lost calls from the diary.
func runUntilKilled(folder string) {
	sometimes := func() time.Duration { return time.Duration(os.Getpid()%2) * 10 * time.Millisecond } // every other process suspends runs
	log := diary{filepath.Join(folder, "diary")}
	counts := func(what string) int {
		n := 0
		for _, line := range log.read() {
			if line == what {
				n++
			}
		}
		return n
	}
	effects := effectsFunc(func(_ context.Context, c Command) Outcome {
		log.add("begin:" + c.Name)
		<-time.After(20 * time.Millisecond) // the call takes time, and the process may be killed during it
		if c.Name == "flaky" && counts("begin:flaky") < 3 {
			return Outcome{Err: &StepError{Code: CodeToolError, Message: "flaky"}}
		}
		log.add("effect:" + c.Name)
		<-time.After(10 * time.Millisecond)
		if c.Name == "z" {
			return Outcome{Value: c.Arguments}
		}
		return Outcome{Value: c.Name}
	})
	var r *Runs
	opened := make(chan struct{})
	asked := func(c Command) (string, bool) { // plays the person who looks at the server
		<-opened
		answer := AnswerAgain
		if counts("effect:"+c.Name) > 0 {
			answer = AnswerHappened
		}
		if err := r.Answer(context.Background(), c.Run, c.Key, answer, c.Name); err != nil {
			panic(err)
		}
		return "", false
	}
	r, err := Open(context.Background(), Config{Path: filepath.Join(folder, "chains.db"), Effects: effects, Asked: asked, Unload: sometimes(), Repeatable: func(_, tool string) bool { return !strings.HasPrefix(tool, "pay") }})
	if err != nil {
		panic(err)
	}
	close(opened)
	d, err := Parse("crash.yaml", []byte(crashChain))
	if err != nil {
		panic(err)
	}
	run, err := r.Start(context.Background(), StartRequest{Run: "run-crash", Definition: d, Principal: operator})
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("running\n")
	result, err := r.Wait(context.Background(), run)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "result"), []byte(fmt.Sprintf("%s %v", marshal(result.Output), result.Err)), 0o600); err != nil {
		panic(err)
	}
	r.Close()
}

// TestKilled kills the process at random moments. Completed commands are not repeated, non-repeatable ones
// happen at most once, the sleep keeps its deadline, and the result is the same as without kills.
func TestKilled(t *testing.T) {
	kills, rounds := 0, 1
	if os.Getenv("GAVEL_LONG") != "" {
		rounds = 15
	}
	for range rounds {
		kills += killRandomly(t)
	}
	t.Logf("killed %d times", kills)
}

func killRandomly(t *testing.T) int {
	t.Helper()
	folder := t.TempDir()
	kills := 0
	for deadline := time.Now().Add(60 * time.Second); ; kills++ {
		if time.Now().After(deadline) {
			t.Fatalf("it did not end after %d kills: %v", kills, diary{filepath.Join(folder, "diary")}.read())
		}
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "CHAIN_TEST_CRASH="+folder)
		var said strings.Builder
		child.Stderr = &said
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		life := time.Duration(rand.IntN(250+20*kills)) * time.Millisecond // longer lives help slow machines
		if rand.IntN(8) > 0 {                                             // otherwise it may be killed before the run is taken up
			_, _ = out.Read(make([]byte, 1)) //nolint:errcheck // its end is checked below
		}
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the process failed: %v\n%s", err, said.String())
			}
		case <-time.After(life):
			_ = child.Process.Kill()
			<-ended
			continue
		}
		break
	}
	result, err := os.ReadFile(filepath.Join(folder, "result"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"z":{"all":["a","b1","b2","pay1","flaky","pay2"]}} <nil>`; string(result) != want {
		t.Errorf("after %d kills it ends with %s, want %s", kills, result, want)
	}
	lines := diary{filepath.Join(folder, "diary")}.read()
	for _, name := range []string{"effect:pay1", "effect:pay2"} {
		if n := len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l != name })); n != 1 {
			t.Errorf("%d times %s: %v", n, name, lines)
		}
	}
	if last, next := lastOf(lines, "begin:a"), slices.Index(lines, "begin:b1"); last > next {
		t.Errorf("a began again after it had ended: %v", lines)
	}
	if last, next := lastOf(lines, "begin:b2"), slices.Index(lines, "begin:flaky"); last > next {
		t.Errorf("b2 began again after it had ended: %v", lines)
	}
	return kills
}

func lastOf(lines []string, line string) int {
	for i, l := range slices.Backward(lines) {
		if l == line {
			return i
		}
	}
	return -1
}
