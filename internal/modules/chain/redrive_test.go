package chain

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// Outcomes of a call.
var (
	answers  = Outcome{Value: "ok"}
	lost     = Outcome{Err: &StepError{Code: CodeTimeout, Message: "no answer", MayHaveRun: true}}
	declines = Outcome{Err: &StepError{Code: CodeToolError, Message: "no", MayHaveRun: true}}
	away     = Outcome{Err: &StepError{Code: "unavailable", Message: "away"}}
	asks     = Outcome{Value: Input{Requests: map[string]any{"pin": map[string]any{}}}, Err: &StepError{Code: CodeInput, Message: "asks", Final: true}}
)

// plan holds the outcomes of a tool's calls in order; later calls succeed.
type plan map[string][]Outcome

// tests is the key for scripts in a plan.
const tests = "scripts"

func (p plan) servers() *fakeServers {
	f := &fakeServers{answers: map[string]func(Command, int) Outcome{}}
	for tool, outcomes := range p {
		id := "s/" + tool
		if tool == tests {
			id = "/"
		}
		f.answers[id] = func(_ Command, call int) Outcome {
			if call <= len(outcomes) {
				return outcomes[call-1]
			}
			return answers
		}
	}
	return f
}

// counts returns the number of calls of each tool.
func (f *fakeServers) counts() map[string]int {
	out := map[string]int{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, n := range f.count {
		if _, tool, _ := strings.Cut(id, "/"); tool == "" {
			out[tests] = n
		} else {
			out[tool] = n
		}
	}
	return out
}

const (
	payStep  = `{id: pay, type: tool, server: s, action: pay, save_output_to: variables.output.paid}`
	payOrder = `{id: pay, type: tool, server: s, action: pay, on_error: undo, save_output_to: variables.output.paid}`
)

// TestRedriveAsks redrives runs that failed at a call whose outcome is unknown, for every place that a call
// can have in a chain. A person is asked first, and the answer is followed.
func TestRedriveAsks(t *testing.T) {
	servers := openServersOfRuns(t)
	for name, tc := range map[string]struct {
		steps []string
		plan  plan
		first []string       // answers to questions of the failed run, as key=answer
		asks  string         // the key of the question in the redriven run
		again map[string]int // the number of calls per tool if the answer is "again"
		gives string         // the output if the answer is "happened", with the output "said"
	}{
		"a call": {
			steps: []string{payStep}, plan: plan{"pay": {lost}},
			asks: "pay!", again: map[string]int{"pay": 2}, gives: `{"paid":"said"}`,
		},
		"what garbage answered": {
			steps: []string{payStep}, plan: plan{"pay": {{Err: &StepError{Code: "protocol", MayHaveRun: true}}}},
			asks: "pay!", again: map[string]int{"pay": 2}, gives: `{"paid":"said"}`,
		},
		"the last attempt": {
			steps: []string{strings.Replace(payStep, "pay,", "pay, retry: {max_attempts: 3},", 1)}, plan: plan{"pay": {away, lost}},
			asks: "pay~2!", again: map[string]int{"pay": 3}, gives: `{"paid":"said"}`,
		},
		"in a loop": {
			steps: []string{`{id: l, type: loop, max_iterations: 3, steps: [` + payStep + `]}`}, plan: plan{"pay": {answers, lost}},
			asks: "l#2/pay!", again: map[string]int{"pay": 4}, gives: `{"paid":"ok"}`,
		},
		"in a forEach": {
			steps: []string{`{id: f, type: forEach, items: [1, 2], maxConcurrent: 1, steps: [` + payStep + `]}`}, plan: plan{"pay": {answers, lost}},
			asks: "f#2/pay!", again: map[string]int{"pay": 3}, gives: `{"paid":"said"}`,
		},
		"in a parallel": {
			steps: []string{`{id: p, type: parallel, tasks: [{id: a, type: tool, server: s, action: a}, ` + payStep + `]}`}, plan: plan{"pay": {lost}},
			asks: "p/pay!", again: map[string]int{"a": 1, "pay": 2}, gives: `{"paid":"said"}`,
		},
		"a handler": {
			steps: []string{payOrder, `{id: undo, type: tool, server: s, action: undo}`}, plan: plan{"pay": {declines}, "undo": {lost}},
			asks: "pay!undo!", again: map[string]int{"pay": 1, "undo": 2}, gives: `{"paid":"said"}`,
		},
		"a call whose handler failed": {
			steps: []string{payOrder, `{id: undo, type: tool, server: s, action: undo}`}, plan: plan{"pay": {lost}, "undo": {declines}},
			asks: "pay!", again: map[string]int{"pay": 2, "undo": 1}, gives: `{"paid":"said"}`,
		},
		"a call and its handler": { // the handler of the same failure is not called twice
			steps: []string{payOrder, `{id: undo, type: tool, server: s, action: undo}`}, plan: plan{"pay": {lost}, "undo": {lost}},
			asks: "pay!undo!", again: map[string]int{"pay": 1, "undo": 2}, gives: `{"paid":"said"}`,
		},
		"a write of a resource": {
			steps: []string{`{id: w, type: resource, server: s, action: write, uri: "file:///x", data: 1, save_output_to: variables.output.paid}`}, plan: plan{"write": {lost}},
			asks: "w!", again: map[string]int{"write": 2}, gives: `{"paid":"said"}`,
		},
		"the call that goes on with input": {
			steps: []string{payStep}, plan: plan{"pay": {asks, lost}}, first: []string{"pay!=happened"},
			asks: "pay+1!", again: map[string]int{"pay": 3}, gives: `{"paid":"said"}`,
		},
		"a call that a person gave up": {
			steps: []string{payStep}, plan: plan{"pay": {{Err: &StepError{Code: CodeUnknown, MayHaveRun: true}}}}, first: []string{"pay!=give-up"},
			asks: "pay!", again: map[string]int{"pay": 2}, gives: `{"paid":"said"}`,
		},
		"the second try of a person": {
			steps: []string{payStep}, plan: plan{"pay": {{Err: &StepError{Code: CodeUnknown, MayHaveRun: true}}, lost}}, first: []string{"pay!=again"},
			asks: "pay+1!", again: map[string]int{"pay": 3}, gives: `{"paid":"said"}`,
		},
		"an output that the schema refuses": {
			steps: []string{strings.Replace(payStep, "pay,", `pay, outputSchema: {const: said},`, 1)}, plan: plan{"pay": {answers, {Value: "said"}}},
			asks: "pay!", again: map[string]int{"pay": 2}, gives: `{"paid":"said"}`,
		},
		"an output of a person that the schema refuses": {
			steps: []string{strings.Replace(payStep, "pay,", `pay, outputSchema: {const: said},`, 1)}, plan: plan{"pay": {{Err: &StepError{Code: CodeUnknown, MayHaveRun: true}}, {Value: "said"}}}, first: []string{"pay!=happened"},
			asks: "pay!", again: map[string]int{"pay": 2}, gives: `{"paid":"said"}`,
		},
		"an output that is too long": {
			steps: []string{payStep}, plan: plan{"pay": {{Value: strings.Repeat("x", MaxOutput+1)}}},
			asks: "pay!", again: map[string]int{"pay": 2}, gives: `{"paid":"said"}`,
		},
	} {
		for _, answer := range []string{AnswerAgain, AnswerHappened, AnswerGiveUp} {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				f := tc.plan.servers()
				run := servers.startFailing(t, f, tc.steps, tc.first)
				before := f.counts()
				again, err := servers.Redrive(t.Context(), run, "ann", "")
				if err != nil {
					t.Fatal(err)
				}
				servers.add(again, f)
				q, _ := await(t, "the question", func() ([]RunQuestion, bool) {
					q, err := servers.questions(t.Context(), again)
					return q[again], err == nil && len(q[again]) == 1 && q[again][0].Kind == QuestionStep
				})
				if diff := gocmp.Diff(before, f.counts()); q[0].Key != tc.asks || diff != "" {
					t.Fatalf("it asks about %s, want %s; before the answer it called %s", q[0].Key, tc.asks, diff)
				}
				if err := servers.Answer(t.Context(), again, q[0].Key, answer, "said"); err != nil {
					t.Fatal(err)
				}
				result := waitRun(t, servers.Runs, again)
				switch answer {
				case AnswerAgain:
					if diff := gocmp.Diff(tc.again, f.counts()); diff != "" || result.Err != nil {
						t.Errorf("called again: %v, %s", result.Err, diff)
					}
				case AnswerHappened:
					if marshal(result.Output) != tc.gives || result.Err != nil {
						t.Errorf("it happened: %s, %v", marshal(result.Output), result.Err)
					}
				case AnswerGiveUp:
					if diff := gocmp.Diff(before, f.counts()); diff != "" || result.Err == nil || result.Err.Code != CodeGivenUp {
						t.Errorf("given up: %v, %s", result.Err, diff)
					}
				}
			})
		}
	}
}

// serversOfRuns holds runs, each with its own servers.
type serversOfRuns struct {
	*Runs
	mu      sync.Mutex
	added   *sync.Cond              // over mu
	servers map[string]*fakeServers // by run
}

func (s *serversOfRuns) Do(ctx context.Context, c Command) Outcome {
	s.mu.Lock()
	for s.servers[c.Run] == nil { // a redriven run may begin before its id is known here
		s.added.Wait()
	}
	f := s.servers[c.Run]
	s.mu.Unlock()
	return f.Do(ctx, c)
}

func (s *serversOfRuns) add(run string, f *fakeServers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[run] = f
	s.added.Broadcast()
}

// openServersOfRuns opens runs with a tool that writes resources.
func openServersOfRuns(t *testing.T) *serversOfRuns {
	t.Helper()
	s := &serversOfRuns{servers: map[string]*fakeServers{}}
	s.added = sync.NewCond(&s.mu)
	var err error
	s.Runs, err = Open(context.Background(), Config{
		Path: filepath.Join(t.TempDir(), "chains.db"), Effects: s, Grace: shortGrace,
		Writer: func(string) (Writer, bool) { return Writer{Tool: "write", URI: "uri", Data: "data"}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// startFailing starts a run and waits until it has failed; answers, as key=answer, are for its questions.
func (s *serversOfRuns) startFailing(t *testing.T, f *fakeServers, list, answers []string) string {
	t.Helper()
	run := newRunID()
	s.add(run, f)
	if _, err := s.Start(t.Context(), StartRequest{Run: run, Definition: parse(t, steps(list...)), Principal: operator}); err != nil {
		t.Fatal(err)
	}
	for _, said := range answers {
		key, answer, _ := strings.Cut(said, "=")
		if err := s.Answer(t.Context(), run, key, answer, map[string]any{}); err != nil {
			t.Fatal(err)
		}
	}
	if result := waitRun(t, s.Runs, run); result.Err == nil {
		t.Fatalf("it does not fail, but gives %s", marshal(result.Output))
	}
	return run
}

// besides has two parallel branches that both run.
const besides = `{id: p, type: parallel, mode: all, maxConcurrent: 1, tasks: [{id: a, type: tool, server: s, action: a}, {id: b, type: tool, server: s, action: b}]}`

// TestRedriveAtOnce: a call that its server rejected is repeated without a question; other non-repeatable
// calls are not repeated.
func TestRedriveAtOnce(t *testing.T) {
	servers := openServersOfRuns(t)
	for name, tc := range map[string]struct {
		steps []string
		plan  plan
		first []string // answers to questions of the failed run, as key=answer
		want  map[string]int
		fails string // the error if the redrive is rejected
	}{
		"a tool error":  {steps: []string{payStep}, plan: plan{"pay": {declines}}, want: map[string]int{"pay": 2}},
		"an error":      {steps: []string{payStep}, plan: plan{"pay": {{Err: &StepError{Code: CodeServerError, MayHaveRun: true}}}}, want: map[string]int{"pay": 2}},
		"a server away": {steps: []string{payStep}, plan: plan{"pay": {away}}, want: map[string]int{"pay": 2}},
		"a try that a person asked for": {
			steps: []string{payStep}, plan: plan{"pay": {{Err: &StepError{Code: CodeUnknown, MayHaveRun: true}}, declines}}, first: []string{"pay!=again"}, want: map[string]int{"pay": 3},
		},
		"input that a person declined": {steps: []string{payStep}, plan: plan{"pay": {asks}}, first: []string{"pay!=give-up"}, want: map[string]int{"pay": 2}},
		"a handler of several calls, of which one was done": {
			steps: []string{payOrder, `{id: undo, type: switch, cases: [], else: [{id: a, type: tool, server: s, action: a}, {id: b, type: tool, server: s, action: b}]}`},
			plan:  plan{"pay": {declines}, "b": {declines}}, want: map[string]int{"pay": 1, "a": 1, "b": 2},
		},
		"a condition after a call": {
			steps: []string{`{id: l, type: loop, max_iterations: 2, until: {script: "data"}, steps: [` + payStep + `]}`},
			plan:  plan{tests: {{Err: &StepError{Code: CodeCondition, Message: "no"}}, {Value: true}}}, want: map[string]int{"pay": 1, tests: 2},
		},
		"a loop that came to its end": {
			steps: []string{`{id: l, type: loop, max_iterations: 2, until: "{{pay.output}} == 'done'", steps: [` + payStep + `]}`},
			fails: `cannot continue from "l": "l#2/pay" was done and may not run twice; start a new run`,
		},
		"a handler of calls at once, of which the later was done": {
			steps: []string{payOrder, `{id: undo, type: parallel, mode: all, tasks: [{id: a, type: tool, server: s, action: a}, {id: b, type: tool, server: s, action: b}]}`},
			plan:  plan{"pay": {declines}, "a": {declines}},
			fails: `cannot continue from "pay": "pay!undo/b" was done and may not run twice; start a new run`,
		},
		"a callback": {
			steps: []string{payStep, `{id: alert, type: tool, server: s, action: alert}` + "\non_error: {step: alert}"}, plan: plan{"pay": {declines}}, want: map[string]int{"pay": 2, "alert": 1},
		},
		"a callback of calls at once, after one in doubt": {
			steps: []string{payStep, `{id: alert, type: parallel, tasks: [{id: a, type: tool, server: s, action: a}, {id: b, type: tool, server: s, action: b}]}` + "\non_error: {step: alert}"},
			plan:  plan{"pay": {away}, "a": {lost}}, want: map[string]int{"pay": 2, "a": 1, "b": 1},
		},
		"a branch beside it that failed, too": {
			steps: []string{besides}, plan: plan{"a": {declines}, "b": {declines}}, want: map[string]int{"a": 2, "b": 2},
		},
		"a branch beside it that was done": {
			steps: []string{besides}, plan: plan{"a": {declines}},
			fails: `cannot continue from "a": "p/b", which began later, may have been done, and may not run twice; start a new run`,
		},
		"a branch beside it in doubt": {
			steps: []string{besides}, plan: plan{"a": {declines}, "b": {lost}},
			fails: `cannot continue from "a": "p/b", which began later, may have been done, and may not run twice; start a new run`,
		},
		"a branch before it that was done": {
			steps: []string{besides}, plan: plan{"b": {declines}}, want: map[string]int{"a": 1, "b": 2},
		},
		"no call at all": {
			steps: []string{payStep, `{id: b, type: tool, server: s, action: b, arguments: {x: "{{pay.output.receipt}}"}}`},
			fails: `failed before the first call of "b", and would fail again; start a new run`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.plan.servers()
			run := servers.startFailing(t, f, tc.steps, tc.first)
			again, err := servers.Redrive(t.Context(), run, "ann", "")
			if tc.fails != "" || err != nil {
				if err == nil || !strings.HasSuffix(err.Error(), tc.fails) {
					t.Errorf("it says %v, want %s", err, tc.fails)
				}
				return
			}
			servers.add(again, f)
			result := waitRun(t, servers.Runs, again)
			if diff := gocmp.Diff(tc.want, f.counts()); diff != "" || result.Err != nil {
				t.Errorf("it ends with %v, and called %s", result.Err, diff)
			}
		})
	}
}

// TestRedriveOfLongRun: outputs from before the failure are not read.
func TestRedriveOfLongRun(t *testing.T) { // not parallel: it measures
	const more, size = namePage + 500, 8 << 10
	folder, f := t.TempDir(), plan{"pay": {declines}}.servers()
	r := openRuns(t, folder, f)
	run := startRun(t, r, parse(t, steps(`{id: a, type: wait, seconds: 0}`, payStep)), "")
	waitRun(t, r, run)
	r.Close()
	db := openSQLite(t, r.config.Path)
	for _, change := range []string{
		fmt.Sprintf(`UPDATE operation_outputs SET function_id = function_id + 1000000 WHERE workflow_uuid = '%s' AND function_name LIKE '%% pay'`, run),
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO operation_outputs (workflow_uuid, function_id, function_name, output, started_at_epoch_ms, completed_at_epoch_ms)
		SELECT '%s', 1000+i, 'call more#' || i, '{"value":"' || printf('%%.*c', %d, 'x') || '"}', 1, 2 FROM n`, more, run, size),
	} {
		if _, err := db.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	c := openControl(t, r)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	again, err := c.Redrive(t.Context(), run, "ann", "")
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if read := after.TotalAlloc - before.TotalAlloc; read > more*size/4 {
		t.Errorf("%d bytes were read of %d", read, more*size)
	}
	if rows := c.CountRows(t, again); rows != 1+1+more { // the run, the time of the wait, and the inserted rows
		t.Errorf("%d rows are kept and not %d", rows, 2+more)
	}
}
