package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// newRule returns a definition that can be added to a store with n rules.
func newRule(n int64) store.Rule {
	d := &store.Definition{Name: fmt.Sprintf("rule-%d", n), Version: 1, Hash: fmt.Sprint(n), Document: []byte(`{}`), CreatedAt: storetest.Epoch}
	d.Seal = record.RuleSeal{Position: n + 1, Hash: fmt.Sprintf("%064x", n+1)}
	return store.Rule{Definition: d}
}

// takeTurns answers each input line with a line: what it reads of an instance and the rules. It then moves the
// instance and adds a rule.
func takeTurns(s *sqlite.Store, in io.Reader, out io.Writer) {
	for lines := json.NewDecoder(in); ; {
		var line json.RawMessage
		if err := lines.Decode(&line); err != nil {
			return
		}
		if err := json.NewEncoder(out).Encode(takeTurn(orphan{}, s)); err != nil {
			orphan{}.Fatalf("%v", err)
		}
	}
}

// turn holds what was read before a turn and what was acknowledged in it.
type turn struct {
	Read, Made record.Instance
	Rules      int64 // as read
}

func takeTurn(tb testing.TB, s *sqlite.Store) turn {
	tb.Helper()
	var t turn
	var err error
	if t.Read, err = s.Load(tb.Context(), storetest.ID(1)); err != nil {
		tb.Fatalf("load: %v", err)
	}
	head, _, err := s.Rules(tb.Context(), 1<<40)
	if err != nil {
		tb.Fatalf("rules: %v", err)
	}
	t.Rules = head.Position
	c := storetest.Advance(tb, t.Read, "reviewing", fmt.Sprintf(`{"turn":%d}`, t.Read.Seq))
	if t.Read.Seq%3 == 0 {
		c = storetest.Refuse(tb, t.Read, "go") // keeps the context
	}
	if err := s.Commit(tb.Context(), c); err != nil {
		tb.Fatalf("commit: %v", err)
	}
	if err := s.AddRule(tb.Context(), newRule(t.Rules)); err != nil {
		tb.Fatalf("add a rule: %v", err)
	}
	t.Made = c.Next
	return t
}

// Two processes that write in turns immediately read what either has acknowledged, even if one of them writes several
// times in a row or only reads.
func TestProcessesAlternate(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	c := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p := spawn(t, "take turns", path, "")
	answers := json.NewDecoder(p.acks)
	last, rules := c.Next, int64(0)
	for i := range 300 {
		var got turn
		if i%7 < 3 {
			got = takeTurn(t, s)
		} else {
			if _, err := io.WriteString(p.gate, "{}\n"); err != nil {
				t.Fatal(err)
			}
			if err := answers.Decode(&got); err != nil {
				t.Fatalf("%v\n%s", err, p.stderr)
			}
		}
		if got.Read.Head != last.Head || string(got.Read.Context) != string(last.Context) || got.Rules != rules {
			t.Fatalf("turn %d read event %d and %d rules, after event %d and %d rules were acknowledged", i, got.Read.Seq, got.Rules, last.Seq, rules)
		}
		last, rules = got.Made, rules+1
	}
	p.gate.Close()
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, p.stderr)
	}
}

// A read never returns a state older than what was acknowledged before it began. Meanwhile this process and another
// one write as fast as they can, and the log is checkpointed and restarts.
func TestReadsAreNotStale(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	const instances, perWriter = 4, 120
	var stores [2]*sqlite.Store // each acts as another process to the other
	for i := range stores {
		var err error
		if stores[i], err = sqlite.OpenCheckpointing(t.Context(), sqlite.Config{Path: path}, childPages, 0); err != nil {
			t.Fatal(err)
		}
		defer stores[i].Close()
	}
	var newest [instances]atomic.Int64
	for n := range newest {
		if err := stores[0].Commit(t.Context(), storetest.Start(t, storetest.ID(n), `{"turn":0}`)); err != nil {
			t.Fatal(err)
		}
	}
	raise := func(a *atomic.Int64, to int64) {
		for was := a.Load(); was < to && !a.CompareAndSwap(was, to); was = a.Load() {
		}
	}
	var rules atomic.Int64
	var writers, readers sync.WaitGroup
	for w := range 4 {
		s := stores[min(w, 3)/3] // three for the first, one for the second
		writers.Go(func() {
			for i := range perWriter {
				n := (w + i) % instances
				inst, err := s.Load(t.Context(), storetest.ID(n))
				if err != nil {
					t.Error(err)
					return
				}
				c := storetest.Advance(t, inst, "reviewing", fmt.Sprintf(`{"turn":%d}`, inst.Seq+1))
				if i%3 == 0 {
					c = storetest.Refuse(t, inst, "go")
				}
				switch err := s.Commit(t.Context(), c); {
				case err == nil:
					raise(&newest[n], c.Next.Seq)
				case !errors.Is(err, store.ErrConflict):
					t.Error(err)
				}
				if i%20 == 0 {
					head, _, err := s.Rules(t.Context(), 1<<40)
					if err == nil {
						err = s.AddRule(t.Context(), newRule(head.Position))
					}
					if err == nil {
						raise(&rules, head.Position+1)
					} else if !errors.Is(err, store.ErrConflict) {
						t.Error(err)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	for r := range 2 {
		s := stores[r]
		readers.Go(func() {
			var seen [instances]int64
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				n := i % instances
				least, leastRules := max(seen[n], newest[n].Load()), rules.Load()
				inst, err := s.Load(t.Context(), storetest.ID(n))
				if err != nil || inst.Seq < least {
					t.Errorf("event %d of %s was read (%v), %d was acknowledged or read before", inst.Seq, inst.ID, err, least)
					return
				}
				seen[n] = inst.Seq
				if head, _, err := s.Rules(t.Context(), 1<<40); err != nil || head.Position < leastRules {
					t.Errorf("rule %d is the newest that was read (%v), %d was acknowledged", head.Position, err, leastRules)
					return
				}
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	for n := range newest {
		requireOneState(t, stores[:], path, storetest.ID(n))
	}
}

// requireOneState compares the results of stores with the file and with the events.
func requireOneState(t *testing.T, stores []*sqlite.Store, path, id string) {
	t.Helper()
	fresh := openAt(t, path)
	defer fresh.Close()
	want, err := fresh.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // from the file, then from memory
		for i, s := range stores {
			got, err := s.Load(t.Context(), id)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("store %d: %+v, %v\nin the file: %+v", i, got, err, want)
			}
		}
	}
	folded, err := record.FoldAt(fresh.Events(t.Context(), store.EventQuery{Instance: id}), 0)
	if err != nil || folded.Head != want.Head || string(folded.Context) != string(want.Context) {
		t.Fatalf("%s does not match its events: %v", id, err)
	}
}

// Results from memory equal what is in the file, whatever was committed.
func TestCacheMatchesFile(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	c := storetest.Start(t, storetest.ID(1), `{"title":"T"}`)
	for step := 0; ; step++ {
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		requireOneState(t, []*sqlite.Store{s}, path, storetest.ID(1))
		inst, err := s.Load(t.Context(), storetest.ID(1))
		if err != nil {
			t.Fatal(err)
		}
		if own, err := s.Load(t.Context(), storetest.ID(1)); err == nil {
			clear(own.Facts.Visited) // a caller's changes to its own copy must have no effect
		}
		next := []func() store.Commit{
			func() store.Commit { return storetest.Advance(t, inst, "reviewing", `{"n":1}`) },
			func() store.Commit { return storetest.Refuse(t, inst, "go") },
			func() store.Commit { return storetest.CheckpointOf(t, inst) },
			func() store.Commit { return storetest.Advance(t, inst, "draft", `{"title":null}`) },
			func() store.Commit { return storetest.MigrateTo(t, inst, 2, "draft") },
			func() store.Commit { return storetest.Escalate(t, inst, "go", "rev-1") },
			func() store.Commit { return storetest.Refuse(t, inst, "go") },
		}
		if step == len(next) {
			return
		}
		c = next[step]()
	}
}

// Without writes, no read reaches the file.
func TestReadsStayInMemory(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t))
	defer s.Close()
	if !s.SeesIndex() {
		t.Skip("the index of the log cannot be seen here: everything is read from the file")
	}
	inst := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), inst); err != nil {
		t.Fatal(err)
	}
	read := func() {
		if _, err := s.Load(t.Context(), storetest.ID(1)); err != nil {
			t.Error(err)
		}
		if _, _, err := s.Rules(t.Context(), 1<<40); err != nil {
			t.Error(err)
		}
	}
	read() // the rules are cached from here
	next := storetest.Advance(t, inst.Next, "reviewing", `{"n":1}`)
	if err := s.Commit(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	release, done := s.HoldReaders(t), make(chan struct{})
	go func() { defer close(done); read() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("a read waits for a connection")
	}
	release()
	<-done
}
