package sqlite

import (
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
	"github.com/gavel-mcp/gavel/internal/sharedcache"
)

// The memory that cached instances may take, in bytes: in total, and for each owner.
const (
	headBytes     = 16 << 20
	headBytesEach = 8 << 20
	// emptyHead is the approximate size of an instance without its texts.
	emptyHead = 1 << 10
)

// heads caches the data that every move needs: instances, and the end of the chain of rules. The cache is valid while
// the index of the write-ahead log is unchanged. All processes share that index, and every commit changes it. Commits
// of this process update the cache; commits of other processes empty it (decision 0029).
//
// The lock is held while the index is compared, so that a cached result is the state at that moment.
type heads struct {
	index *walIndex // nil if it cannot be mapped: nothing is cached then

	mu         sync.Mutex
	stamp      stamp // of the cached state
	generation uint64
	committing bool // a COMMIT of this process is running; it may or may not have taken effect
	instances  *sharedcache.Cache[string, record.Instance]
	ruleHead   *store.RuleHead
}

// committed is a write's change to the data that heads caches.
type committed struct {
	next        record.Instance // its ID is "" if no instance changed
	keepContext bool            // the write left the stored context as it was
	rules       bool            // the chain of rules changed
}

func newHeads(index *walIndex) *heads {
	h := &heads{index: index}
	h.reset(stamp{})
	return h
}

// reset empties the cache. Entries added afterwards belong to the stamp now. Callers must hold the lock.
func (h *heads) reset(now stamp) {
	h.stamp, h.ruleHead = now, nil
	h.instances = sharedcache.New[string, record.Instance](headBytes, headBytesEach)
	h.generation++
}

// isCurrent reports whether the cache is current, and empties it if another process has committed. Callers must hold
// the lock.
func (h *heads) isCurrent() bool {
	now, ok := h.index.read()
	if ok && now != h.stamp && !h.committing {
		h.reset(now)
	}
	return ok && now == h.stamp
}

// read calls look if the cache is current, and returns the generation. A caller that then reads from the file passes
// the generation to keep; 0 means that the result must not be cached.
func (h *heads) read(look func()) (generation uint64) {
	if h == nil || h.index == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isCurrent() {
		return 0
	}
	look()
	return h.generation
}

// keep calls put to cache the result of a read, unless something was committed since.
func (h *heads) keep(generation uint64, put func()) {
	if generation == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isCurrent() && !h.committing && h.generation == generation {
		put()
	}
}

// loadInstance returns an instance from the cache, or else from load.
func (h *heads) loadInstance(id string, load func() (record.Instance, error)) (record.Instance, error) {
	var inst record.Instance
	var ok bool
	generation := h.read(func() { inst, ok = h.instances.Get(id) })
	if ok {
		return detachInstance(inst), nil
	}
	inst, err := load()
	if err == nil && generation != 0 {
		own := detachInstance(inst)
		h.keep(generation, func() { h.putInstance(own) })
	}
	return inst, err
}

// detachInstance returns a copy that shares only the context, which no one modifies. The context can be large, and
// most moves leave it unchanged.
func detachInstance(i record.Instance) record.Instance {
	context := i.Context
	i.Context = nil
	i = i.Clone()
	i.Context = context
	return i
}

// putInstance caches an instance. Callers must hold the lock.
func (h *heads) putInstance(i record.Instance) {
	bytes := emptyHead + len(i.Context)
	for _, texts := range [][]string{i.Facts.Visited, i.Facts.Frozen} {
		bytes += 16 * len(texts)
		for _, text := range texts {
			bytes += len(text)
		}
	}
	for action, who := range i.Facts.Performed {
		bytes += 100 + len(action)
		for _, p := range who {
			bytes += 16 + len(p)
		}
	}
	bytes += 500 * (len(i.Facts.Reviews) + len(i.Facts.Calls) + len(i.Facts.Grants) + len(i.Facts.Called))
	h.instances.Put(i.ID, i.Owner, bytes, i)
}

// loadRuleHead returns the end of the chain of rules from the cache, or else from load.
func (h *heads) loadRuleHead(load func() (store.RuleHead, error)) (store.RuleHead, error) {
	var known *store.RuleHead
	generation := h.read(func() { known = h.ruleHead })
	if known != nil {
		return *known, nil
	}
	head, err := load()
	if err == nil {
		h.keep(generation, func() { h.ruleHead = &head })
	}
	return head, err
}

// beforeCommit is called by the writer while it holds the write lock, so that no other process can commit in between.
func (h *heads) beforeCommit() {
	if h.index == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isCurrent() {
		h.reset(stamp{})
	}
	h.committing = true
}

// afterCommit applies the committed changes to the cache, unless the commit failed or another process has committed
// since.
func (h *heads) afterCommit(done bool, changes []committed) {
	if h.index == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.committing = false
	now, ok := h.index.read()
	if !done || !ok || !now.follows(h.stamp) {
		h.reset(stamp{})
		return
	}
	h.stamp = now
	h.generation++ // concurrent reads may have seen the old state
	for _, c := range changes {
		h.take(c)
	}
}

// take applies a change of this process. Callers must hold the lock.
func (h *heads) take(c committed) {
	if c.rules {
		h.ruleHead = nil
	}
	if c.next.ID == "" {
		return
	}
	if c.keepContext {
		was, ok := h.instances.Get(c.next.ID)
		if !ok {
			return
		}
		c.next.Context = was.Context
	}
	h.putInstance(c.next)
}

// newCommitted returns the change of a pending write. Its instance is as it would be loaded after the commit.
func newCommitted(p *pending) committed {
	next := p.Next
	keepContext := p.Expect != 0 && p.Context == nil
	if keepContext {
		next.Context = nil
	}
	next = next.Clone()
	next.CreatedAt, next.UpdatedAt = rows.TimeOf(next.CreatedAt.UnixNano()), rows.TimeOf(next.UpdatedAt.UnixNano())
	return committed{next: next, keepContext: keepContext}
}

// stamp is the header of the index of the write-ahead log. SQLite changes it with every commit.
type stamp struct {
	words          [12]uint32
	checkpointedAt int64 // when the database file was last written, in Unix nanoseconds; only set for an empty log, whose header does not show commits
}

// Indexes of words in a stamp.
const (
	changeWord = 2 // commit counter
	initWord   = 3 // its first byte is set once the index is initialised
	saltWord   = 8 // this word and the next change when the log restarts; both are 0 for an empty log that was never started
)

// follows reports whether there was exactly one commit between two stamps.
func (s stamp) follows(was stamp) bool {
	return was != stamp{} && s.words[changeWord] == was.words[changeWord]+1
}
