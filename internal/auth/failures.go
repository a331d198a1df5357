package auth

import (
	"net/netip"
	"sync"
	"time"
)

// maxAddresses bounds the memory of failures. When more addresses than that fail within
// one span, all are forgotten: whoever has so many is not stopped by this anyway.
const maxAddresses = 10_000

// failures counts bad credentials by address, each in a span that begins with its first.
type failures struct {
	limit int
	span  time.Duration

	mu   sync.Mutex
	seen map[netip.Prefix]failing
}

type failing struct {
	since time.Time
	n     int
}

func newFailures(limit int, span time.Duration) *failures {
	return &failures{limit: limit, span: span, seen: map[netip.Prefix]failing{}}
}

// recordFailure counts one more and returns how long the address has to wait: 0 for not at all.
func (f *failures) recordFailure(from netip.Prefix, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.seen[from]
	if was.n == 0 || now.Sub(was.since) >= f.span {
		f.makeRoom(now)
		was = failing{since: now}
	}
	was.n++
	f.seen[from] = was
	if was.n <= f.limit {
		return 0
	}
	return f.span - now.Sub(was.since)
}

func (f *failures) makeRoom(now time.Time) {
	if len(f.seen) < maxAddresses {
		return
	}
	for from, was := range f.seen {
		if now.Sub(was.since) >= f.span {
			delete(f.seen, from)
		}
	}
	if len(f.seen) >= maxAddresses {
		clear(f.seen)
	}
}
