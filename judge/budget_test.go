package judge

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hand is a clock that is moved manually.
type hand struct{ at time.Time }

func (h *hand) now() time.Time { return h.at }

func newHand() *hand { return &hand{time.Date(2026, 11, 20, 12, 3, 4, 5, time.UTC)} }

func TestBudget(t *testing.T) {
	t.Parallel()
	clock := newHand()
	b := newBudget(3, time.Hour, clock.now)
	take := func(who string, n int, want bool) time.Duration {
		t.Helper()
		ok, frees := b.Spend(who, n)
		if ok != want || ok != (frees == 0) {
			t.Fatalf("%s: %v %v, want %v", who, ok, frees, want)
		}
		return frees
	}
	take("ann", 1, true)
	clock.at = clock.at.Add(20 * time.Minute)
	take("ann", 2, true)
	frees := take("ann", 1, false)
	if frees < 40*time.Minute || frees > 46*time.Minute {
		t.Errorf("the first is free in %v", frees)
	}
	if more := take("ann", 3, false); more < time.Hour || more > 66*time.Minute {
		t.Errorf("three are free in %v", more)
	}
	take("bob", 3, true) // other principals have separate budgets

	clock.at = clock.at.Add(frees - 1)
	take("ann", 1, false)
	clock.at = clock.at.Add(1)
	take("ann", 1, true)
	take("ann", 1, false)

	// Unused spending comes back, and never more than was spent.
	b.refund("ann", 1)
	b.refund("nobody", 7)
	take("ann", 1, true)
	take("ann", 1, false)
	b.refund("ann", 100)
	take("ann", 3, true)
	take("ann", 1, false)

	// A clock that goes back frees nothing.
	clock.at = clock.at.Add(-24 * time.Hour)
	take("ann", 1, false)
	clock.at = clock.at.Add(48 * time.Hour)
	take("ann", 3, true)

	// A request for more samples than the limit gets one answer per window, not none.
	take("eve", 5, true)
	take("eve", 5, false)
}

func TestNoBudget(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, -1} {
		b := newBudget(limit, time.Hour, time.Now)
		if ok, _ := b.Spend("ann", 1e9); !ok {
			t.Errorf("limit %d binds", limit)
		}
		b.refund("ann", 1)
	}
}

// Many principals do not fill the memory, and none that spent much gains from that.
func TestBudgetEvictsLowestSpender(t *testing.T) {
	t.Parallel()
	clock := newHand()
	b := newBudget(2, time.Hour, clock.now)
	b.Spend("spender", 2)
	for i := range 3 * budgetPrincipals {
		b.Spend(fmt.Sprint("p", i), 1)
	}
	if n := len(b.spent); n > budgetPrincipals {
		t.Errorf("%d principals are remembered", n)
	}
	if ok, _ := b.Spend("spender", 1); ok {
		t.Error("the spender was forgotten")
	}
	// Principals whose window has passed are evicted first.
	clock.at = clock.at.Add(2 * time.Hour)
	late := budgetPrincipals / 2
	for i := range late {
		b.Spend(fmt.Sprint("late", i), 1)
	}
	if n := len(b.spent); n != late {
		t.Errorf("%d principals are remembered, want the %d that spent something", n, late)
	}
}

func TestBudgetTogether(t *testing.T) {
	t.Parallel()
	b := newBudget(100, time.Hour, time.Now)
	var mu sync.Mutex
	granted := 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				if ok, _ := b.Spend("ann", 1); ok {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if granted != 100 {
		t.Errorf("%d granted of 100", granted)
	}
}

// No window exceeds the limit, and spending succeeds at the announced time.
func TestBudgetWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := newHand()
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		b := newBudget(limit, time.Hour, clock.now)
		var spent []time.Time
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			clock.at = clock.at.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Minute)).Draw(t, "later")))
			ok, frees := b.Spend("ann", 1)
			if !ok {
				if frees <= 0 || frees > time.Hour+time.Hour/budgetSlots {
					t.Fatalf("free in %v", frees)
				}
				clock.at = clock.at.Add(frees)
				if ok, again := b.Spend("ann", 1); !ok {
					t.Fatalf("after %v not free, but in %v", frees, again)
				}
			}
			spent = append(spent, clock.at)
			inside := 0
			for _, at := range spent {
				if clock.at.Sub(at) < time.Hour {
					inside++
				}
			}
			if inside > limit {
				t.Fatalf("%d in a window of %d", inside, limit)
			}
		}
	})
}
