package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

// recordBench is an engine with its store.
type recordBench struct {
	*engine.Recorder
	store store.Store
}

func newRecordBench(t *testing.T) *recordBench {
	t.Helper()
	var b recordBench
	b.Recorder = chain.NewLedger(enginetest.New(t, judge.Config{}, func(c *engine.Config) { b.store, c.ReviewPath = c.Store, true }))
	return &b
}

// readSteps returns the record of a run: the actions with the keys of the steps, in order.
func readSteps(t *testing.T, e *recordBench, run string) (out []string) {
	t.Helper()
	all, err := engine.ReadWholeHistory(context.Background(), e.Engine, operator, engine.RunInstance(run))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		var data struct {
			Steps map[string]struct{ Key, Status string }
		}
		_ = json.Unmarshal(entry.Data, &data)
		line := entry.Action + " " + entry.To
		for _, s := range data.Steps {
			line += " " + strings.TrimSpace(s.Key+" "+s.Status)
		}
		out = append(out, line)
	}
	return out
}

func openLedger(t *testing.T, folder string, l chain.Ledger, e chain.Effects) *chain.Runs {
	t.Helper()
	return openLedgerWith(t, folder, l, e, 10*time.Millisecond)
}

// openLedgerWith is openLedger with the time that a call has to end when the process does. A call that is cut off would
// wait for a person's answer.
func openLedgerWith(t *testing.T, folder string, l chain.Ledger, e chain.Effects, grace time.Duration) *chain.Runs {
	t.Helper()
	r, err := chain.Open(context.Background(), chain.Config{Path: filepath.Join(folder, "chains.db"), Effects: e, Ledger: l, Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Principals of the tests.
var (
	owner    = engine.Principal{ID: "a", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "ann", Role: engine.RoleOperator}
	reviewer = engine.Principal{ID: "rita", Role: engine.RoleReviewer}
)

// effectsFunc answers commands with a function.
type effectsFunc func(ctx context.Context, c chain.Command) chain.Outcome

func (f effectsFunc) Do(ctx context.Context, c chain.Command) chain.Outcome { return f(ctx, c) }

// fakeServers answer "ok" unless a test sets another answer, and count calls.
type fakeServers struct {
	answers map[string]chain.Outcome
	mu      sync.Mutex
	calls   []string
}

func (f *fakeServers) Do(_ context.Context, c chain.Command) chain.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c.Name)
	if o, known := f.answers[c.Name]; known {
		return o
	}
	return chain.Outcome{Value: "ok"}
}

func parseSteps(t *testing.T, before string, list ...string) *chain.Definition {
	t.Helper()
	d, err := chain.Parse("chain.yaml", []byte("name: c\n"+before+"steps:\n- "+strings.Join(list, "\n- ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func marshal(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func waitRun(t *testing.T, r *chain.Runs, run string) *chain.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	result, err := r.Wait(ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func startAs(t *testing.T, r *chain.Runs, d *chain.Definition, run, input string) {
	t.Helper()
	if _, err := r.Start(context.Background(), chain.StartRequest{Run: run, Definition: d, Input: json.RawMessage(input), Principal: owner}); err != nil {
		t.Fatal(err)
	}
}

// TestRecordOfARun takes a run to its end without kills, and reads its record like any other history.
func TestRecordOfARun(t *testing.T) {
	e := newRecordBench(t)
	r := openLedger(t, t.TempDir(), e, &fakeServers{})
	defer r.Close()
	d := parseSteps(t, "variables: {input: {who: x}}\n", `{id: a, type: tool, server: s, action: look}`, `{id: w, type: wait, signal: go}`, `{id: b, type: tool, server: s, action: look, save_output_to: variables.output.b}`)
	startAs(t, r, d, "one", `{"who":"me"}`)
	if err := r.Signal(context.Background(), "one", "go", "sam", 7); err != nil {
		t.Fatal(err)
	}
	waitRun(t, r, "one")
	steps := slices.DeleteFunc(readSteps(t, e, "one"), func(line string) bool { return strings.HasPrefix(line, "note ") }) // the signal may be recorded first
	want := []string{" running", "step running a done", "wait waiting", "continue running w done", "step running b done", "finish done"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Error(diff)
	}
	s, err := e.Status(context.Background(), owner, "wf-one")
	if err != nil || s.State != "done" || s.Outcome != "success" || s.Owner != "a" || s.Workflow != "chain.c" || !strings.Contains(string(s.Context), `"input":{"who":"me"}`) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := e.Status(context.Background(), engine.Principal{ID: "b", Role: engine.RoleAgent}, "wf-one"); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("another agent: %v", err)
	}
	verifyClean(t, e)
}

func verifyClean(t *testing.T, e *recordBench) {
	t.Helper()
	auditor, err := audit.New(audit.Config{Engine: e.Engine, Store: e.store})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := auditor.Verify(context.Background(), operator, audit.VerifyRequest{}); err != nil || !v.Clean() {
		t.Errorf("%+v, %v", v.Problems, err)
	}
}

// TestOnlyTheInterpreterMovesARun tries everything that other principals can request.
func TestOnlyTheInterpreterMovesARun(t *testing.T) {
	e := newRecordBench(t)
	r := openLedger(t, t.TempDir(), e, &fakeServers{})
	defer r.Close()
	d := parseSteps(t, "", `{id: w, type: wait, signal: go}`)
	startAs(t, r, d, "one", "")
	ctx := context.Background()
	if _, err := e.Status(ctx, owner, "wf-one"); err != nil {
		t.Fatal(err)
	}
	w, err := d.Workflow()
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(p engine.Principal) error{
		"advance": func(p engine.Principal) error {
			_, err := e.Advance(ctx, p, engine.AdvanceRequest{ID: "wf-one", Action: "finish"})
			return err
		},
		"start": func(p engine.Principal) error {
			_, err := e.Start(ctx, p, engine.StartRequest{Type: "chain.c"})
			return err
		},
		"cancel": func(p engine.Principal) error {
			_, err := e.Cancel(ctx, p, engine.CancelRequest{ID: "wf-one"})
			return err
		},
		"undo": func(p engine.Principal) error { _, err := e.Undo(ctx, p, engine.UndoRequest{ID: "wf-one"}); return err },
		"redefine": func(p engine.Principal) error {
			_, err := e.Define(ctx, p, engine.DefineRequest{Source: "x.json", Document: []byte(strings.Replace(string(w.Document), `"chain":"sha`, `"chain":"x`, 1))})
			return err
		},
		"gated call": func(p engine.Principal) error {
			_, err := e.BeginCall(ctx, p, engine.CallRequest{ID: "wf-one", Gate: "g", States: []string{"running", "waiting"}, Timeout: time.Minute})
			return err
		},
	} {
		for _, p := range []engine.Principal{owner, operator, {ID: "gavel:chains", Role: engine.RoleOperator}} {
			if err := do(p); engine.CodeOf(err) != engine.CodeForbidden && engine.CodeOf(err) != engine.CodeUnknownWorkflow {
				t.Errorf("%s by %s: %v", name, p.ID, err)
			}
		}
	}
	if s, err := e.Status(ctx, operator, "wf-one"); err != nil || s.Revision > 2 || len(s.NextActions) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := r.Cancel(ctx, "one", "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Status(ctx, operator, "wf-one"); err != nil || s.State != "cancelled" || !strings.Contains(string(s.Context), `"why":"enough"`) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRunRecordSaysWhoDidWhatAndWhy checks that the record of a run names who did what, and why.
func TestRunRecordSaysWhoDidWhatAndWhy(t *testing.T) {
	e, ctx := newRecordBench(t), context.Background()
	f := &fakeServers{answers: map[string]chain.Outcome{"pay": {Err: &chain.StepError{Code: chain.CodeToolError, Message: "the bank is down", Final: true}}}}
	r := openLedger(t, t.TempDir(), e, f)
	defer r.Close()
	startAs(t, r, parseSteps(t, "", `{id: w, type: wait, signal: go}`, `{id: b, type: tool, server: s, action: pay}`), "one", "")
	for _, do := range []func() error{
		func() error { return r.Pause(ctx, "one", "ann", "look first") },
		func() error { return r.Resume(ctx, "one", "ben", "") },
		func() error { return r.Signal(ctx, "one", "go", "sam", 7) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	waitRun(t, r, "one")
	all, err := engine.ReadWholeHistory(ctx, e.Engine, operator, "wf-one")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"note":{"by":"ann","did":"pause","why":"look first"}}`, `{"note":{"by":"ben","did":"resume"}}`, `{"note":{"by":"sam","did":"signal","name":"go"}}`} {
		if !slices.ContainsFunc(all, func(d engine.HistoryEntry) bool { return string(d.Data) == want }) {
			t.Errorf("the record does not hold %s", want)
		}
	}
	again, err := r.Redrive(ctx, "one", "ann", "the bank is up")
	if err != nil {
		t.Fatal(err)
	}
	waitRun(t, r, again)
	if s, err := e.Status(ctx, operator, "wf-"+again); err != nil || !strings.Contains(string(s.Context), `"redrives":{"by":"ann","run":"one","why":"the bank is up"}`) {
		t.Errorf("%s, %v", s.Context, err)
	}
	verifyClean(t, e)
}

// killer is a ledger whose process ends at the n-th write: either before it, or after it but before the result is
// known.
type killer struct {
	chain.Ledger
	left  atomic.Int64
	after bool
	dead  chan struct{}
}

var errKilled = errors.New("killed")

func (k *killer) do(write func() error) error {
	n := k.left.Add(-1)
	if n == 0 && k.after {
		_ = write()
	}
	if n == 0 {
		close(k.dead)
	}
	if n <= 0 {
		return errKilled
	}
	return write()
}

func (k *killer) BeginRun(ctx context.Context, p engine.Principal, req engine.RunRequest) error {
	return k.do(func() error { return k.Ledger.BeginRun(ctx, p, req) })
}

func (k *killer) RecordStep(ctx context.Context, req engine.StepRecord) error {
	return k.do(func() error { return k.Ledger.RecordStep(ctx, req) })
}

// TestRecordSurvivesKills ends the process at each write of the record. The final record is the same as without
// kills.
func TestRecordSurvivesKills(t *testing.T) {
	d := parseSteps(t, "", `{id: a, type: tool, server: s, action: look}`, `{id: p, type: parallel, tasks: [{id: b, type: tool, server: s, action: look}]}`, `{id: c, type: tool, server: s, action: look}`)
	want := []string{" running", "step running a done", "step running p/b done", "step running c done", "finish done"}
	for at := int64(1); at <= int64(len(want))+1; at++ { // the first event is written twice
		for _, after := range []bool{false, true} {
			folder, e := t.TempDir(), newRecordBench(t)
			k := &killer{Ledger: e, after: after, dead: make(chan struct{})}
			k.left.Store(at)
			r := openLedgerWith(t, folder, k, &fakeServers{}, time.Minute)
			startAs(t, r, d, "one", "")
			<-k.dead
			r.Close()
			r = openLedger(t, folder, e, &fakeServers{})
			waitRun(t, r, "one")
			r.Close()
			if diff := cmp.Diff(want, readSteps(t, e, "one")); diff != "" {
				t.Errorf("killed at write %d, after it: %v: %s", at, after, diff)
			}
			verifyClean(t, e)
		}
	}
}

// TestCancelClosesQuestions: a cancelled run leaves no open question, because its answer would be of no use.
func TestCancelClosesQuestions(t *testing.T) {
	ctx, folder, e := context.Background(), t.TempDir(), newRecordBench(t)
	begun := make(chan struct{}, 2)
	r := openLedger(t, folder, e, effectsFunc(func(ctx context.Context, _ chain.Command) chain.Outcome {
		begun <- struct{}{}
		<-ctx.Done()
		return chain.Outcome{}
	}))
	startAs(t, r, parseSteps(t, "sensitive: [/input/who]\nvariables: {input: {who: x}}\n", `{id: p, type: parallel, tasks: [{id: pay, type: tool, server: bank, action: transfer}, {id: send, type: tool, server: post, action: send}]}`), "one", `{"who":"Dagobert"}`)
	<-begun
	<-begun
	r.Close()
	l := asking{e, make(chan string)}
	r = openLedger(t, folder, l, &fakeServers{})
	defer r.Close()
	asked := map[string]bool{}
	for len(asked) < 2 {
		select {
		case id := <-l.reviews:
			asked[id] = true
		case <-time.After(30 * time.Second):
			t.Fatalf("it asks only %v", asked)
		}
	}
	if err := r.Cancel(ctx, "one", "ann", "Dagobert paid in cash"); err != nil {
		t.Fatal(err)
	}
	for id := range asked {
		review, err := e.Review(ctx, reviewer, id)
		if err != nil || review.Status != "stale" || !strings.HasPrefix(review.Reason, "The run was cancelled by ann: ") || strings.Contains(review.Reason, "Dagobert") || !strings.HasSuffix(review.Reason, " paid in cash") || review.ClosedAt.IsZero() {
			t.Errorf("%+v, %v", review.ReviewSummary, err)
		}
		if !strings.Contains(review.Next, "not known") {
			t.Errorf("next: %s", review.Next)
		}
		if _, err := e.Resolve(ctx, reviewer, engine.ResolveRequest{ID: id, Decision: judge.Reject, Reason: "No."}); engine.CodeOf(err) != engine.CodeReviewClosed {
			t.Errorf("it is resolved afterwards: %v", err)
		}
	}
	if open, err := e.Reviews(ctx, reviewer, engine.ReviewsRequest{Status: "open"}); err != nil || len(open.Reviews) != 0 {
		t.Errorf("%+v, %v", open, err)
	}
	if s, err := e.Status(ctx, operator, "wf-one"); err != nil || s.State != "cancelled" || len(s.Calls) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	verifyClean(t, e)
}

// TestDoubtIsAReview interrupts a call, and has a reviewer decide whether it happened.
func TestDoubtIsAReview(t *testing.T) {
	for name, tc := range map[string]struct {
		decision judge.Outcome
		output   string
		want     string // the run's output, or its error
		calls    int
	}{
		"it happened":     {judge.Approve, `{"receipt":7}`, `{"paid":{"receipt":7}}`, 0},
		"it gave nothing": {judge.Approve, `null`, `{"paid":null}`, 0},
		"it did not":      {judge.Reject, ``, `{"paid":"ok"}`, 1},
		"given up":        {engine.GiveUp, ``, chain.CodeGivenUp, 0},
	} {
		t.Run(name, func(t *testing.T) {
			folder, e := t.TempDir(), newRecordBench(t)
			begun := make(chan struct{}, 1)
			r := openLedger(t, folder, e, effectsFunc(func(ctx context.Context, _ chain.Command) chain.Outcome {
				begun <- struct{}{}
				<-ctx.Done()
				return chain.Outcome{}
			}))
			d := parseSteps(t, "", `{id: pay, type: tool, server: bank, action: transfer, arguments: {sum: 5}, save_output_to: variables.output.paid}`)
			startAs(t, r, d, "one", "")
			<-begun
			r.Close()
			f := &fakeServers{}
			l := asking{e, make(chan string)}
			r = openLedger(t, folder, l, f)
			review := openReview(t, e, l.reviews)
			r.Close() // the review still exists after the next kill, once
			r = openLedger(t, folder, l, f)
			defer r.Close()
			if again := openReview(t, e, l.reviews); again.ID != review.ID {
				t.Errorf("asked twice: %s, %s", review.ID, again.ID)
			}
			if review.Kind != "step" || review.Action != "pay" || review.Tool != "bank/transfer (pay!)" || review.RequestedBy != "a" {
				t.Errorf("%+v", review)
			}
			ctx := context.Background()
			view, err := e.Review(ctx, reviewer, review.ID)
			if err != nil || !strings.Contains(string(view.Context), `"arguments":{"sum":5}`) || view.Position.State != "waiting" {
				t.Errorf("%s, %v", view.Context, err)
			}
			req := engine.ResolveRequest{ID: review.ID, Decision: tc.decision, Output: json.RawMessage(tc.output), Reason: "The bank says so."}
			if _, err := e.Resolve(ctx, engine.Principal{ID: "a", Role: engine.RoleReviewer}, req); engine.CodeOf(err) != engine.CodeForbidden || !strings.Contains(err.Error(), "The run acts for you, so you may not decide whether its call happened. Leave the review to another reviewer.") {
				t.Errorf("the run's own principal: %v", err)
			}
			if _, err := e.Resolve(ctx, reviewer, engine.ResolveRequest{ID: review.ID, Decision: judge.Reject, Output: json.RawMessage(`1`), Reason: "No."}); engine.CodeOf(err) != engine.CodeInvalidArgument {
				t.Errorf("an output of what did not happen: %v", err)
			}
			if _, err := e.Resolve(ctx, reviewer, engine.ResolveRequest{ID: review.ID, Decision: judge.Approve, Reason: "Yes."}); engine.CodeOf(err) != engine.CodeInvalidArgument || !strings.Contains(err.Error(), "as output") {
				t.Errorf("approved without what it gave: %v", err)
			}
			done, err := e.Resolve(ctx, reviewer, req)
			if err != nil || done.Review.Decision != tc.decision {
				t.Fatalf("%+v, %v", done, err)
			}
			if _, err := e.Resolve(ctx, reviewer, req); engine.CodeOf(err) != engine.CodeReviewClosed {
				t.Errorf("resolved twice: %v", err)
			}
			result := waitRun(t, r, "one")
			got := marshal(result.Output)
			if result.Err != nil {
				got = result.Err.Code
			}
			if got != tc.want || len(f.calls) != tc.calls {
				t.Errorf("got %s after %v", got, f.calls)
			}
			if all, err := e.Reviews(ctx, reviewer, engine.ReviewsRequest{Status: "all"}); err != nil || len(all.Reviews) != 1 {
				t.Errorf("%+v, %v", all.Reviews, err)
			}
			verifyClean(t, e)
		})
	}
}

// TestAnswerAfterTheEnd: once a run is cancelled, no one can answer for its call, and an attempt gets the reason.
func TestAnswerAfterTheEnd(t *testing.T) {
	folder, e, ctx := t.TempDir(), newRecordBench(t), context.Background()
	begun := make(chan struct{}, 1)
	r := openLedger(t, folder, e, effectsFunc(func(ctx context.Context, _ chain.Command) chain.Outcome {
		begun <- struct{}{}
		<-ctx.Done()
		return chain.Outcome{}
	}))
	startAs(t, r, parseSteps(t, "", `{id: pay, type: tool, server: bank, action: transfer}`), "one", "")
	<-begun
	r.Close()
	l := asking{e, make(chan string)}
	r = openLedger(t, folder, l, &fakeServers{})
	defer r.Close()
	review := openReview(t, e, l.reviews)
	if err := r.Cancel(ctx, "one", "ann", "Enough."); err != nil {
		t.Fatal(err)
	}
	done, err := e.Resolve(ctx, reviewer, engine.ResolveRequest{ID: review.ID, Decision: judge.Approve, Output: json.RawMessage(`7`), Reason: "The bank says so."})
	if engine.CodeOf(err) != engine.CodeReviewClosed || !strings.Contains(err.Error(), "The run was cancelled by ann: Enough.") {
		t.Errorf("%+v, %v", done, err)
	}
	verifyClean(t, e)
}

// TestInputIsAReview: a server asks for input, and a reviewer gives or declines it.
func TestInputIsAReview(t *testing.T) {
	for name, tc := range map[string]struct {
		decision judge.Outcome
		output   string
		want     string // the run's output, or its error
	}{
		"given":    {judge.Approve, `{"city":"Ulm"}`, `{"went":{"q":{"action":"accept","content":{"city":"Ulm"}}}}`},
		"declined": {judge.Reject, ``, `{"went":{"q":{"action":"decline"}}}`},
		"given up": {engine.GiveUp, ``, chain.CodeGivenUp},
	} {
		t.Run(name, func(t *testing.T) {
			e := newRecordBench(t)
			l := asking{e, make(chan string)}
			r := openLedger(t, t.TempDir(), l, effectsFunc(func(_ context.Context, c chain.Command) chain.Outcome {
				if c.Input != nil {
					return chain.Outcome{Value: c.Input.Responses}
				}
				return chain.Outcome{
					Value: chain.Input{Requests: map[string]any{"q": map[string]any{"method": "elicitation/create", "params": map[string]any{"message": "Where to?"}}}},
					Err:   &chain.StepError{Code: chain.CodeInput, Message: "the server asks for input", Final: true},
				}
			}))
			defer r.Close()
			startAs(t, r, parseSteps(t, "", `{id: go, type: tool, server: taxi, action: ride, save_output_to: variables.output.went}`), "one", "")
			review := openReview(t, e, l.reviews)
			view, err := e.Review(context.Background(), reviewer, review.ID)
			if err != nil || review.Kind != "input" || !strings.Contains(string(view.Context), "Where to?") {
				t.Errorf("%+v in %s, %v", review, view.Context, err)
			}
			req := engine.ResolveRequest{ID: review.ID, Decision: tc.decision, Output: json.RawMessage(tc.output), Reason: "So it is."}
			if _, err := e.Resolve(context.Background(), reviewer, req); err != nil {
				t.Fatal(err)
			}
			result := waitRun(t, r, "one")
			got := marshal(result.Output)
			if result.Err != nil {
				got = result.Err.Code
			}
			if got != tc.want {
				t.Errorf("got %s, %v", got, result.Err)
			}
			verifyClean(t, e)
		})
	}
}

// asking is a ledger that reports the reviews that it opens.
type asking struct {
	chain.Ledger
	reviews chan string
}

func (a asking) AskStep(ctx context.Context, q engine.StepQuestion) (string, *engine.StepAnswer, error) {
	review, answer, err := a.Ledger.AskStep(ctx, q)
	if review != "" {
		select {
		case a.reviews <- review:
		default:
		}
	}
	return review, answer, err
}

// openReview waits for the only open review.
func openReview(t *testing.T, e *recordBench, reviews <-chan string) engine.ReviewSummary {
	t.Helper()
	id := <-reviews
	list, err := e.Reviews(context.Background(), reviewer, engine.ReviewsRequest{})
	if err != nil || len(list.Reviews) != 1 || list.Reviews[0].ID != id {
		t.Fatalf("%+v, %v", list.Reviews, err)
	}
	return list.Reviews[0]
}

// refusing is a ledger that rejects every step.
type refusing struct {
	chain.Ledger
	err error
}

func (r refusing) RecordStep(context.Context, engine.StepRecord) error { return r.err }

// TestRefusedRecordEndsTheRun: a run does not continue without its record.
func TestRefusedRecordEndsTheRun(t *testing.T) {
	f := &fakeServers{}
	ended := refusing{newRecordBench(t), &engine.Error{Code: engine.CodeInstanceEnded, Message: "It has ended."}}
	r := openLedger(t, t.TempDir(), ended, f)
	defer r.Close()
	startAs(t, r, parseSteps(t, "", `{id: a, type: tool, server: s, action: look}`, `{id: b, type: tool, server: s, action: pay}`), "one", "")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := r.Wait(ctx, "one"); err == nil || !strings.Contains(err.Error(), "the store rejects its record: It has ended.") {
		t.Errorf("the run ended with %v", err)
	}
	if slices.Contains(f.calls, "pay") {
		t.Errorf("it went on: %v", f.calls)
	}
}

// TestSensitiveValuesOfARun searches the whole record for a secret.
func TestSensitiveValuesOfARun(t *testing.T) {
	const secret = "hunter2-canary"
	e := newRecordBench(t)
	f := &fakeServers{answers: map[string]chain.Outcome{
		"login": {Value: map[string]any{"token": "tok-canary", "echo": "for " + secret}},
		"fail":  {Err: &chain.StepError{Code: chain.CodeToolError, Message: secret + " and tok-canary are wrong", Final: true}},
	}}
	r := openLedger(t, t.TempDir(), e, f)
	defer r.Close()
	d := parseSteps(t, "variables: {input: {password: x}}\nsensitive: [/input/password, /steps/login/output/token]\n",
		`{id: login, type: tool, server: s, action: login, arguments: {p: "{{variables.input.password}}"}, save_output_to: variables.output.all}`, `{id: f, type: tool, server: s, action: fail}`)
	startAs(t, r, d, "one", `{"password":"`+secret+`"}`)
	waitRun(t, r, "one")
	h, err := engine.ReadWholeHistory(context.Background(), e.Engine, reviewer, "wf-one")
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Status(context.Background(), reviewer, "wf-one")
	if err != nil {
		t.Fatal(err)
	}
	if shown := marshal(h) + marshal(s); strings.Contains(shown, "canary") {
		t.Errorf("a reviewer sees %s", shown)
	}
	if mine, err := e.Status(context.Background(), owner, "wf-one"); err != nil || !strings.Contains(string(mine.Context), secret) {
		t.Errorf("the owner sees %s, %v", mine.Context, err)
	}
}

// TestNoSecretInTheFiles searches everything that a run leaves on disk for a secret: the file of the runs, its log,
// and the store. It then destroys the secret's key.
func TestNoSecretInTheFiles(t *testing.T) {
	const secret = "hunter2-canary"
	folder, e := t.TempDir(), newRecordBench(t)
	f := &fakeServers{answers: map[string]chain.Outcome{"login": {Value: map[string]any{"token": "tok-canary"}}, "fail": {Err: &chain.StepError{Code: chain.CodeToolError, Message: secret + " is wrong", Final: true}}}}
	r := openLedger(t, folder, e, f)
	d := parseSteps(t, "variables: {input: {password: x}}\nsensitive: [/input/password, /steps/*/output]\n",
		`{id: login, type: tool, server: s, action: login, save_output_to: variables.output.all}`, `{id: w, type: wait, signal: go}`, `{id: f, type: tool, server: s, action: fail}`)
	startAs(t, r, d, "one", `{"password":"`+secret+`"}`)
	ctx := context.Background()
	if err := r.Signal(ctx, "one", "go", "sam", "sig-canary"); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, "one"); result.Err == nil || result.Err.Message != secret+" is wrong" || marshal(result.Output) != `{"all":{"token":"tok-canary"}}` {
		t.Errorf("%s, %v", marshal(result.Output), result.Err)
	}
	look := func() {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(raw, []byte("canary")) {
				t.Errorf("%s holds a secret", filepath.Base(file))
			}
		}
	}
	look()
	for ev, err := range e.store.Events(ctx, store.EventQuery{Instance: "wf-one"}) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(ev.Body(), []byte("canary")) {
			t.Errorf("event %d holds a secret: %s", ev.Seq, ev.Body())
		}
	}
	if _, err := e.ShredInstance(ctx, operator, "wf-one"); err != nil {
		t.Fatal(err)
	}
	r.Close()
	look()
	r = openLedger(t, folder, e, f)
	defer r.Close()
	if s, err := r.Get(ctx, "one"); err != nil || s.Status != chain.StatusFailed || s.Result.Err.Code != chain.CodeSealed {
		t.Errorf("%+v, %v", s.Result, err)
	}
}
