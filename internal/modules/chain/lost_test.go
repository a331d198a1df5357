package chain_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

// TestLostRun: a run that became unreadable fails in the store as well, instead of waiting there forever.
func TestLostRun(t *testing.T) {
	t.Parallel()
	path, e := filepath.Join(t.TempDir(), "chains.db"), enginetest.New(t, judge.Config{Clock: enginetest.FixedTime})
	d, err := chain.Parse("chain.yaml", []byte(waitingChain))
	if err != nil {
		t.Fatal(err)
	}
	first := &countingLedger{Recorder: chain.NewLedger(e), wrote: make(chan string, 10)}
	r := openReplay(t, path, first)
	run, err := r.Start(t.Context(), chain.StartRequest{Definition: d, Principal: ann})
	if err != nil {
		t.Fatal(err)
	}
	<-first.wrote // now it waits
	r.Close()
	chain.DamageRun(t, path, run, `{"definition":{"name":"waiting","steps":[],"later":1}}`)
	result, err := openReplay(t, path, &countingLedger{Recorder: chain.NewLedger(e)}).Wait(t.Context(), run)
	if err != nil || result.Err == nil || result.Err.Code != chain.CodeRun || !strings.Contains(result.Err.Message, "or was written by another version of gavel") {
		t.Fatalf("it ends with %+v, %v", result, err)
	}
	got, err := e.Status(t.Context(), olga, engine.RunInstance(run))
	if err != nil || got.State != "failed" || !strings.Contains(string(got.Context), "or was written by another version of gavel") {
		t.Errorf("recorded is %s %s, %v", got.State, got.Context, err)
	}
}

// TestMoveKeepsItsRest: a move with a timeout keeps only the remaining time when it is taken up.
func TestMoveKeepsItsRest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "chains.db")
	d, err := chain.Parse("chain.yaml", []byte("name: c\nsteps:\n- {id: w, type: workflow, action: wait, instance: wf-1, state: done, timeout: 1m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	type asked struct {
		at      time.Time
		timeout time.Duration
	}
	calls := make(chan asked, 2)
	open := func() *chain.Runs {
		t.Helper()
		r, err := chain.Open(t.Context(), chain.Config{Path: path, Effects: blockingEffects(func(c chain.Command) { calls <- asked{time.Now(), c.Rest} })})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	r := open()
	if _, err := r.Start(t.Context(), chain.StartRequest{Definition: d, Principal: ann}); err != nil {
		t.Fatal(err)
	}
	first := <-calls
	r.Close()
	open()
	second := <-calls
	if passed, less := second.at.Sub(first.at), first.timeout-second.timeout; first.timeout > time.Minute || less < passed/2 {
		t.Errorf("of %v it has %v left after %v", first.timeout, second.timeout, passed)
	}
}

// blockingEffects reports each command and never answers.
type blockingEffects func(chain.Command)

func (f blockingEffects) Do(ctx context.Context, c chain.Command) chain.Outcome {
	f(c)
	<-ctx.Done()
	return chain.Outcome{}
}

// TestRunKeepsItsWriters: a run that has written a resource continues, even if the configuration no longer
// names a tool for that.
func TestRunKeepsItsWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "chains.db")
	d, err := chain.Parse("chain.yaml", []byte("name: c\nsteps:\n- {id: w, type: resource, server: s, action: write, uri: \"file:///x\", data: {a: 1}}\n- {id: g, type: wait, signal: go}\n"))
	if err != nil {
		t.Fatal(err)
	}
	open := func(writer func(string) (chain.Writer, bool), written chan<- string) *chain.Runs {
		t.Helper()
		r, err := chain.Open(t.Context(), chain.Config{Path: path, Writer: writer, Effects: effects(func(c chain.Command) chain.Outcome {
			written <- c.Name
			return chain.Outcome{Value: "ok"}
		})})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	written := make(chan string, 2)
	r := open(func(string) (chain.Writer, bool) { return chain.Writer{Tool: "put", URI: "at", Data: "text"}, true }, written)
	run, err := r.Start(t.Context(), chain.StartRequest{Definition: d, Principal: ann})
	if err != nil {
		t.Fatal(err)
	}
	<-written
	r.Close()
	r = open(nil, written)
	if err := r.Signal(t.Context(), run, "go", "ann", nil); err != nil {
		t.Fatal(err)
	}
	if result, err := r.Wait(t.Context(), run); err != nil || result.Err != nil {
		t.Errorf("it ends with %+v, %v", result, err)
	}
}
