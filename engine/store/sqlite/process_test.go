package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// The other processes are this test binary again, controlled by environment variables.
const (
	childRole = "GAVEL_SQLITESTORE_TEST_CHILD"
	childPath = "GAVEL_SQLITESTORE_TEST_PATH"
	childName = "GAVEL_SQLITESTORE_TEST_NAME"
)

var crashRounds = flag.Int("crash.rounds", 5, "how often TestKilledProcessLosesNothing kills")

// childPages is the log length after which a process under load checkpoints. It is short, so that kills also hit
// checkpoints.
const childPages = 100

// child is the main function of another process.
func child(role string, in io.Reader, out io.Writer) int {
	ctx, cfg := context.Background(), sqlite.Config{Path: os.Getenv(childPath)}
	if isolatedChild(role, cfg, out) {
		return 0
	}
	if role == "hold the lock" {
		holdTheLock(cfg.Path, in, out)
		return 0
	}
	s, err := sqlite.OpenCheckpointing(ctx, cfg, childPages, 0)
	if err != nil {
		orphan{}.Fatalf("open: %v", err)
	}
	switch role {
	case "load":
		loadForever(s, out)
	case "load without sync": // the control for the power cut tests
		if _, err := s.WriterConn().ExecContext(ctx, "PRAGMA synchronous = OFF"); err != nil {
			orphan{}.Fatalf("%v", err)
		}
		loadForever(s, out)
	case "panic":
		func() {
			defer func() { _ = recover() }() // as servers do for each request
			s.PanicAlone(ctx)
		}()
	case "take turns":
		takeTurns(s, in, out)
	case "contend":
		fmt.Fprintln(out, "ready 0 -")
		_, _ = io.Copy(io.Discard, in) // until the parent releases all children together
		contend(s, out)
	}
	if err := s.Close(); err != nil {
		orphan{}.Fatalf("close: %v", err)
	}
	return 0
}

func holdTheLock(path string, in io.Reader, out io.Writer) {
	release := lock(orphan{}, path)
	fmt.Fprintln(out, "locked")
	_, _ = io.Copy(io.Discard, in) // until the parent has checked
	release()
}

// orphan replaces the testing.TB that a child process does not have.
type orphan struct{ testing.TB }

func (orphan) Helper() {}

func (orphan) Context() context.Context { return context.Background() }

func (orphan) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// ack reports a commit that returned nil to the parent, which outlives this process.
func ack(out io.Writer, i record.Instance) { fmt.Fprintf(out, "%s %d %s\n", i.ID, i.Seq, i.Head) }

const loaders = 16

// loadWorkflow is the definition of the instances under load. Verification compares it with the events.
const loadWorkflow = `{"name":"doc","initialState":"draft","states":{
	"draft":{"transitions":{"to-reviewing":"reviewing"}},"reviewing":{"transitions":{"to-reviewing":"reviewing"}}}}`

// defined stores the definition unless it exists, and returns the change that makes instances refer to it.
func defined(s *sqlite.Store) storetest.Change {
	d, err := workflow.Parse("test", []byte(loadWorkflow))
	if err == nil {
		rule := store.Rule{Definition: &store.Definition{Name: d.Name, Version: 1, Hash: d.Hash, Document: []byte(loadWorkflow), CreatedAt: storetest.Epoch}}
		rule.SetSeal(record.NewRuleSealer(nil).Seal(1, "", rule.Parts()...))
		err = s.AddRule(context.Background(), rule)
	}
	if err != nil && !errors.Is(err, store.ErrConflict) {
		orphan{}.Fatalf("define: %v", err)
	}
	return func(e *record.Event) { e.DefinitionHash = d.Hash }
}

func loadForever(s *sqlite.Store, out io.Writer) {
	definition := defined(s)
	var wg sync.WaitGroup
	for n := range loaders {
		wg.Go(func() {
			inst, err := s.Load(context.Background(), storetest.ID(n))
			for {
				c := storetest.Start(orphan{}, storetest.ID(n), `{}`, definition)
				switch {
				case err == nil && inst.Seq%10 == 5:
					c = storetest.CheckpointOf(orphan{}, inst)
				case err == nil:
					c = storetest.Advance(orphan{}, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, inst.Seq),
						storetest.WithKey(fmt.Sprint(n, inst.Seq)))
				}
				c.Reviews = []store.Review{storetest.Review(n, c.Next)} // records at which event it was written
				if err = s.Commit(context.Background(), c); err != nil {
					orphan{}.Fatalf("commit: %v", err)
				}
				ack(out, c.Next)
				inst = c.Next
			}
		})
	}
	wg.Wait()
}

const contendedWins = 100

func contend(s *sqlite.Store, out io.Writer) {
	for won := 0; won < contendedWins; {
		inst, err := s.Load(context.Background(), storetest.ID(1))
		if err != nil {
			orphan{}.Fatalf("load: %v", err)
		}
		c := storetest.Advance(orphan{}, inst, "reviewing", `{}`, storetest.By(os.Getenv(childName)))
		switch err := s.Commit(context.Background(), c); {
		case err == nil:
			won++
			ack(out, c.Next)
		case !errors.Is(err, store.ErrConflict):
			orphan{}.Fatalf("commit: %v", err)
		}
	}
}

// process is a running child.
type process struct {
	*exec.Cmd
	gate io.WriteCloser // standard input
	acks io.Reader
	// stderr is complete once the process has ended.
	stderr *bytes.Buffer
}

func spawn(t *testing.T, role, path, name string, changes ...func(*exec.Cmd)) process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childRole+"="+role, childPath+"="+path, childName+"="+name)
	for _, change := range changes {
		change(cmd)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	acks, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	gate, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return process{cmd, gate, acks, &stderr}
}

// acked is an acknowledgement as read by the parent.
type acked struct {
	id   string
	seq  int64
	head string
}

// read passes on the acknowledgements until the process has ended. It ignores a line that was cut off by a kill.
func (p process) read(each func(acked)) error {
	lines := bufio.NewReader(p.acks)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return p.Wait()
		}
		var a acked
		if _, err := fmt.Sscanf(line, "%s %d %s\n", &a.id, &a.seq, &a.head); err != nil {
			return errors.Join(err, p.Process.Kill(), p.Wait())
		}
		each(a)
	}
}

// roundsPerFile is how many kills a file goes through; its contents are checked after each.
const roundsPerFile = 20

// TestKilledProcessLosesNothing kills a process in the middle of its writes, repeatedly on the same file.
// Acknowledged writes must be present, and the rest must be consistent.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	total := 0
	for done := 0; done < *crashRounds; done += roundsPerFile {
		path, acks := newPath(t), map[string][]acked{}
		for round := range min(roundsPerFile, *crashRounds-done) {
			total += killOnce(t, path, round, acks)
			checkAcks(t, path, acks)
		}
	}
	t.Logf("%d kills, %d acknowledged writes, none lost", *crashRounds, total)
}

// killOnce starts a process and kills it, some time after one of its first writes or, every fifth time, during
// startup.
func killOnce(t *testing.T, path string, round int, acks map[string][]acked) (count int) {
	t.Helper()
	p := spawn(t, "load", path, "")
	kill := func(within time.Duration) {
		<-time.After(rand.N(within)) // any moment will do: there is no event to wait for
		if err := p.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
	after := 1 + rand.IntN(400)
	if round%5 == 4 {
		after = 0
		go kill(30 * time.Millisecond)
	}
	err := p.read(func(a acked) {
		acks[a.id] = append(acks[a.id], a)
		if count++; count == after {
			go kill(3 * time.Millisecond)
		}
	})
	if err == nil || count < after || p.stderr.Len() > 0 {
		t.Fatalf("round %d: the process ended by itself after %d writes, to be killed after %d: %v\n%s", round, count, after, err, p.stderr)
	}
	return count
}

func checkAcks(t *testing.T, path string, acks map[string][]acked) {
	t.Helper()
	s := openAt(t, path)
	defer s.Close()
	for id, list := range acks {
		events := s.Events(t.Context(), store.EventQuery{Instance: id})
		if err := record.Verify(events); err != nil {
			t.Fatal(err)
		}
		hashes := map[int64]string{}
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			hashes[e.Seq] = e.Hash
		}
		for _, a := range list {
			if hashes[a.seq] != a.head {
				t.Fatalf("event %d of %s was acknowledged and is lost", a.seq, id)
			}
		}
		inst, err := s.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if folded, err := record.FoldAt(events, 0); err != nil || folded.Head != inst.Head || string(folded.Context) != string(inst.Context) {
			t.Fatalf("%s does not match its events: %v", id, err)
		}
		if n := int64(len(hashes)); inst.Seq != n {
			t.Fatalf("%s is at event %d and has %d", id, inst.Seq, n)
		}
		checkReview(t, s, inst)
		if snapshot, err := s.Snapshot(t.Context(), id, inst.Revision); err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("the snapshot of %s: %v", id, err)
		} else if err == nil && hashes[snapshot.Seq] != snapshot.Head {
			t.Fatalf("the snapshot of %s at event %d is of another history", id, snapshot.Seq)
		}
	}
	storetest.RequireFigures(t, s, store.DecisionQuery{})
	var verdict string
	if err := s.ReaderDB().QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Fatalf("integrity: %s, %v", verdict, err)
	}
}

// checkReview checks that the review of an instance is the one written with its last event.
func checkReview(t *testing.T, s *sqlite.Store, inst record.Instance) {
	t.Helper()
	n := 0
	for r, err := range s.Reviews(t.Context(), store.ReviewQuery{Instance: inst.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; r.Seq != inst.Seq || r.Revision != inst.Revision || len(r.Data) == 0 {
			t.Fatalf("%s is at event %d, its review %s was written at %d", inst.ID, inst.Seq, r.ID, r.Seq)
		}
	}
	if n != 1 {
		t.Fatalf("%s has %d reviews, want 1", inst.ID, n)
	}
}

// TestTwoProcesses makes two processes compete for an instance: every event has one winner, and both make progress.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	winner := map[int64]string{}
	var wg, ready sync.WaitGroup
	names := []string{"local:one", "local:two"}
	ready.Add(len(names))
	open := make(chan struct{})
	for _, name := range names {
		p := spawn(t, "contend", path, name)
		wg.Go(func() { <-open; p.gate.Close() })
		isReady := sync.OnceFunc(ready.Done)
		wg.Go(func() {
			defer isReady() // also if it failed to start
			err := p.read(func(a acked) {
				if a.id == "ready" {
					isReady()
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if other, ok := winner[a.seq]; ok {
					t.Errorf("event %d was acknowledged to %s and %s", a.seq, other, name)
				}
				winner[a.seq] = name
			})
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, p.stderr)
			}
		})
	}
	ready.Wait()
	close(open)
	wg.Wait()
	events := s.Events(t.Context(), store.EventQuery{Instance: storetest.ID(1), AfterSeq: 1})
	n, turns := 0, 0
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if n++; winner[e.Seq] != e.Principal {
			t.Errorf("event %d is %s's, %s was told that it won", e.Seq, e.Principal, winner[e.Seq])
		}
		if e.Principal != winner[e.Seq-1] {
			turns++
		}
	}
	t.Logf("%d events, the winner changed %d times", n, turns)
	if want := len(names) * contendedWins; n != want || len(winner) != n {
		t.Errorf("%d events, %d acknowledged, want %d", n, len(winner), want)
	}
	if err := record.Verify(s.Events(t.Context(), store.EventQuery{Instance: storetest.ID(1)})); err != nil {
		t.Error(err)
	}
}

// TestMain lets the test binary act as the other processes of the tests.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role, os.Stdin, os.Stdout))
	}
	_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // many wait for a lock or a long-running reader
	storetest.UseMemory()
	storetest.SampleProperties(10)
	os.Exit(m.Run())
}
