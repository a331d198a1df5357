//go:build unix

package chain_test

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// replicaBench is a database with processes that run chains. The test process itself starts and controls
// the runs, and executes none.
type replicaBench struct {
	t           *testing.T
	folder, url string
	store       replicaStore
	control     *chain.Runs
	service     *chain.Service
	chains      map[string]*chain.Definition
	notes       notes
}

const ticket = `{"name":"ticket","initialState":"open","states":{"open":{"transitions":{"close":{"target":"closed","requiredFields":["why"]}}},"closed":{"final":true,"outcome":"success"}}}`

func newReplicaBench(t *testing.T, chains ...string) *replicaBench {
	t.Helper()
	return newReplicaBenchAt(t, pgtest.Shared(t).NewDatabase(t), chains...)
}

func newReplicaBenchAt(t *testing.T, url string, chains ...string) *replicaBench {
	t.Helper()
	b := &replicaBench{t: t, folder: t.TempDir(), url: url, chains: map[string]*chain.Definition{}}
	b.notes = openNotes(b.folder)
	var err error
	if b.store, err = openReplicaStore(b.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.store.db.Close() })
	if _, err := b.store.Define(t.Context(), olga, engine.DefineRequest{Document: []byte(ticket)}); err != nil {
		t.Fatal(err)
	}
	if b.control, err = chain.OpenControl(context.Background(), b.store.config(b.url)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.control.Close)
	for _, text := range chains {
		d, err := chain.Parse("chain.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		b.chains[d.Name] = d
	}
	b.service = chain.NewService(chain.ServiceConfig{Runs: b.control, Engine: b.store.Engine, Chains: func() map[string]*chain.Definition { return b.chains }})
	return b
}

// replica is a process that executes runs.
type replica struct {
	*exec.Cmd
	t     *testing.T
	input io.Closer
	said  *chain.SyncBuffer
	ended chan struct{}
}

// launch starts a replica and waits until it is running.
func (b *replicaBench) launch(name string) *replica {
	b.t.Helper()
	r := &replica{Cmd: exec.Command(os.Args[0]), t: b.t, said: &chain.SyncBuffer{}, ended: make(chan struct{})}
	r.Env = append(os.Environ(), "CHAIN_TEST_REPLICA="+b.folder, "CHAIN_TEST_URL="+b.url, "CHAIN_TEST_NAME="+name)
	r.Stderr = r.said
	out, err := r.StdoutPipe()
	if err == nil {
		r.input, err = r.StdinPipe()
	}
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		b.t.Fatalf("the replica %s did not start: %v\n%s", name, err, r.said)
	}
	go func() { _ = r.Wait(); close(r.ended) }()
	b.t.Cleanup(func() {
		r.kill()
		if b.t.Failed() {
			b.t.Logf("the replica %s said:\n%s", name, r.said)
		}
	})
	return r
}

// kill kills the process with SIGKILL.
func (r *replica) kill() {
	_ = r.Process.Kill()
	<-r.ended
}

func (r *replica) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func (b *replicaBench) start(name string) string {
	b.t.Helper()
	v, err := b.service.StartRun(b.t.Context(), olga, chain.StartRun{Chain: name})
	if err != nil {
		b.t.Fatal(err)
	}
	return v.Run
}

func (b *replicaBench) read(run string) chain.RunView {
	b.t.Helper()
	v, err := b.service.ReadRun(b.t.Context(), olga, run)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// await polls until is returns true, and returns how long that took.
func (b *replicaBench) await(what string, is func() bool) time.Duration {
	b.t.Helper()
	begun := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		switch took := time.Since(begun); {
		case is():
			return took
		case took > time.Minute:
			b.t.Fatalf("waited in vain for %s: %+v", what, b.notes.read())
		}
	}
	panic("unreachable")
}

// answer answers the questions of a run about its calls from the notes, and returns how many there were.
func (b *replicaBench) answer(run string) (asked int) {
	for _, q := range b.read(run).Waiting {
		if q.Kind != chain.QuestionStep || q.Review == "" {
			continue
		}
		answer, output := chain.AnswerAgain, json.RawMessage(nil)
		if b.notes.count("effect:"+q.Name) > 0 {
			answer, output = chain.AnswerHappened, json.RawMessage(`"`+q.Name+`"`)
		}
		if _, err := b.service.AnswerRun(b.t.Context(), rita, run, q.Key, answer, output); err == nil {
			asked++
		} else if c := engine.CodeOf(err); c != engine.CodeReviewClosed && c != engine.CodeInstanceEnded { // already answered
			b.t.Fatal(err)
		}
	}
	return asked
}

// history returns the actions in the record of a run, with the keys of their steps.
func (b *replicaBench) history(run string) (out []string) {
	b.t.Helper()
	all, err := engine.ReadWholeHistory(b.t.Context(), b.store.Engine, olga, engine.RunInstance(run))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, entry := range all {
		var data struct {
			Steps map[string]struct{ Key string }
		}
		_ = json.Unmarshal(entry.Data, &data)
		line := entry.Action
		for _, s := range data.Steps {
			line += " " + s.Key
		}
		out = append(out, line)
	}
	return out
}

// within fails the test if something took more than three times as long as most; busy machines need the
// margin.
func (b *replicaBench) within(what string, took, most time.Duration) {
	b.t.Helper()
	b.t.Logf("%s took %v", what, took)
	if took > 3*most {
		b.t.Errorf("%s took %v, more than three times %v", what, took, most)
	}
}

// TestAdoption kills the replica that runs a chain. The other one continues in the same step, and a
// parallel sleep keeps its deadline.
func TestAdoption(t *testing.T) {
	t.Parallel()
	b := newReplicaBench(t, `{name: c, steps: [{id: a, type: tool, server: s, action: a},
		{id: p, type: parallel, tasks: [{id: h, type: tool, server: s, action: hang}, {id: w, type: wait, seconds: 6}]}, {id: z, type: tool, server: s, action: z}]}`)
	first := b.launch("first")
	run := b.start("c")
	b.within("the start of a run from another process", b.await("the run to hang", func() bool { return b.notes.count("begin:hang") == 1 }), time.Second)
	slept := time.Now()
	b.launch("second")
	first.kill()
	b.within("adoption", b.await("the run to be adopted", func() bool { return b.notes.count("begin:hang") == 2 }), testLease+2*time.Second)
	if err := os.WriteFile(filepath.Join(b.folder, "hang"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.await("the end", func() bool { return b.read(run).HasEnded() })
	lines := b.notes.read()
	rest := lines[len(lines)-2].at.Sub(slept) // when begin:z was logged
	if v := b.read(run); v.Status != chain.StatusDone || b.notes.count("begin:a") != 1 || rest < 5500*time.Millisecond || rest > 8*time.Second {
		t.Errorf("it is %+v, and z began after %v: %+v", v, rest, lines)
	}
	if n := b.answer(run); n > 0 {
		t.Errorf("%d calls were asked about", n)
	}
}

// TestStopped stops a replica past its lease during a non-repeatable call. When it continues, it does not
// touch the run that another replica has taken up, and runs other chains.
func TestStopped(t *testing.T) {
	t.Parallel()
	b := newReplicaBench(t, `{name: c, steps: [{id: h, type: tool, server: s, action: hang-pay}, {id: pay, type: tool, server: s, action: pay}, {id: z, type: tool, server: s, action: z}]}`,
		`{name: other, steps: [{id: a, type: tool, server: s, action: a}]}`)
	first := b.launch("first")
	run := b.start("c")
	b.await("the call to hang", func() bool { return b.notes.count("begin:hang-pay") == 1 })
	first.signal(syscall.SIGSTOP)
	second := b.launch("second")
	var review string
	b.within("the question", b.await("the question", func() bool {
		for _, q := range b.read(run).Waiting {
			review = q.Review
		}
		return review != ""
	}), testLease+2*time.Second)
	if _, err := b.store.Resolve(t.Context(), rita, engine.ResolveRequest{ID: review, Decision: "approve", Reason: "seen", Output: json.RawMessage(`"seen"`)}); err != nil {
		t.Fatal(err)
	}
	b.await("the end", func() bool { return b.read(run).HasEnded() })
	ended, history := b.read(run), b.history(run)
	if ended.Status != chain.StatusDone {
		t.Errorf("it ended as %+v", ended)
	}
	if err := os.WriteFile(filepath.Join(b.folder, "hang-pay"), nil, 0o600); err != nil { // the server answers now
		t.Fatal(err)
	}
	first.signal(syscall.SIGCONT)
	b.await("the first replica to notice", func() bool { return strings.Contains(first.said.String(), "continues under a new identity") })
	second.kill()
	b.start("other")
	b.await("the first replica to run another chain", func() bool { return b.notes.count("effect:a") == 1 })
	for _, n := range b.notes.read() {
		if n.by == "first" && !slices.Contains([]string{"begin:hang-pay", "effect:hang-pay", "begin:a", "effect:a"}, n.what) {
			t.Errorf("the stopped replica went on: %+v", n)
		}
	}
	if now := b.read(run); now.Ended != ended.Ended || !slices.Equal(b.history(run), history) {
		t.Errorf("the run was changed: %+v, %v", now, b.history(run))
	}
}

// TestBehindProxy: the same holds if PgBouncer assigns each transaction to another session.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	url := pgtest.StartProxy(t, pgtest.Shared(t).NewDatabase(t), chain.OtherDatabase) // DBOS connects to OtherDatabase directly
	kills, doubts := killReplicas(t, url, 2, "concurrency: 1"+replicaCrashChain)
	t.Logf("killed %d times, %d reviews", kills, doubts)
}

// TestHandedOver ends a replica as a server ends: the other one continues without waiting for the lease.
func TestHandedOver(t *testing.T) {
	t.Parallel()
	b := newReplicaBench(t, `{name: c, steps: [{id: w, type: wait, signal: go, save_output_to: variables.output.w}]}`)
	first := b.launch("first")
	run := b.start("c")
	asks := func() bool { return len(b.read(run).Waiting) == 1 }
	b.await("the question", asks)
	second := b.launch("second")
	if err := first.input.Close(); err != nil {
		t.Fatal(err)
	}
	<-first.ended
	if err := b.control.Signal(t.Context(), run, "go", "ann", "said"); err != nil {
		t.Fatal(err)
	}
	b.within("handing over", b.await("the end", func() bool { return b.read(run).HasEnded() }), 2*time.Second)
	if v := b.read(run); string(must(json.Marshal(v.Output))) != `{"w":"said"}` {
		t.Errorf("it ended as %+v", v)
	}
	if err := second.input.Close(); err != nil {
		t.Fatal(err)
	}
	<-second.ended
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const replicaCrashChain = `
name: crash
steps:
- {id: a, type: tool, server: s, action: a}
- {id: p, type: parallel, tasks: [{id: b1, type: tool, server: s, action: b1}, {id: b2, type: tool, server: s, action: b2}, {id: pay1, type: tool, server: s, action: pay1}]}
- {id: t, type: workflow, action: start, workflow: ticket}
- {id: rest, type: wait, seconds: 1.2}
- {id: flaky, type: tool, server: s, action: flaky, retry: {max_attempts: 5, delay_seconds: 0.02}}
- {id: m, type: workflow, action: advance, instance: "{{t.output.id}}", perform: close, data: {why: "{{pay1.output}}"}}
- {id: pay2, type: tool, server: s, action: pay2}
- {id: z, type: tool, server: s, action: z, arguments: {all: ["{{a.output}}", "{{b1.output}}", "{{b2.output}}", "{{pay1.output}}", "{{m.output.state}}", "{{flaky.output}}", "{{pay2.output}}"]}, save_output_to: variables.output.z}
`

// TestReplicasKilled kills two replicas at random moments of a chain. Completed commands are not repeated,
// non-repeatable ones happen at most once, each doubt becomes a review, and the result is the same as
// without kills.
func TestReplicasKilled(t *testing.T) {
	t.Parallel()
	kills, doubts, most := 0, 0, 3
	if os.Getenv("GAVEL_LONG") != "" {
		most = 100
	}
	for kills < most {
		k, d := killReplicas(t, pgtest.Shared(t).NewDatabase(t), 8, replicaCrashChain)
		kills, doubts = kills+k, doubts+d
	}
	t.Logf("killed %d times, %d reviews", kills, doubts)
}

// killReplicas kills replicas over a database while they run a chain, at most that many times.
func killReplicas(t *testing.T, url string, most int, text string) (kills, doubts int) {
	t.Helper()
	b := newReplicaBenchAt(t, url, text)
	replicas := []*replica{b.launch("r0"), b.launch("r1")}
	run := b.start("crash")
	var ended atomic.Bool
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for !ended.Load() && kills < most {
			<-time.After(time.Duration(rand.IntN(900)) * time.Millisecond)
			n := rand.IntN(2)
			replicas[n].kill()
			kills++
			replicas[n] = b.launch("r" + string(rune('0'+n)))
		}
	}()
	b.await("the end", func() bool {
		doubts += b.answer(run)
		return b.read(run).HasEnded()
	})
	ended.Store(true)
	<-killed
	v := b.read(run)
	if got := string(must(json.Marshal(v.Output))); got != `{"z":{"all":["a","b1","b2","pay1","closed","flaky","pay2"]}}` || v.Error != nil {
		t.Errorf("after %d kills it ends with %s, %+v", kills, got, v.Error)
	}
	lines := b.notes.read()
	first := func(what string) int { return slices.IndexFunc(lines, func(n note) bool { return n.what == what }) }
	for _, name := range []string{"effect:pay1", "effect:pay2"} {
		if n := b.notes.count(name); n != 1 {
			t.Errorf("%d times %s: %+v", n, name, lines)
		}
	}
	for before, after := range map[string]string{"begin:a": "begin:b1", "begin:b2": "begin:flaky", "begin:flaky": "begin:pay2"} {
		for i, n := range lines {
			if n.what == before && i > first(after) {
				t.Errorf("%s after %s: %+v", before, after, lines)
			}
		}
	}
	page, err := b.store.Instances(t.Context(), olga, engine.InstancesRequest{Workflow: "ticket"})
	if err != nil || len(page.Instances) != 1 || page.Instances[0].State != "closed" || page.Instances[0].Revision != 2 {
		t.Errorf("the tickets are %+v, %v", page.Instances, err)
	}
	once := map[string]bool{}
	for _, line := range b.history(run) {
		if strings.HasPrefix(line, "step ") && once[line] {
			t.Errorf("%q is recorded twice", line)
		}
		once[line] = true
	}
	return kills, doubts
}
