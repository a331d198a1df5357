package chain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

// TestRecordsAnything: any result of a call and any input of a run can be recorded. Values that no instance
// may hold are recorded as digests.
func TestRecordsAnything(t *testing.T) {
	t.Parallel()
	var deep any = "end"
	for range 64 {
		deep = map[string]any{"in": deep}
	}
	sealed := workflow.SealedForm + "v1:x"
	long := strings.Repeat("a", 61)
	for name, tc := range map[string]struct {
		answer   chain.Outcome
		input    string
		recorded string // a part of the context of the instance
	}{
		"a large number":                   {chain.Outcome{Value: map[string]any{"id": json.Number("9007199254740993")}}, "", `"digest"`},
		"NUL":                              {chain.Outcome{Value: "a\x00b"}, "", `"digest"`},
		"deep values":                      {chain.Outcome{Value: deep}, "", `"digest"`},
		"a text in the form of a sealed":   {chain.Outcome{Value: sealed}, "", `"digest"`},
		"an error in the form of a sealed": {chain.Outcome{Err: &chain.StepError{Code: chain.CodeToolError, Message: sealed, Final: true}}, "", "gavel:sealed:"},
		"an error with NUL":                {chain.Outcome{Err: &chain.StepError{Code: chain.CodeToolError, Message: "no\x00pe", Final: true}}, "", "nope"},
		"an ordinary value":                {chain.Outcome{Value: "fine"}, "", `"fine"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := fmt.Sprintf("name: c\nvariables: {input: {n: 0}}\nsteps:\n- {id: %[1]s1, type: parallel, tasks: [{id: %[1]s2, type: forEach, items: [1], steps: "+
				"[{id: %[1]s3, type: parallel, tasks: [{id: %[1]s4, type: tool, server: s, action: a, save_output_to: variables.output.o}]}]}]}\n", long)
			_, service, e := openRecorded(t, func(chain.Command) chain.Outcome { return tc.answer }, doc)
			v := runToEnd(t, service, chain.StartRun{Chain: "c", Input: json.RawMessage(tc.input)})
			want, state := chain.StatusDone, "done"
			if tc.answer.Err != nil {
				want, state = chain.StatusFailed, "failed"
			}
			if v.Status != want {
				t.Fatalf("it is %s, %+v, %v", v.Status, v.Note, v.Error)
			}
			got, err := e.Status(t.Context(), olga, v.Instance)
			if err != nil || got.State != state || !strings.Contains(string(got.Context), tc.recorded) {
				t.Errorf("recorded is %s %s, %v", got.State, got.Context, err)
			}
		})
	}
}

func runToEnd(t *testing.T, service *chain.Service, req chain.StartRun) chain.RunView {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	v, err := service.StartRun(ctx, ann, req)
	if err == nil {
		v, err = service.WaitRun(ctx, ann, v.Run)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRecordsManyDoubts: a run that waits for more than its record can hold keeps waiting.
func TestRecordsManyDoubts(t *testing.T) {
	t.Parallel()
	for _, many := range []int{17, 60} {
		var tasks []string
		for n := range many {
			tasks = append(tasks, fmt.Sprintf(`{id: s%d, type: tool, server: s, action: a, arguments: {text: %q}}`, n, strings.Repeat("x", 4000)))
		}
		doc := "name: c\nsteps:\n- {id: p, type: parallel, maxConcurrent: 100, tasks: [\n" + strings.Join(tasks, ",\n") + "]}\n"
		_, service, e := openRecorded(t, func(chain.Command) chain.Outcome {
			return chain.Outcome{Err: &chain.StepError{Code: chain.CodeUnknown, Message: "lost", MayHaveRun: true}}
		}, doc)
		v, err := service.StartRun(t.Context(), ann, chain.StartRun{Chain: "c"})
		for late := time.Now().Add(2 * time.Minute); err == nil && len(v.Waiting) < many && !v.HasEnded(); v, err = service.ReadRun(t.Context(), olga, v.Run) {
			if time.Now().After(late) {
				t.Fatalf("of %d it waits for %d", many, len(v.Waiting))
			}
		}
		if err != nil || v.HasEnded() {
			t.Fatalf("of %d: %s, %+v, %v", many, v.Status, v.Note, err)
		}
		if got, err := e.Status(t.Context(), olga, v.Instance); err != nil || got.State != "waiting" {
			t.Errorf("recorded is %s, %v", got.State, err)
		}
	}
}

// refusingLedger rejects the outcomes of steps.
type refusingLedger struct{ *engine.Recorder }

func (l refusingLedger) RecordStep(ctx context.Context, req engine.StepRecord) error {
	if req.Action == "step" {
		return &engine.Error{Code: engine.CodeInvalidData, Message: "No."}
	}
	return l.Recorder.RecordStep(ctx, req)
}

// TestRecordRefused: a run whose record is permanently rejected is cancelled with its instance; the note
// explains what to do.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t, judge.Config{Clock: enginetest.FixedTime})
	runs, err := chain.Open(t.Context(), chain.Config{
		Path: filepath.Join(t.TempDir(), "chains.db"), Ledger: refusingLedger{chain.NewLedger(e)},
		Effects: effects(func(chain.Command) chain.Outcome { return chain.Outcome{Value: "done"} }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runs.Close)
	d, err := chain.Parse("chain.yaml", []byte("name: c\nsteps:\n- {id: a, type: tool, server: s, action: a}\n"))
	if err != nil {
		t.Fatal(err)
	}
	service := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: e, Chains: func() map[string]*chain.Definition { return map[string]*chain.Definition{"c": d} }})
	v := runToEnd(t, service, chain.StartRun{Chain: "c"})
	const why = "the store rejects its record: No. Its last call may have been made: check it, then start a new run."
	if v.Status != chain.StatusCancelled || v.Note.By == "" || v.Note.Why != why {
		t.Errorf("it is %s, %+v", v.Status, v.Note)
	}
	if got, err := e.Status(t.Context(), olga, v.Instance); err != nil || got.State != "cancelled" {
		t.Errorf("recorded is %s, %v", got.State, err)
	}
}

// TestStartLosesRace: a start that loses its id to a concurrent start does not touch the other run.
func TestStartLosesRace(t *testing.T) {
	t.Parallel()
	runs, service, _ := openRecorded(t, func(chain.Command) chain.Outcome { return chain.Outcome{} }, waitingChain)
	d, err := chain.Parse("chain.yaml", []byte(waitingChain))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runs.Start(t.Context(), chain.StartRequest{Run: "x", Definition: d, Principal: ann}); err != nil {
		t.Fatal(err)
	}
	if _, err := runs.Start(t.Context(), chain.StartRequest{Run: "x", Definition: d, Principal: olga}); !chain.IsCode(err, engine.CodeKeyReused) {
		t.Errorf("the second start gives %v", err)
	}
	if v, err := service.ReadRun(t.Context(), ann, "x"); err != nil || v.Status != chain.StatusRunning {
		t.Errorf("the first one's run is %s, %+v, %v", v.Status, v.Note, err)
	}
}

// brokenLedger does not record what people do to runs.
type brokenLedger struct{ *engine.Recorder }

func (l brokenLedger) RecordStep(ctx context.Context, req engine.StepRecord) error {
	if strings.Contains(string(req.Data), `"note"`) {
		return &engine.Error{Code: engine.CodeUnavailable, Message: "The store is away."}
	}
	return l.Recorder.RecordStep(ctx, req)
}

// TestNotesFollowTheRecord: a cancellation, pause or resumption that cannot be recorded has no effect.
func TestNotesFollowTheRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "chains.db")
	e := enginetest.New(t, judge.Config{Clock: enginetest.FixedTime})
	runs, err := chain.Open(t.Context(), chain.Config{Path: path, Ledger: chain.NewLedger(e), Effects: effects(func(chain.Command) chain.Outcome { return chain.Outcome{} })})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runs.Close)
	broken, err := chain.OpenControl(t.Context(), chain.Config{Path: path, Ledger: brokenLedger{chain.NewLedger(e)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broken.Close)
	d, err := chain.Parse("chain.yaml", []byte(waitingChain))
	if err != nil {
		t.Fatal(err)
	}
	run, err := runs.Start(t.Context(), chain.StartRequest{Definition: d, Principal: ann})
	if err != nil {
		t.Fatal(err)
	}
	if err := runs.Pause(t.Context(), run, "olga", "look first"); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(context.Context, string, string, string) error{"cancel": broken.Cancel, "resume": broken.Resume, "pause": broken.Pause} {
		if err := do(t.Context(), run, "ben", "other"); err == nil {
			t.Errorf("%s succeeds", name)
		}
		if s, err := runs.Get(t.Context(), run); err != nil || s.Status != chain.StatusPaused || s.Note.Why != "look first" {
			t.Errorf("after %s it is %s, %+v, %v", name, s.Status, s.Note, err)
		}
	}
	if err := runs.Cancel(t.Context(), run, "olga", "enough"); err != nil {
		t.Fatal(err)
	}
	if s, err := runs.Get(t.Context(), run); err != nil || s.Status != chain.StatusCancelled || !s.Note.Paused || s.Note.Why != "enough" {
		t.Errorf("cancelled it is %s, %+v, %v", s.Status, s.Note, err)
	}
}

// TestOtherInstances: a run id that maps to an instance which is not a run's record does not change that
// instance.
func TestOtherInstances(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	begun, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "paper"})
	if err != nil {
		t.Fatal(err)
	}
	run := strings.TrimPrefix(begun.ID, engine.RunInstance(""))
	err = chain.NewLedger(e).RecordStep(t.Context(), engine.StepRecord{Run: run, Action: "submit", Data: json.RawMessage(`{"title":"x"}`)})
	if !chain.IsCode(err, engine.CodeKeyReused) {
		t.Errorf("a step is recorded: %v", err)
	}
	if _, _, err = chain.NewLedger(e).AskStep(t.Context(), engine.StepQuestion{Run: run, Key: "a!", Step: "a", Principal: ann, Server: "s", Tool: "t"}); !chain.IsCode(err, engine.CodeKeyReused) {
		t.Errorf("a question is asked: %v", err)
	}
}
