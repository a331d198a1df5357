package chain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// testLease is how long a test replica may be silent.
const testLease = time.Second

// replicaStore is an engine over a database, with the leases that distinguish replicas.
type replicaStore struct {
	*engine.Engine
	db driver.Database
}

func openReplicaStore(url string) (replicaStore, error) {
	db, err := driver.Open(context.Background(), driver.Config{Address: url})
	if err != nil {
		return replicaStore{}, err
	}
	compiler := validators.NewCompiler(enginetest.Pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler})
	if err != nil {
		return replicaStore{}, err
	}
	e, err := engine.New(engine.Config{
		Store: db, Judge: pipeline, Compiler: compiler, Digester: enginetest.Digester, ValueKey: []byte("the key that wraps all data keys"), ReviewPath: true,
	})
	return replicaStore{e, db}, err
}

// config returns the Config of runs in the same database.
func (s replicaStore) config(url string) chain.Config {
	guest, err := driver.Find(url).InspectGuest(context.Background(), url, chain.DefaultSchema, chain.VersionTable, chain.OtherDatabase)
	if err != nil {
		panic(err)
	}
	return chain.Config{
		Database: &chain.Database{URL: url, Proxied: guest.Proxied}, Leases: s.db, Lease: testLease, Ledger: chain.NewLedger(s.Engine), Grace: 10 * time.Millisecond,
		Repeatable: func(_, tool string) bool { return !strings.HasPrefix(strings.TrimPrefix(tool, "hang-"), "pay") },
	}
}

// notes is a file that logs the actions of test servers, each line with the calling replica and the time.
type notes struct{ path string }

func (n notes) add(what, by string) {
	f, err := os.OpenFile(n.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, what, by, time.Now().UnixMilli())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
}

type note struct {
	what, by string
	at       time.Time
}

func (n notes) read() (out []note) {
	raw, _ := os.ReadFile(n.path) //nolint:errcheck // a missing file is empty
	for line := range strings.Lines(string(raw)) {
		var next note
		var at int64
		if k, _ := fmt.Sscan(line, &next.what, &next.by, &at); k == 3 {
			next.at = time.UnixMilli(at)
			out = append(out, next)
		}
	}
	return out
}

func (n notes) count(what string) int {
	return len(slices.DeleteFunc(n.read(), func(one note) bool { return one.what != what }))
}

func openNotes(folder string) notes { return notes{filepath.Join(folder, "notes")} }

// replicaEffects are the test servers, called by one replica. Tools named pay* are not repeatable.
type replicaEffects struct {
	folder, by string
	engine     *engine.Engine
}

func (e replicaEffects) Do(ctx context.Context, c chain.Command) chain.Outcome {
	if c.Op != chain.OpCall {
		return chain.Executor{Workflows: e.engine}.Do(ctx, c)
	}
	log := openNotes(e.folder)
	log.add("begin:"+c.Name, e.by)
	if strings.HasPrefix(c.Name, "hang") && !waitForFile(ctx, filepath.Join(e.folder, c.Name)) {
		return chain.Outcome{Err: &chain.StepError{Code: chain.CodeTimeout, Message: "stopped"}}
	}
	takes := 20 * time.Millisecond // gavel may be killed during this time
	if strings.HasPrefix(c.Name, "pay") {
		takes *= 8
	}
	<-time.After(takes)
	if c.Name == "flaky" && log.count("begin:flaky") < 3 {
		return chain.Outcome{Err: &chain.StepError{Code: chain.CodeToolError, Message: "flaky"}}
	}
	log.add("effect:"+c.Name, e.by)
	<-time.After(takes)
	if c.Name == "z" {
		return chain.Outcome{Value: c.Arguments}
	}
	return chain.Outcome{Value: c.Name}
}

// waitForFile waits until a file exists, or returns false if ctx ends first.
func waitForFile(ctx context.Context, path string) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// runReplica is one of several processes over a database. It runs chains until it is killed or its input
// ends.
func runReplica(folder, url, name string) {
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	s, err := openReplicaStore(url)
	fail(err)
	c := s.config(url)
	c.Effects, c.Unload = replicaEffects{folder, name, s.Engine}, time.Duration(os.Getpid()%2)*10*time.Millisecond // every other replica suspends runs
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	runs, err := chain.Open(context.Background(), c)
	fail(err)
	_, err = os.Stdout.WriteString("running\n")
	fail(err)
	_, _ = os.Stdin.Read(make([]byte, 1)) //nolint:errcheck // waits for the end of the input
	runs.Close()
	fail(s.db.Close())
}

// cutOff holds leases that can be made unreachable.
type cutOff struct {
	store.Leases
	cut atomic.Bool
}

func (c *cutOff) TakeLease(ctx context.Context, name, owner string, d time.Duration) (store.Lease, error) {
	if c.cut.Load() {
		return store.Lease{}, errors.New("cut off")
	}
	return c.Leases.TakeLease(ctx, name, owner, d)
}

// TestSilentReplicaRecordsNothing: a replica whose lease has ended does not record an outcome, because
// another replica has taken up the run.
func TestSilentReplicaRecordsNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s, err := openReplicaStore(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.db.Close() }()
	leases := &cutOff{Leases: s.db}
	open := func(name string, leases store.Leases) (runs *chain.Runs, begun chan string, answer chan struct{}) {
		begun, answer = make(chan string, 10), make(chan struct{})
		c := s.config(url)
		c.Leases, c.Repeatable = leases, func(string, string) bool { return true }
		c.Effects = effectsFunc(func(ctx context.Context, c chain.Command) chain.Outcome {
			begun <- c.Name
			select {
			case <-answer:
			case <-ctx.Done():
			}
			return chain.Outcome{Value: name}
		})
		if runs, err = chain.Open(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		return runs, begun, answer
	}
	d, err := chain.Parse("chain.yaml", []byte(`{name: c, steps: [{id: x, type: tool, server: s, action: x, save_output_to: variables.output.x}, {id: y, type: tool, server: s, action: y}]}`))
	if err != nil {
		t.Fatal(err)
	}
	silent, begun, answer := open("silent", leases)
	defer silent.Close()
	run, err := silent.Start(t.Context(), chain.StartRequest{Definition: d, Principal: olga})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	leases.cut.Store(true)
	other, taken, answerOther := open("other", s.db)
	defer other.Close()
	<-taken
	close(answer)
	select {
	case name := <-begun:
		t.Errorf("%s began in the replica that was silent", name)
	case <-time.After(300 * time.Millisecond):
	}
	close(answerOther)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := other.Wait(ctx, run)
	if err != nil || result.Err != nil || result.Output["x"] != "other" {
		t.Errorf("it ends with %+v, %v", result, err)
	}
	leases.cut.Store(false)
	select {
	case name := <-begun:
		t.Errorf("%s began in the replica that was silent", name)
	case <-time.After(300 * time.Millisecond):
	}
}

// TestRedriveOverDatabase: a call without an answer is made again once a person has stated that it did not
// happen.
func TestRedriveOverDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s, err := openReplicaStore(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.db.Close() }()
	var calls atomic.Int32
	c := s.config(url)
	c.Effects = effectsFunc(func(context.Context, chain.Command) chain.Outcome {
		if calls.Add(1) == 1 {
			return chain.Outcome{Err: &chain.StepError{Code: chain.CodeTimeout, Message: "no answer", MayHaveRun: true}}
		}
		return chain.Outcome{Value: "paid"}
	})
	runs, err := chain.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	d, err := chain.Parse("chain.yaml", []byte(`{name: c, concurrency: 1, steps: [{id: p, type: parallel, tasks: [{id: w, type: wait, seconds: 0}, {id: pay, type: tool, server: s, action: pay, save_output_to: variables.output.paid}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	service := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: s.Engine, Chains: func() map[string]*chain.Definition { return map[string]*chain.Definition{"c": d} }})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, err := service.StartRun(ctx, olga, chain.StartRun{Chain: "c"})
	if err == nil {
		first, err = service.WaitRun(ctx, olga, first.Run)
	}
	if err != nil || first.Status != chain.StatusFailed {
		t.Fatalf("it is %+v, %v", first, err)
	}
	again, err := service.RedriveRun(ctx, olga, first.Run, "")
	if err != nil {
		t.Fatal(err)
	}
	for len(again.Waiting) != 1 || again.Waiting[0].Review == "" {
		select {
		case <-ctx.Done():
			t.Fatalf("it does not ask: %+v", again)
		case <-time.After(10 * time.Millisecond):
		}
		if again, err = service.ReadRun(ctx, olga, again.Run); err != nil {
			t.Fatal(err)
		}
	}
	if q := again.Waiting[0]; q.Key != "p/pay!" || calls.Load() != 1 {
		t.Errorf("it asks %+v, after %d calls", q, calls.Load())
	}
	if _, err := service.AnswerRun(ctx, rita, again.Run, "p/pay!", chain.AnswerAgain, nil); err != nil {
		t.Fatal(err)
	}
	if again, err = service.WaitRun(ctx, olga, again.Run); err != nil || string(again.Output) != `{"paid":"paid"}` || calls.Load() != 2 {
		t.Errorf("it ends with %+v, %v, after %d calls", again, err, calls.Load())
	}
}

// TestLeasesAreForgotten: the leases of ended servers are eventually deleted, and other leases are kept.
func TestLeasesAreForgotten(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s, err := openReplicaStore(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.db.Close() }()
	open := func() *chain.Runs {
		t.Helper()
		runs, err := chain.Open(context.Background(), s.config(url))
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	open().Close()
	open().Close()
	runs := open()
	defer runs.Close()
	if _, err := s.db.TakeLease(t.Context(), "another job", "somebody", time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.Background()) }()
	count := func() (n int) {
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM gavel.leases WHERE name IN ('another job') OR name LIKE 'chain executor %'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 4 {
		t.Fatalf("there are %d leases", n)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	service := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: s.Engine, Chains: func() map[string]*chain.Definition { return nil }})
	go service.RunSweeps(ctx, func() time.Duration { return time.Hour }, slog.New(slog.DiscardHandler))
	for n := count(); n != 2; n = count() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d leases are left", n)
		}
	}
}

// effectsFunc implements Effects with a function.
type effectsFunc func(ctx context.Context, c chain.Command) chain.Outcome

func (f effectsFunc) Do(ctx context.Context, c chain.Command) chain.Outcome { return f(ctx, c) }
