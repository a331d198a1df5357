package listen

import (
	"maps"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestEvictionPoolIsFair checks that a crowd never exceeds its limit, counts correctly, and never evicts from a holder that
// would then have less than another one.
func TestEvictionPoolIsFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 20).Draw(t, "limit")
		c := newEvictionPool(limit)
		type held struct {
			*member
			key    string
			weight int64
			pins   int
		}
		in := map[int]*held{}
		sums := func() (all map[string]int64, total int64) {
			all = map[string]int64{}
			for _, h := range in {
				all[h.key] += h.weight
				total += h.weight
			}
			return all, total
		}
		pick := func() *held {
			ids := make([]int, 0, len(in))
			for id := range 1000 { // in order, so that a failure can be repeated
				if in[id] != nil {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				t.Skip("nothing is held")
			}
			return in[rapid.SampledFrom(ids).Draw(t, "member")]
		}
		newest, gaining := 0, ""
		evicted := func(id int) func() {
			return func() {
				h := in[id]
				if h.pins > 0 {
					t.Errorf("a pinned member was evicted")
				}
				all, _ := sums()
				for key, sum := range all {
					loose := false
					for _, other := range in {
						loose = loose || other.key == key && other.pins == 0
					}
					if loose && key != gaining && sum > all[h.key] && h.key != gaining {
						t.Errorf("%s lost one of %d, and %s has %d", h.key, all[h.key], key, sum)
					}
				}
				delete(in, id)
			}
		}
		key := rapid.Custom(func(t *rapid.T) string { return strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "key")) })
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				newest++
				gaining = key.Draw(t, "key")
				weight := rapid.Int64Range(0, 3).Draw(t, "weight")
				if m, ok := c.join(gaining, weight, evicted(newest)); ok {
					in[newest] = &held{m, gaining, weight, 0}
				}
			},
			"grow": func(t *rapid.T) {
				h := pick()
				gaining = h.key
				more := rapid.Int64Range(0, 3).Draw(t, "weight")
				if h.addWeight(more) {
					h.weight += more
				}
			},
			"rekey": func(t *rapid.T) {
				h := pick()
				h.key = key.Draw(t, "key")
				h.setHolder(h.key)
			},
			"touch": func(*rapid.T) { pick().renew() },
			"pin": func(t *rapid.T) {
				h := pick()
				if !h.pin() {
					t.Errorf("not pinned")
				}
				h.pins++
			},
			"unpin": func(*rapid.T) {
				if h := pick(); h.pins > 0 {
					h.pins--
					h.unpin()
				}
			},
			"leave": func(t *rapid.T) {
				gone := pick()
				if !gone.leave() || gone.leave() {
					t.Errorf("left not once")
				}
				maps.DeleteFunc(in, func(_ int, h *held) bool { return h == gone })
			},
			"": func(t *rapid.T) {
				all, total := sums()
				if got, _ := c.stats(); got != total || got > limit {
					t.Fatalf("holds %d, want %d of %d", got, total, limit)
				}
				for key, h := range c.holders {
					if h.sum != all[key] || h.members == 0 {
						t.Fatalf("%s holds %d in %d, want %d", key, h.sum, h.members, all[key])
					}
				}
			},
		})
	})
}
