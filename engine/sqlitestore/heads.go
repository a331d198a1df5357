package sqlitestore

import (
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
	"github.com/gavel-mcp/gavel/internal/sharedcache"
)

// How much memory instances take, and how much of it those of one owner.
const (
	headBytes     = 16 << 20
	headBytesEach = 8 << 20
	// emptyHead is what an instance takes without its texts.
	emptyHead = 1 << 10
)

// heads answers what each move asks for from memory: instances, and where the chain of rules
// ends. It answers only while the index of the write-ahead log, which all processes share, is
// as it was when what it holds was the newest: nobody has committed since. What this process
// commits it takes over; what another one commits empties it (decision 0063).
//
// The lock is held while the index is compared, so that an answer is the state at that moment.
type heads struct {
	index *walIndex // nil where it cannot be seen: nothing is kept then

	mu         sync.Mutex
	stamp      stamp // of the state that is kept
	generation uint64
	committing bool // this process is in its COMMIT: whether it counts yet is not known
	instances  *sharedcache.Cache[string, record.Instance]
	ruleHead   *store.RuleHead
}

// committed is what a write has changed of what heads keeps.
type committed struct {
	next        record.Instance // without an ID it changed none
	keepContext bool            // the stored context was not written
	rules       bool
}

func newHeads(index *walIndex) *heads {
	h := &heads{index: index}
	h.reset(stamp{})
	return h
}

// reset forgets everything. What is read from now on is the state of a stamp. The caller
// holds the lock.
func (h *heads) reset(now stamp) {
	h.stamp, h.ruleHead = now, nil
	h.instances = sharedcache.New[string, record.Instance](headBytes, headBytesEach)
	h.generation++
}

// isCurrent reports whether what is kept is the newest, and forgets it when somebody else
// has committed. The caller holds the lock.
func (h *heads) isCurrent() bool {
	now, ok := h.index.read()
	if ok && now != h.stamp && !h.committing {
		h.reset(now)
	}
	return ok && now == h.stamp
}

// read gives look what is kept where it is the newest. The generation is what keep wants to
// know of a read from the file that begins after it; 0 is that it is not to be kept.
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

// keep has put keep what was read, unless anything was committed meanwhile.
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

// loadInstance loads an instance from memory, else with load.
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

// detachInstance returns a copy that shares the context alone, which nobody writes into: it can be
// large, and most moves leave it as it is.
func detachInstance(i record.Instance) record.Instance {
	context := i.Context
	i.Context = nil
	i = i.Clone()
	i.Context = context
	return i
}

// putInstance keeps an instance. The caller holds the lock.
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

// loadRuleHead loads the end of the chain of rules from memory, else with load.
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

// beforeCommit is called by the writer when it holds the lock of writing: nobody else
// commits before it has.
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

// afterCommit takes over what was committed, unless another process has committed since or
// the commit failed.
func (h *heads) afterCommit(done bool, changes []committed) {
	if h.index == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.committing = false
	now, ok := h.index.read()
	if !done || !ok || !now.isNextTo(h.stamp) {
		h.reset(stamp{})
		return
	}
	h.stamp = now
	h.generation++ // who reads meanwhile may have read what was before
	for _, c := range changes {
		h.take(c)
	}
}

// take takes over a change of this process. The caller holds the lock.
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

// newCommitted is what an instance is when it is loaded after a commit.
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

// stamp is the head of the index of the write-ahead log: SQLite changes it with every commit.
type stamp struct {
	words  [12]uint32
	folded int64 // when the database was written, while the log says nothing of itself
}

// The words of a stamp.
const (
	changeWord = 2 // counts commits
	initWord   = 3 // its first byte says that the index is set up
	saltWord   = 8 // and the next: made anew when the log begins anew; 0 for an empty log that had no begin
)

// isNextTo reports whether exactly one commit lies between two stamps.
func (s stamp) isNextTo(was stamp) bool {
	return was != stamp{} && s.words[changeWord] == was.words[changeWord]+1
}
