package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// sight defines which instances a caller sees: agents see their own and those of shared workflows, other
// roles see all.
type sight struct {
	p      Principal
	shared []string // the workflows whose instances agents share, sorted
}

// canSee reports whether the caller sees an instance. It reads the definition only for an instance of
// another agent.
func (lib *library) canSee(ctx context.Context, p Principal, inst record.Instance) (bool, error) {
	if (sight{p: p}).sees(inst.Workflow, inst.Owner) || !p.InScope(inst.Workflow) {
		return p.InScope(inst.Workflow), nil
	}
	return lib.IsShared(ctx, inst.Workflow)
}

// checkOwner rejects an operation that only the owner of a shared instance may perform, if another agent asks
// for it.
func checkOwner(inst instance, op Right) error {
	if seesAll(inst.by.Role) || inst.Owner == inst.by.ID {
		return nil
	}
	return newError(CodeForbidden, "", "The instance belongs to another principal; only its owner or an operator may %s.", op.verb()).
		withHint("Ask its owner or an operator, or perform one of nextActions.")
}

// loadSight returns what the caller can see at present.
func (lib *library) loadSight(ctx context.Context, p Principal) (sight, error) {
	if seesAll(p.Role) {
		return sight{p: p}, nil
	}
	shared, err := lib.listShared(ctx)
	return sight{p, slices.DeleteFunc(shared, func(name string) bool { return !p.InScope(name) })}, err
}

func (s sight) isShared(workflow string) bool {
	_, shared := slices.BinarySearch(s.shared, workflow)
	return shared
}

// sees reports whether the caller sees an owner's instances of a workflow.
func (s sight) sees(workflow, owner string) bool {
	return s.p.InScope(workflow) && (seesAll(s.p.Role) || owner == s.p.ID || s.isShared(workflow))
}

// listPart selects one of the lists that are merged into a caller's list. An empty field matches every value.
type listPart struct{ workflow, owner string }

// listParts returns the parts to list for a caller that asks for the instances of a workflow and an owner.
// Stores have an index for each form of part. The first part may also contain rows of the others.
func (s sight) listParts(workflow, owner string) (all []listPart) {
	if seesAll(s.p.Role) || workflow != "" && s.isShared(workflow) {
		return []listPart{{workflow, owner}}
	}
	if owner == "" || owner == s.p.ID {
		all = append(all, listPart{workflow, s.p.ID})
	}
	if workflow == "" && owner != s.p.ID {
		for _, shared := range s.shared {
			all = append(all, listPart{shared, owner})
		}
	}
	return all
}

// mergeParts merges the lists of the parts, each of which is sorted by compare, and returns each row once.
func mergeParts[T any](parts []listPart, list func(listPart) iter.Seq2[T, error], compare func(a, b T) int) iter.Seq2[T, error] {
	if len(parts) == 1 {
		return list(parts[0])
	}
	return func(yield func(T, error) bool) {
		type head struct {
			next func() (T, error, bool)
			row  T
		}
		var heads []*head
		advance := func(h *head) (ok bool) {
			row, err, there := h.next()
			switch {
			case !there:
				heads = slices.DeleteFunc(heads, func(other *head) bool { return other == h })
			case err != nil:
				yield(row, err)
				return false
			}
			h.row = row
			return true
		}
		for _, p := range parts {
			next, stop := iter.Pull2(list(p))
			defer stop()
			heads = append(heads, &head{next: next})
		}
		for _, h := range slices.Clone(heads) {
			if !advance(h) {
				return
			}
		}
		for len(heads) > 0 {
			first := slices.MinFunc(heads, func(a, b *head) int { return compare(a.row, b.row) }).row
			if !yield(first, nil) {
				return
			}
			for _, h := range slices.Clone(heads) {
				if compare(h.row, first) == 0 && !advance(h) {
					return
				}
			}
		}
	}
}

// newestFirst is the order of instance lists.
func newestFirst(a, b record.Instance) int { return strings.Compare(b.ID, a.ID) }

// earliestFirst is the order of Tail.
func earliestFirst(a, b store.PlacedEvent) int { return cmp.Compare(a.Position, b.Position) }

// mostUrgentFirst is the order of review lists.
func mostUrgentFirst(a, b store.Review) int {
	return cmp.Or(cmp.Compare(b.Priority.Rank(), a.Priority.Rank()), strings.Compare(a.ID, b.ID))
}

// latestFirst is the order of a search. If the search of a part ended early, the part ends with a marker: an
// event without a kind, at the position where the search stopped. The marker sorts after an event at the same
// position.
func latestFirst(a, b store.PlacedEvent) int {
	ends := func(e store.PlacedEvent) int { return min(len(e.Event.Kind), 1) }
	return cmp.Or(cmp.Compare(b.Position, a.Position), cmp.Compare(ends(b), ends(a)))
}

// mergeDecisions returns the decisions of the parts, newest first. If the search of a part ended early, the
// last step is a call of q.OnScan with the position where it stopped.
func (past history) mergeDecisions(ctx context.Context, q store.DecisionQuery, parts []listPart) iter.Seq2[store.PlacedEvent, error] {
	find := func(p listPart) iter.Seq2[store.PlacedEvent, error] {
		q := q
		q.Workflow, q.Owner = p.workflow, p.owner
		return past.store.Decisions(ctx, q)
	}
	if len(parts) == 1 || q.OnScan == nil {
		return mergeParts(parts, find, latestFirst)
	}
	looked := q.OnScan
	merged := mergeParts(parts, func(p listPart) iter.Seq2[store.PlacedEvent, error] {
		return func(yield func(store.PlacedEvent, error) bool) {
			q, end := q, int64(-1)
			q.Workflow, q.Owner = p.workflow, p.owner
			q.OnScan = func(position int64) bool {
				if !looked(position) {
					end = position
				}
				return end < 0
			}
			for ev, err := range past.store.Decisions(ctx, q) {
				if !yield(ev, err) {
					return
				}
			}
			if end >= 0 {
				yield(store.PlacedEvent{Position: end}, nil)
			}
		}
	}, latestFirst)
	return func(yield func(store.PlacedEvent, error) bool) {
		for ev, err := range merged {
			if err == nil && ev.Event.Kind == "" {
				looked(ev.Position)
				return
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// sharing caches which versions of definitions let agents share their instances. It is safe for concurrent use.
type sharing struct {
	mu    sync.Mutex
	known map[string]sharedVersion // by workflow; each value is about its newest operator-made version
}

type sharedVersion struct {
	version int
	shared  bool
}

// IsShared reports whether agents share the instances of a workflow. Its newest operator-made definition
// decides, whatever version an instance is pinned to.
func (lib *library) IsShared(ctx context.Context, name string) (bool, error) {
	version, err := lib.rules.findNewestOperatorVersion(ctx, name)
	if err != nil {
		return false, hideUntrusted(StoreError("read the definition", err))
	}
	return lib.isVersionShared(ctx, name, version)
}

// hideUntrusted drops the error for a definition that differs from what gavel sealed: such a definition
// shares nothing.
func hideUntrusted(err error) error {
	if CodeOf(err) == CodeUntrustedRules {
		return nil
	}
	return err
}

// listShared returns the workflows whose instances agents share, sorted.
func (lib *library) listShared(ctx context.Context) (shared []string, err error) {
	newest, err := lib.rules.listOperatorVersions(ctx)
	if err != nil {
		return nil, hideUntrusted(StoreError("list the definitions", err))
	}
	for name, version := range newest {
		is, err := lib.isVersionShared(ctx, name, version)
		if err != nil {
			return nil, err
		}
		if is {
			shared = append(shared, name)
		}
	}
	slices.Sort(shared)
	return shared, nil
}

// isVersionShared reports whether a version lets agents share its instances. It caches the result, and parses
// only versions whose document contains the value "shared".
func (lib *library) isVersionShared(ctx context.Context, name string, version int) (bool, error) {
	if version == 0 {
		return false, nil
	}
	s := &lib.sharing
	s.mu.Lock()
	known, ok := s.known[name]
	s.mu.Unlock()
	if ok && known.version == version {
		return known.shared, nil
	}
	stored, err := lib.rules.loadDefinition(ctx, name, version)
	is := err == nil && bytes.Contains(stored.Document, []byte(`"`+workflow.AccessShared+`"`))
	if is {
		var l definition
		l, err = lib.loadDefinition(ctx, name, version)
		is = err == nil && l.def.Access == workflow.AccessShared
	}
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return false, hideUntrusted(StoreError("read the definition", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]sharedVersion{}
	}
	if s.known[name].version <= version {
		s.known[name] = sharedVersion{version, is}
	}
	return is, nil
}
