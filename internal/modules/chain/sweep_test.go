package chain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

// effects answers every call with a function.
type effects func(c chain.Command) chain.Outcome

func (f effects) Do(_ context.Context, c chain.Command) chain.Outcome { return f(c) }

// openRecorded opens runs with a record, and a service for some chains.
func openRecorded(t *testing.T, do effects, docs ...string) (*chain.Runs, *chain.Service, *engine.Engine) {
	t.Helper()
	e := enginetest.New(t, judge.Config{Clock: enginetest.FixedTime})
	runs, err := chain.Open(t.Context(), chain.Config{Path: filepath.Join(t.TempDir(), "chains.db"), Effects: do, Ledger: chain.NewLedger(e)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runs.Close)
	chains := map[string]*chain.Definition{}
	for _, doc := range docs {
		d, err := chain.Parse("chain.yaml", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		chains[d.Name] = d
	}
	return runs, chain.NewService(chain.ServiceConfig{Runs: runs, Engine: e, Chains: func() map[string]*chain.Definition { return chains }}), e
}

const (
	countingChain = `
name: counting
variables: {input: {n: 0}, saved: {last: none}}
steps:
- {id: look, type: tool, server: s, action: look, arguments: {last: "{{saved.last}}"}, save_output_to: variables.output.before}
- {id: keep, type: tool, server: s, action: keep, arguments: {last: "{{variables.input.n}}"}, save_output_to: saved.last}
`
	waitingChain = `
name: waiting
steps:
- {id: first, type: wait, signal: first}
- {id: second, type: wait, signal: second, save_output_to: variables.output.said}
`
)

// TestSweep deletes runs that ended before a time. It keeps what is still needed: variables saved for the
// next run, open runs, and the records in the store.
func TestSweep(t *testing.T) {
	calls := 0
	runs, service, _ := openRecorded(t, func(c chain.Command) chain.Outcome {
		calls++
		last := c.Arguments.(map[string]any)["last"]
		if last == "fail" {
			return chain.Outcome{Err: &chain.StepError{Code: chain.CodeToolError, Message: "no"}}
		}
		return chain.Outcome{Value: last}
	}, countingChain, waitingChain)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := func(chainName, run, input string) {
		t.Helper()
		_, err := service.StartRun(ctx, ann, chain.StartRun{Chain: chainName, Run: run, Input: json.RawMessage(input)})
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(run, input string) chain.RunView {
		t.Helper()
		start("counting", run, input)
		v, err := service.WaitRun(ctx, ann, run)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const many = 45 // more than one batch
	for n := range many {
		count(fmt.Sprintf("count-%d", n), fmt.Sprintf(`{"n":%d}`, n))
	}
	if v := count("failed", `{"n":"fail"}`); v.Status != chain.StatusFailed {
		t.Fatalf("it is %+v", v)
	}
	for _, run := range []string{"cancelled", "open"} {
		start("waiting", run, "")
		if err := runs.Signal(ctx, own(run), "first", "ann", 1); err != nil {
			t.Fatal(err)
		}
		for chain.AwaitQuestion(t, service, ann, run).Key != "second" { // once written, no sweep can miss it
			runtime.Gosched()
		}
	}
	if _, err := service.CancelRun(ctx, ann, "cancelled", ""); err != nil {
		t.Fatal(err)
	}
	if swept, err := runs.Sweep(ctx, time.Now().Add(-time.Hour)); swept != 0 || err != nil {
		t.Fatalf("%d runs of the last hour were swept, %v", swept, err)
	}
	if swept, err := runs.Sweep(ctx, time.Now().Add(time.Second)); swept != many+1 || err != nil {
		t.Fatalf("%d runs were swept, %v; want %d", swept, err, many+1)
	}
	if rows := runs.CountRows(t, own("cancelled"), own("failed"), own("count-0")); rows != 0 {
		t.Errorf("%d rows are left of runs that were swept", rows)
	}

	if err := runs.Signal(ctx, own("open"), "second", "ann", "on"); err != nil {
		t.Fatal(err)
	}
	if v, err := service.WaitRun(ctx, ann, "open"); err != nil || v.Status != chain.StatusDone || string(marshalled(t, v.Output)) != `{"said":"on"}` {
		t.Errorf("the run that had not ended: %+v, %v", v, err)
	}
	if v := count("next", `{"n":7}`); string(marshalled(t, v.Output)) != fmt.Sprintf(`{"before":%d}`, many-1) {
		t.Errorf("the next run finds %v", v.Output)
	}

	before := calls
	for name, read := range map[string]func() (chain.RunView, error){
		"read": func() (chain.RunView, error) { return service.ReadRun(ctx, ann, "count-3") },
		"started again": func() (chain.RunView, error) {
			return service.StartRun(ctx, ann, chain.StartRun{Chain: "counting", Run: "count-3", Input: json.RawMessage(`{"n": 3.0}`)})
		},
		"waited for": func() (chain.RunView, error) { return service.WaitRun(ctx, ann, "count-3") },
	} {
		v, err := read()
		if err != nil || !v.Swept || v.Status != chain.StatusDone || v.Run != "count-3" || v.Instance != engine.RunInstance(own("count-3")) || v.Chain != "counting" || v.Principal != "ann" || string(marshalled(t, v.Output)) != `{"before":2}` || v.Ended.IsZero() {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	sweeping, stop := context.WithCancel(ctx)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		service.RunSweeps(sweeping, func() time.Duration { return -time.Second }, slog.New(slog.DiscardHandler))
	}()
	for runs.CountRows(t, own(fmt.Sprintf("count-%d", many-1))) > 0 { // it is no longer the last run
		<-time.After(10 * time.Millisecond)
	}
	stop()
	<-swept
	if calls != before {
		t.Errorf("a run that was swept called %d times again", calls-before)
	}
	if v, err := service.StartRun(ctx, olga, chain.StartRun{Chain: "counting", Run: "count-3"}); err != nil || v.Principal != olga.ID || v.Swept {
		t.Errorf("the id of another's run that was swept: %+v, %v", v, err)
	}
	if _, err := service.StartRun(ctx, ann, chain.StartRun{Chain: "counting", Run: "count-3", Input: json.RawMessage(`{"n":4}`)}); engine.CodeOf(err) != engine.CodeKeyReused || !strings.Contains(err.Error(), "another input") {
		t.Errorf("the id of a run that was swept, with another input: %v", err)
	}
	if _, err := service.CancelRun(ctx, ann, "count-3", ""); engine.CodeOf(err) != engine.CodeInstanceEnded {
		t.Errorf("cancelling a run that was swept: %v", err)
	}
	other := engine.Principal{ID: "bob", Role: engine.RoleAgent}
	if _, err := service.ReadRun(ctx, other, "count-3"); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("another's run that was swept: %v", err)
	}
	if _, err := service.ReadRun(ctx, ann, "never"); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("a run that never was: %v", err)
	}
}

// TestLostFile: if the file of the runs is missing, nothing runs until someone gives up the lost runs; then
// their records fail.
func TestLostFile(t *testing.T) {
	runs, service, e := openRecorded(t, func(chain.Command) chain.Outcome { return chain.Outcome{} }, waitingChain, countingChain)
	ctx := context.Background()
	if _, err := service.StartRun(ctx, ann, chain.StartRun{Chain: "counting", Run: "done"}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.WaitRun(ctx, ann, "done"); err != nil {
		t.Fatal(err)
	}
	if _, err := service.StartRun(ctx, ann, chain.StartRun{Chain: "waiting", Run: "open"}); err != nil {
		t.Fatal(err)
	}
	runs.Close()
	path := filepath.Join(t.TempDir(), "chains.db")
	_, err := chain.Open(ctx, chain.Config{Path: path, Ledger: chain.NewLedger(e)})
	if want := path + " lacks the store's unfinished run " + own("open") + "; restore it, or create an empty file there to give up its runs"; err == nil || err.Error() != want {
		t.Fatalf("without the file: %v, want %s", err, want)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the refused start left a file: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err = chain.Open(ctx, chain.Config{Path: path, Ledger: chain.NewLedger(e)})
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	service = chain.NewService(chain.ServiceConfig{Runs: runs, Engine: e, Chains: func() map[string]*chain.Definition { return nil }})
	v, err := service.ReadRun(ctx, ann, "open")
	if err != nil || v.Status != chain.StatusFailed || v.Error == nil || v.Error.Code != "lost" {
		t.Errorf("the run is %+v, %v", v, err)
	}
	if v, err = service.ReadRun(ctx, ann, "done"); err != nil || v.Status != chain.StatusDone {
		t.Errorf("the run that had ended is %+v, %v", v, err)
	}
}

// own returns the full id of a run whose id ann chose.
func own(run string) string { return chain.ScopeRun("ann", run) }

func marshalled(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
