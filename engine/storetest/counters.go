//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// count makes one addition.
func count(t *testing.T, s store.Store, a store.Addition) store.Count {
	t.Helper()
	got, err := s.Count(t.Context(), a)
	if err != nil || len(got) != 1 {
		t.Fatalf("count %+v: %v, %v", a, got, err)
	}
	return got[0]
}

func testCounters(t *testing.T, _ Driver, s store.Store) {
	for _, step := range []struct {
		what string
		add  store.Addition
		want store.Count
	}{
		{"the first", store.Addition{Name: "a\x00b", Add: 2}, store.Count{N: 2}},
		{"one more", store.Addition{Name: "a\x00b", Add: 3}, store.Count{N: 5}},
		{"another", store.Addition{Name: "a", Add: 1, Max: 1}, store.Count{N: 1}},
		{"another that is full", store.Addition{Name: "a", Add: 1, Max: 1}, store.Count{Full: true}},
		{"up to the most", store.Addition{Name: "a\x00b", Add: 5, Max: 10}, store.Count{N: 10}},
		{"beyond the most", store.Addition{Name: "a\x00b", Add: 1, Max: 10}, store.Count{Full: true}},
		{"beyond it at first", store.Addition{Name: "c", Add: 2, Max: 1}, store.Count{Full: true}},
		{"a look", store.Addition{Name: "a\x00b"}, store.Count{N: 10}},
		{"back", store.Addition{Name: "a\x00b", Add: -4}, store.Count{N: 6}},
		{"back too far", store.Addition{Name: "a\x00b", Add: -40}, store.Count{N: 0}},
		{"from there", store.Addition{Name: "a\x00b", Add: 1}, store.Count{N: 1}},
		{"below none", store.Addition{Name: "d", Add: -1}, store.Count{N: 0}},
	} {
		step.add.Lifetime = time.Hour
		got := count(t, s, step.add)
		if left := got.Left; !got.Full && (left <= time.Minute || left > time.Hour) {
			t.Errorf("%s lasts %v", step.what, left)
		}
		if got.Left = 0; got != step.want {
			t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
		}
	}
	got, err := s.Count(t.Context(), store.Addition{Name: "x", Add: 1, Lifetime: time.Hour}, store.Addition{Name: "a", Add: 1, Max: 1, Lifetime: time.Hour}, store.Addition{Name: "x", Add: 1, Lifetime: time.Hour})
	if err != nil || len(got) != 3 || got[0].N != 1 || !got[1].Full || got[2].N != 2 {
		t.Errorf("three in one call: %+v, %v", got, err)
	}
	for _, lasts := range []time.Duration{2 * time.Hour, time.Minute, 9 * time.Hour} { // it keeps its expiry
		if c := count(t, s, store.Addition{Name: "e", Add: 1, Lifetime: lasts}); c.Left <= time.Hour || c.Left > 2*time.Hour {
			t.Errorf("one more that lasts %v: %+v", lasts, c)
		}
	}
	if got, err := s.Count(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("none: %+v, %v", got, err)
	}
}

// An expired counter restarts, however many counters there are.
func countersEnd(t *testing.T, _ Driver, s store.Store) {
	const lasts = 50 * time.Millisecond
	count(t, s, store.Addition{Name: "long", Add: 7, Lifetime: time.Hour})
	count(t, s, store.Addition{Name: "once", Add: 1, Max: 1, Lifetime: lasts})
	began := time.Now()
	for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
		count(t, s, store.Addition{Name: name, Add: 1, Lifetime: lasts})
	}
	waitFor := func(isOver func() bool) {
		for !isOver() {
			if time.Since(began) > 20*time.Second {
				t.Fatal("it does not end")
			}
			time.Sleep(lasts / 10) //nolint:forbidigo // the clock is the store's
		}
	}
	waitFor(func() bool {
		return !count(t, s, store.Addition{Name: "once", Add: 1, Max: 1, Lifetime: time.Hour}).Full
	})
	if took := time.Since(began); took < lasts/2 { // the store may use another clock
		t.Errorf("it ended after %v", took)
	}
	if c := count(t, s, store.Addition{Name: "once", Lifetime: time.Hour}); c.N != 1 || c.Left < time.Minute {
		t.Errorf("it restarted with %+v", c)
	}
	waitFor(func() bool { return count(t, s, store.Addition{Name: "g", Lifetime: time.Hour}).N == 0 }) // it was the last to be created
	if c := count(t, s, store.Addition{Name: "g", Add: 3, Lifetime: time.Hour}); c.N != 3 {
		t.Errorf("another one restarted with %+v", c)
	}
	if c := count(t, s, store.Addition{Name: "long", Lifetime: time.Hour}); c.N != 7 {
		t.Errorf("the counter that has not ended has %+v", c)
	}
}

func countersRace(t *testing.T, _ Driver, s store.Store) { raceCounters(t, s) }

func countersBeside(t *testing.T, d Driver, s store.Store) {
	other := d.Beside(t, s)
	defer closeStore(t, other)
	raceCounters(t, s, other)
	if c := count(t, other, store.Addition{Name: "all", Lifetime: time.Hour}); c.N != 32 {
		t.Errorf("the other one counts %+v", c)
	}
}

// raceCounters adds 32 times through all stores, to a counter with a limit of 5 and to one without.
func raceCounters(t *testing.T, stores ...store.Store) {
	var added atomic.Int64
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			got, err := stores[i%len(stores)].Count(t.Context(), store.Addition{Name: "few", Add: 1, Max: 5, Lifetime: time.Hour}, store.Addition{Name: "all", Add: 1, Lifetime: time.Hour})
			if err != nil {
				t.Error(err)
			} else if !got[0].Full {
				added.Add(1)
			}
		})
	}
	group.Wait()
	if n := added.Load(); n != 5 {
		t.Errorf("%d were added, want 5", n)
	}
	if c := count(t, stores[0], store.Addition{Name: "all", Lifetime: time.Hour}); c.N != 32 {
		t.Errorf("the total is %+v, want 32", c)
	}
}

func countersReopened(t *testing.T, s store.Store) func(store.Store) {
	count(t, s, store.Addition{Name: "once", Add: 1, Max: 1, Lifetime: time.Hour})
	return func(s store.Store) {
		if c := count(t, s, store.Addition{Name: "once", Add: 1, Max: 1, Lifetime: time.Hour}); !c.Full {
			t.Errorf("counted again: %+v", c)
		}
	}
}
