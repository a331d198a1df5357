// Package memstore keeps everything in memory: for tests, demonstrations and
// "--store memory". It promises what store.Store promises but durability:
// closing it, or the end of the process, forgets everything.
//
// It must never hand out memory that it keeps, so that a caller cannot change
// what was recorded.
package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Store is a store.Store in memory.
type Store struct {
	mu           sync.RWMutex
	closed       bool
	definitions  map[string][]store.Definition // by name, versions in order
	judgeConfigs map[string][][]byte           // by workflow, as JSON, revisions in order
	instances    map[string]*history
	keys         map[string]position // idempotency scope -> event
	reviews      map[string]review   // by id
	refusals     []store.Lesson      // in the order in which they were written
	order        []place             // of all events, as they were committed
	anchors      []store.Anchor
	ruleHead     store.RuleHead
}

// history is one instance with its events, only ever appended to.
type history struct {
	now       record.Instance
	removed   int // how many events are gone from the beginning
	events    []record.Event
	snapshots []record.Instance // by revision
}

type position struct {
	instance string
	index    int
}

var _ store.Store = (*Store)(nil)

// New returns an empty Store.
func New() *Store {
	return &Store{
		definitions: map[string][]store.Definition{}, judgeConfigs: map[string][][]byte{},
		instances: map[string]*history{}, keys: map[string]position{}, reviews: map[string]review{},
	}
}

// Close forgets everything. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.definitions, s.judgeConfigs, s.instances, s.keys, s.reviews, s.refusals, s.order, s.anchors = nil, nil, nil, nil, nil, nil, nil, nil
	s.ruleHead = store.RuleHead{}
	return nil
}

// read takes the read lock unless the store is closed or ctx has ended.
func (s *Store) read(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return nil, store.ErrClosed
	}
	return s.mu.RUnlock, nil
}

func (s *Store) write(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, store.ErrClosed
	}
	return s.mu.Unlock, nil
}

// AddDefinition implements store.Store.
func (s *Store) AddDefinition(ctx context.Context, d store.Definition) error {
	unlock, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if have := len(s.definitions[d.Name]); d.Version != have+1 {
		return fmt.Errorf("%w: %s is at version %d", store.ErrConflict, d.Name, have)
	}
	if !s.takePlace(d.Seal) {
		return fmt.Errorf("%w: place %d is not the next", store.ErrConflict, d.Seal.Place)
	}
	d.Document = bytes.Clone(d.Document)
	s.definitions[d.Name] = append(s.definitions[d.Name], d)
	return nil
}

// Definition implements store.Store.
func (s *Store) Definition(ctx context.Context, name string, version int) (store.Definition, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return store.Definition{}, err
	}
	defer unlock()
	all := s.definitions[name]
	if version == 0 {
		version = len(all)
	}
	if version < 1 || version > len(all) {
		return store.Definition{}, fmt.Errorf("%w: definition %s version %d", store.ErrNotFound, name, version)
	}
	d := all[version-1]
	d.Document = bytes.Clone(d.Document)
	return d, nil
}

// Definitions implements store.Store.
func (s *Store) Definitions(ctx context.Context) ([]store.Definition, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := make([]store.Definition, 0, len(s.definitions))
	for _, all := range s.definitions {
		d := all[len(all)-1]
		d.Document = nil
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b store.Definition) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// DefinitionNames implements store.Store.
func (s *Store) DefinitionNames(ctx context.Context) ([]string, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return slices.Sorted(maps.Keys(s.definitions)), nil
}

// AddJudgeConfig implements store.Store.
func (s *Store) AddJudgeConfig(ctx context.Context, c store.JudgeConfig) error {
	doc, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the judge config: %w", err)
	}
	unlock, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if have := len(s.judgeConfigs[c.Workflow]); c.Revision != have+1 {
		return fmt.Errorf("%w: the judge of %s is at revision %d", store.ErrConflict, c.Workflow, have)
	}
	if !s.takePlace(c.Seal) {
		return fmt.Errorf("%w: place %d is not the next", store.ErrConflict, c.Seal.Place)
	}
	s.judgeConfigs[c.Workflow] = append(s.judgeConfigs[c.Workflow], doc)
	return nil
}

// JudgeConfigs implements store.Store.
func (s *Store) JudgeConfigs(ctx context.Context, workflow string) ([]store.JudgeConfig, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := make([]store.JudgeConfig, len(s.judgeConfigs[workflow]))
	for i, doc := range s.judgeConfigs[workflow] {
		if err := json.Unmarshal(doc, &out[i]); err != nil {
			return nil, fmt.Errorf("decode the judge config: %w", err)
		}
	}
	return out, nil
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, id string) (record.Instance, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return record.Instance{}, err
	}
	defer unlock()
	h, ok := s.instances[id]
	if !ok {
		return record.Instance{}, fmt.Errorf("%w: instance %s", store.ErrNotFound, id)
	}
	return h.now.Clone(), nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, c store.Commit) error {
	return s.commit(ctx, c, func(*history) {})
}

// commit is Commit with what else happens to the history in the same step.
func (s *Store) commit(ctx context.Context, c store.Commit, and func(*history)) error {
	if err := record.CheckAppend(c.Expect, c.Events, c.Next); err != nil {
		if errors.Is(err, record.ErrTooLarge) {
			return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
		}
		return err
	}
	events := make([]record.Event, len(c.Events))
	for i, e := range c.Events {
		copied, err := copyEvent(e)
		if err != nil {
			return err
		}
		events[i] = copied
	}
	reviews, err := allAtRest(c.Reviews)
	if err != nil {
		return err
	}
	next := c.Next.Clone()
	unlock, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, e := range events {
		if e.Key == nil {
			continue
		}
		if _, taken := s.keys[e.Key.Scope]; taken {
			return store.ErrKeyTaken
		}
	}
	if c.Unanchored && len(s.anchors) > 0 {
		return fmt.Errorf("%w: there is an anchor", store.ErrConflict)
	}
	h := s.instances[c.Next.ID]
	if h == nil {
		h = &history{}
	}
	if h.now.Seq != c.Expect || h.now.Head != events[0].PrevHash {
		return fmt.Errorf("%w: instance %s is at event %d", store.ErrConflict, c.Next.ID, h.now.Seq)
	}
	for _, e := range events {
		if e.Key != nil {
			s.keys[e.Key.Scope] = position{c.Next.ID, h.removed + len(h.events)}
		}
		h.events = append(h.events, e)
		s.order = append(s.order, place{c.Next.ID, e.Seq})
	}
	h.now = next
	if c.Snapshot {
		h.snapshots = append(h.snapshots, next)
	}
	s.instances[c.Next.ID] = h
	and(h)
	for _, r := range reviews {
		s.reviews[r.place.ID] = r
	}
	s.learn(c.Lesson)
	return nil
}

// ByKey implements store.Store.
func (s *Store) ByKey(ctx context.Context, scope string) (record.Event, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return record.Event{}, err
	}
	defer unlock()
	p, ok := s.keys[scope]
	if !ok {
		return record.Event{}, fmt.Errorf("%w: idempotency key", store.ErrNotFound)
	}
	h := s.instances[p.instance]
	return copyEvent(h.events[p.index-h.removed])
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(record.Event{}, err)
			return
		}
		var all []record.Event
		if h, ok := s.instances[q.Instance]; ok {
			all = h.events[:len(h.events):len(h.events)] // events are only ever appended
		}
		unlock()
		given := 0
		for _, e := range all {
			if q.MaxRevision != 0 && e.Revision > q.MaxRevision || q.Limit != 0 && given == q.Limit {
				return
			}
			if e.Seq <= q.AfterSeq || (len(q.Kinds) > 0 && !slices.Contains(q.Kinds, e.Kind)) {
				continue
			}
			given++
			if err := ctx.Err(); err != nil {
				yield(record.Event{}, err)
				return
			}
			copied, err := copyEvent(e)
			if !yield(copied, err) || err != nil {
				return
			}
		}
	}
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context, id string, revision int64) (record.Instance, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return record.Instance{}, err
	}
	defer unlock()
	if h, ok := s.instances[id]; ok {
		for i := len(h.snapshots) - 1; i >= 0; i-- {
			if h.snapshots[i].Revision <= revision {
				return h.snapshots[i].Clone(), nil
			}
		}
	}
	return record.Instance{}, fmt.Errorf("%w: snapshot of %s at or below revision %d", store.ErrNotFound, id, revision)
}

// Instances implements store.Store.
func (s *Store) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	return func(yield func(record.Instance, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(record.Instance{}, err)
			return
		}
		var all []record.Instance // what is kept is never written again
		for _, h := range s.instances {
			if (q.BeforeID == "" || h.now.ID < q.BeforeID) && matchesInstance(h.now, q) {
				all = append(all, h.now)
			}
		}
		unlock()
		slices.SortFunc(all, func(a, b record.Instance) int { return strings.Compare(b.ID, a.ID) })
		if q.Limit != 0 && len(all) > q.Limit {
			all = all[:q.Limit]
		}
		for _, inst := range all {
			if err := ctx.Err(); err != nil {
				yield(record.Instance{}, err)
				return
			}
			if !yield(inst.Clone(), nil) {
				return
			}
		}
	}
}

func matchesInstance(i record.Instance, q store.InstanceQuery) bool {
	return (q.Workflow == "" || i.Workflow == q.Workflow) && (q.State == "" || i.State == q.State) &&
		(q.Status == "" || i.Status == q.Status) && (q.Owner == "" || i.Owner == q.Owner)
}

// copyEvent reads an event back from its stored form, as a durable driver would.
func copyEvent(e record.Event) (record.Event, error) {
	out, err := record.Decode(e.Body())
	if err != nil {
		return record.Event{}, fmt.Errorf("decode event %d of %s: %w", e.Seq, e.Instance, err)
	}
	out.PrevHash, out.Hash = e.PrevHash, e.Hash
	return out, nil
}
