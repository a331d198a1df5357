package judge

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// budgetSlots is the number of slots in a budget's sliding window. Spending counts for one window, and for
// at most one slot longer.
const (
	budgetSlots = 12
	maxSlots    = budgetSlots + 1
)

// budgetPrincipals limits the principals that a budget remembers. Beyond it, the principals that spent
// least are forgotten first, because they gain least from that.
const budgetPrincipals = 4096

// budget limits the questions of a principal in a sliding window; a nil budget has no limit. It
// is safe for concurrent use.
type budget struct {
	limit int
	slot  time.Duration
	now   func() time.Time

	mu    sync.Mutex
	spent map[string]spend
}

// spend is the spending of a principal by slot number.
type spend map[int64]int

func newBudget(limit int, window time.Duration, now func() time.Time) *budget {
	if limit <= 0 {
		return nil
	}
	return &budget{limit: limit, slot: max(window/budgetSlots, 1), now: now, spent: map[string]spend{}}
}

// Spend spends n for a principal. If n exceeds the remaining budget, it spends nothing and returns how long
// to wait until it would succeed.
func (b *budget) Spend(principal string, n int) (ok bool, frees time.Duration) {
	if b == nil {
		return true, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.now()
	s, slot := b.spendOf(principal, b.slotNumber(at))
	// A request for more samples than the limit still gets one answer per window.
	if total := s.total(); total == 0 || total+n <= b.limit {
		s[slot] += n
		return true, 0
	}
	left := s.total()
	for _, number := range slices.Sorted(maps.Keys(s)) {
		left -= s[number]
		if left <= 0 || left+n <= b.limit {
			frees = time.Unix(0, (number+maxSlots)*int64(b.slot)).Sub(at)
			break
		}
	}
	return false, max(frees, 1)
}

func (b *budget) refund(principal string, n int) {
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.spent[principal]
	if !ok {
		return // forgotten in the meantime
	}
	s.forward(b.slotNumber(b.now()))
	// Give back to the newest used slots first: n was spent a moment ago.
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(s))) {
		back := min(n, s[number])
		s[number] -= back
		n -= back
	}
}

func (b *budget) slotNumber(at time.Time) int64 { return at.UnixNano() / int64(b.slot) }

// spendOf also returns the current slot.
func (b *budget) spendOf(principal string, number int64) (spend, int64) {
	s, ok := b.spent[principal]
	if !ok {
		if len(b.spent) >= budgetPrincipals {
			b.evict(number)
		}
		s = spend{}
		b.spent[principal] = s
	}
	return s, s.forward(number)
}

// evict forgets the principals without spending. If there are none, it forgets the eighth of all principals
// that spent least.
func (b *budget) evict(number int64) {
	maps.DeleteFunc(b.spent, func(_ string, s spend) bool {
		s.forward(number)
		return s.total() == 0
	})
	if len(b.spent) < budgetPrincipals {
		return
	}
	all := slices.SortedFunc(maps.Keys(b.spent), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.spent[x].total(), b.spent[y].total()), cmp.Compare(x, y))
	})
	for _, principal := range all[:budgetPrincipals/8] {
		delete(b.spent, principal)
	}
}

// forward drops the slots that no longer count and returns the newest. A clock that goes back
// frees nothing.
func (s spend) forward(number int64) int64 {
	for other := range s {
		number = max(number, other)
	}
	maps.DeleteFunc(s, func(other int64, _ int) bool { return other <= number-maxSlots })
	return number
}

func (s spend) total() int {
	sum := 0
	for _, n := range s {
		sum += n
	}
	return sum
}
