// Package memory keeps everything in memory: for tests, demonstrations and "--store memory". It guarantees what
// store.Store guarantees, except durability: closing the store or ending the process discards everything.
//
// It must never hand out memory that it keeps, so that callers cannot change recorded data.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Store is a store.Store in memory.
type Store struct {
	mu     sync.RWMutex
	closed bool
	contents
}

type contents struct {
	definitions  map[string][]store.Definition // by name, versions in order
	judgeConfigs map[string][][]byte           // by workflow, as JSON, revisions in order
	ruleHead     store.RuleHead
	instances    map[string]*history
	keys         map[string]eventKey // idempotency scope -> event
	reviews      map[string]review   // by id
	refusals     []store.Lesson      // in the order of their writes
	order        []eventKey          // of all events, in commit order; append-only
	anchors      []store.Anchor
	counters     map[string]counter // by name
	pruneAt      int                // expired counters are removed at this number of counters
	shared
}

// history is an instance with its events and snapshots. Both are append-only, except that truncate replaces them.
type history struct {
	now       record.Instance
	events    []record.Event
	snapshots []record.Instance // by revision
}

// eventKey identifies an event independently of removals at the beginning of its history.
type eventKey struct {
	instance string
	seq      int64
}

var _ store.Store = (*Store)(nil)

// New returns an empty Store.
func New() *Store {
	return &Store{contents: contents{
		definitions: map[string][]store.Definition{}, judgeConfigs: map[string][][]byte{},
		instances: map[string]*history{}, keys: map[string]eventKey{}, reviews: map[string]review{}, counters: map[string]counter{}, pruneAt: minPruneSize,
		shared: newShared(),
	}}
}

// Close discards everything. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.contents = true, contents{}
	return nil
}

func (s *Store) read(ctx context.Context, do func() error) error {
	return s.withLock(ctx, s.mu.RLocker(), do)
}

func (s *Store) write(ctx context.Context, do func() error) error { return s.withLock(ctx, &s.mu, do) }

// withLock runs do under a lock, unless the store is closed or ctx has ended.
func (s *Store) withLock(ctx context.Context, lock sync.Locker, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	lock.Lock()
	defer lock.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	return do()
}

// list yields the rows that find selects under the read lock; give copies each row.
func list[K, T any](ctx context.Context, s *Store, find func() []K, give func(K) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var kept []K
		var none T
		if err := s.read(ctx, func() error { kept = find(); return nil }); err != nil {
			yield(none, err)
			return
		}
		for _, k := range kept {
			if err := ctx.Err(); err != nil {
				yield(none, err)
				return
			}
			row, err := give(k)
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// limitList cuts a list to a limit; 0 means no limit.
func limitList[T any](all []T, limit int) []T {
	if limit != 0 && len(all) > limit {
		return all[:limit]
	}
	return all
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, id string) (inst record.Instance, err error) {
	err = s.read(ctx, func() error {
		h, ok := s.instances[id]
		if !ok {
			return fmt.Errorf("%w: instance %s", store.ErrNotFound, id)
		}
		inst = h.now.Clone()
		return nil
	})
	return inst, err
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, c store.Commit) error {
	if err := c.Check(); err != nil {
		return err
	}
	var err error
	events := make([]record.Event, len(c.Events))
	for i, e := range c.Events {
		if events[i], err = copyEvent(e); err != nil {
			return err
		}
	}
	reviews := make([]review, len(c.Reviews))
	for i, r := range c.Reviews {
		if reviews[i], err = encodeReview(r); err != nil {
			return err
		}
	}
	c.Events, c.Next = events, c.Next.Clone()
	if c.Floor != nil {
		floor := c.Floor.Clone()
		c.Floor = &floor
	}
	return s.write(ctx, func() error {
		err := s.checkLease(c.Lease)
		if !c.IsLesson() {
			err = s.append(c)
		}
		if err != nil {
			return err
		}
		for _, r := range reviews {
			s.reviews[r.place.ID] = r
		}
		s.storeLesson(c.Lesson)
		return nil
	})
}

// append writes the events of a commit, or returns an error without writing anything. Callers must hold the write
// lock.
func (s *Store) append(c store.Commit) error {
	for _, e := range c.Events {
		if e.Key == nil {
			continue
		}
		if _, taken := s.keys[e.Key.Scope]; taken {
			return store.ErrKeyTaken
		}
	}
	if err := s.checkLease(c.Lease); err != nil {
		return err
	}
	if c.Unanchored && len(s.anchors) > 0 {
		return fmt.Errorf("%w: there is an anchor", store.ErrConflict)
	}
	h := s.instances[c.Next.ID]
	if h == nil {
		h = &history{}
		if c.Next.Subject != "" && s.hasSubject(c.Next.Workflow, c.Next.Subject) {
			return store.ErrSubjectTaken
		}
	}
	if h.now.Seq != c.Expect || h.now.Head != c.Events[0].PrevHash {
		return fmt.Errorf("%w: instance %s is at event %d", store.ErrConflict, c.Next.ID, h.now.Seq)
	}
	for _, e := range c.Events {
		at := eventKey{c.Next.ID, e.Seq}
		if e.Key != nil {
			s.keys[e.Key.Scope] = at
		}
		h.events, s.order = append(h.events, e), append(s.order, at)
	}
	h.now = c.Next
	if c.Snapshot {
		h.snapshots = append(h.snapshots, c.Next)
	}
	s.instances[c.Next.ID] = h
	if c.Floor != nil {
		s.truncate(h, *c.Floor)
	}
	return nil
}

// hasSubject reports whether an instance has a subject. Callers must hold the lock.
func (s *Store) hasSubject(workflow, subject string) bool {
	for _, h := range s.instances {
		if h.now.Workflow == workflow && h.now.Subject == subject {
			return true
		}
	}
	return false
}

// truncate removes the events up to floor and makes floor the first snapshot. It creates new slices, because
// iterators may still use the old ones.
func (s *Store) truncate(h *history, floor record.Instance) {
	at := slices.IndexFunc(h.events, func(e record.Event) bool { return e.Seq > floor.Seq })
	for _, e := range h.events[:at] {
		if e.Key != nil {
			delete(s.keys, e.Key.Scope)
		}
	}
	h.events = slices.Clone(h.events[at:])
	h.snapshots = slices.DeleteFunc(slices.Clone(h.snapshots), func(i record.Instance) bool { return i.Revision <= floor.Revision })
	h.snapshots = slices.Insert(h.snapshots, 0, floor)
}

// eventAt returns an event with its history, and whether it still exists. Callers must hold the lock.
func (s *Store) eventAt(p eventKey) (e record.Event, of *history, there bool) {
	h := s.instances[p.instance]
	if h == nil || len(h.events) == 0 {
		return record.Event{}, nil, false
	}
	i := p.seq - h.events[0].Seq
	if i < 0 || i >= int64(len(h.events)) {
		return record.Event{}, nil, false
	}
	return h.events[i], h, true
}

// ByKey implements store.Store.
func (s *Store) ByKey(ctx context.Context, scope string) (out record.Event, err error) {
	err = s.read(ctx, func() error {
		e, _, there := s.eventAt(s.keys[scope])
		if !there {
			return fmt.Errorf("%w: idempotency key", store.ErrNotFound)
		}
		out, err = copyEvent(e)
		return err
	})
	return out, err
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return list(ctx, s, func() (found []*record.Event) {
		h, ok := s.instances[q.Instance]
		if !ok {
			return nil
		}
		for i := range h.events {
			e := &h.events[i]
			switch {
			case q.MaxRevision != 0 && e.Revision > q.MaxRevision, q.Limit != 0 && len(found) == q.Limit:
				return found
			case e.Seq > q.AfterSeq && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)):
				found = append(found, e)
			}
		}
		return found
	}, func(e *record.Event) (record.Event, error) { return copyEvent(*e) })
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context, id string, revision int64) (inst record.Instance, err error) {
	err = s.read(ctx, func() error {
		if h, ok := s.instances[id]; ok {
			for _, snapshot := range slices.Backward(h.snapshots) {
				if snapshot.Revision <= revision {
					inst = snapshot.Clone()
					return nil
				}
			}
		}
		return fmt.Errorf("%w: snapshot of %s at or below revision %d", store.ErrNotFound, id, revision)
	})
	return inst, err
}

// Instances implements store.Store.
func (s *Store) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	return list(ctx, s, func() (found []record.Instance) { // stored instances are never modified
		moved := map[string]bool{}
		if q.MovedAfter > 0 {
			for _, p := range s.order[min(q.MovedAfter, int64(len(s.order))):] {
				moved[p.instance] = true
			}
		}
		for _, h := range s.instances {
			i := h.now
			if (q.MovedAfter == 0 || moved[i.ID]) && (q.BeforeID == "" || i.ID < q.BeforeID) && (q.Workflow == "" || i.Workflow == q.Workflow) &&
				(q.State == "" || i.State == q.State) && (q.Status == "" || i.Status == q.Status) && (q.Owner == "" || i.Owner == q.Owner) &&
				(q.Subject == "" || i.Subject == q.Subject) && (!q.OpenCalls || len(i.Facts.Calls) > 0) {
				found = append(found, i)
			}
		}
		slices.SortFunc(found, func(a, b record.Instance) int { return cmp.Compare(b.ID, a.ID) })
		return limitList(found, q.Limit)
	}, func(i record.Instance) (record.Instance, error) {
		if q.Heads {
			return record.Instance{ID: i.ID, Seq: i.Seq, Head: i.Head}, nil
		}
		return i.Clone(), nil
	})
}

// copyEvent decodes an event from its stored form, as a durable driver would.
func copyEvent(e record.Event) (record.Event, error) {
	out, err := record.Decode(e.Body())
	if err != nil {
		return record.Event{}, fmt.Errorf("decode event %d of %s: %w", e.Seq, e.Instance, err)
	}
	out.PrevHash, out.Hash = e.PrevHash, e.Hash
	return out, nil
}

// LastPosition implements store.Store. Positions count events from 1.
func (s *Store) LastPosition(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, func() error { n = int64(len(s.order)); return nil })
	return n, err
}

// eventAtPosition returns the stored event at a position, and whether it still exists.
func (s *Store) eventAtPosition(ctx context.Context, position int64) (p store.PlacedEvent, there bool, err error) {
	err = s.read(ctx, func() error {
		e, of, ok := s.eventAt(s.order[position-1])
		if there = ok; ok {
			p = store.PlacedEvent{Position: position, Owner: of.now.Owner, Version: of.now.Version, Event: e}
		}
		return nil
	})
	return p, there, err
}

// EventsAfter implements store.Store.
func (s *Store) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		last, err := s.LastPosition(ctx)
		if q.UpTo != 0 {
			last = min(last, q.UpTo)
		}
		given := 0
		for at := max(q.After, 0) + 1; err == nil && at <= last; at++ {
			p, there, readErr := s.eventAtPosition(ctx, at)
			if err = readErr; err != nil || !there || q.Instance != "" && p.Event.Instance != q.Instance ||
				q.Workflow != "" && p.Event.Workflow != q.Workflow || q.Owner != "" && p.Owner != q.Owner {
				continue
			}
			if p.Event, err = copyEvent(p.Event); err != nil {
				break
			}
			if given++; !yield(p, nil) || given == q.Limit {
				return
			}
		}
		if err != nil {
			yield(store.PlacedEvent{}, err)
		}
	}
}

// scanInterval is the number of events between two calls of DecisionQuery.Looked.
const scanInterval = 64

// Figures implements store.Store.
func (s *Store) Figures(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.Figures, error] {
	q.Limit = 0
	return store.CountDecisions(s.Decisions(ctx, q))
}

// Decisions implements store.Store.
func (s *Store) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		at, err := s.LastPosition(ctx)
		if q.Before != 0 {
			at = min(at, q.Before-1)
		}
		given, matches := 0, q.Matcher()
		for ; err == nil && at > 0 && !q.Empty(); at-- {
			p, there, readErr := s.eventAtPosition(ctx, at)
			if err = readErr; err != nil {
				break
			}
			if there && matches(p.Event, p.Owner) {
				if p.Event, err = copyEvent(p.Event); err != nil {
					break
				}
				if given++; !yield(p, nil) || given == q.Limit {
					return
				}
			}
			if at%scanInterval == 0 && q.OnScan != nil && !q.OnScan(at) {
				return
			}
		}
		if err != nil {
			yield(store.PlacedEvent{}, err)
		}
	}
}

// AddAnchor implements store.Store.
func (s *Store) AddAnchor(ctx context.Context, a store.Anchor) error {
	return s.write(ctx, func() error {
		if err := s.checkLease(a.Lease); err != nil {
			return err
		}
		if have := int64(len(s.anchors)); a.Number != have+1 {
			return fmt.Errorf("%w: the last anchor is %d", store.ErrConflict, have)
		}
		if a.Number == 1 && s.cutSince(a.Seen) {
			return fmt.Errorf("%w: the beginning of a history has been removed since", store.ErrConflict)
		}
		s.anchors = append(s.anchors, cloneAnchor(a))
		return nil
	})
}

// cutSince reports whether the beginning of a history was removed above a position.
func (s *Store) cutSince(position int64) bool {
	return slices.ContainsFunc(s.order[min(max(position, 0), int64(len(s.order))):], func(p eventKey) bool {
		e, _, there := s.eventAt(p)
		return there && e.Kind == record.Truncated
	})
}

// Anchors implements store.Store.
func (s *Store) Anchors(ctx context.Context, after int64) iter.Seq2[store.Anchor, error] {
	return list(ctx, s, func() []store.Anchor {
		from := after
		if after == store.LastAnchor {
			from = int64(len(s.anchors)) - 1
		}
		return s.anchors[min(max(from, 0), int64(len(s.anchors))):]
	}, func(a store.Anchor) (store.Anchor, error) { return cloneAnchor(a), nil })
}

func cloneAnchor(a store.Anchor) store.Anchor {
	a.At, a.Heads, a.Seen, a.Lease = a.At.UTC(), bytes.Clone(a.Heads), 0, nil
	return a
}
