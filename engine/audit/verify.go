package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Break is the way in which recorded data has changed.
type Break string

// The kinds of breaks.
const (
	// BreakEdited: an event does not match its hash, or is not the one that the next event names.
	BreakEdited Break = "edited"
	// BreakDeleted: an event is missing from within a history, or from its beginning.
	BreakDeleted Break = "deleted"
	// BreakReordered: an event is in the place of another.
	BreakReordered Break = "reordered"
	// BreakInserted: an event exists that was never written.
	BreakInserted Break = "inserted"
	// BreakTruncated: the end of a history is missing.
	BreakTruncated Break = "truncated"
	// BreakSwapped: the history of another instance is in the place of this one.
	BreakSwapped Break = "swapped"
	// BreakAnchor: data differs from what was signed, or the signed anchors themselves have
	// changed.
	BreakAnchor Break = "anchor_mismatch"
	// BreakRolledBack: the store is older than an anchor that was published from it.
	BreakRolledBack Break = "rolled_back"
	// BreakMissing: an anchored instance does not exist.
	BreakMissing Break = "missing_instance"
	// BreakRow: data derived from the events or stored with them (the instance row, a snapshot, a
	// definition) does not match them.
	BreakRow Break = "row_mismatch"
	// BreakRule: a definition or judge configuration differs from its seal, was inserted, or is
	// missing.
	BreakRule Break = "untrusted_rule"
	// BreakUnreadable: the store itself cannot be read at this place.
	BreakUnreadable Break = "unreadable"
)

// Problem is one break.
type Problem struct {
	Instance string `json:"id,omitempty"`
	// Seq is the event at which it breaks, 0 if it concerns the whole instance.
	Seq int64 `json:"seq,omitempty"`
	// Anchor is the number of the anchor that proves it, 0 if none is needed.
	Anchor int64 `json:"anchor,omitempty"`
	Kind   Break `json:"kind"`
	// Message is one sentence.
	Message string `json:"message"`
}

// VerifyRequest selects what to verify, and against what.
type VerifyRequest struct {
	// Instance is the instance to verify, "" for the whole store. The chain of anchors is verified in
	// both cases.
	Instance string
	// Keys are the keys that may have signed anchors; without any, signatures are not checked.
	Keys []*record.Verifier
	// Published are notes of anchors that were kept outside the store, in any order; nil skips this
	// check. An empty list is a problem.
	Published []string
	// Jobs is how many instances are verified in parallel; 0 means the number of processors.
	Jobs int
	// Progress, if not nil, is called from time to time with the verified totals. Calls do not
	// overlap.
	Progress func(instances, events int64)
}

// VerifyReport is the result of Verify.
type VerifyReport struct {
	Instances int64 `json:"instances"`
	Events    int64 `json:"events"`
	// Shortened counts histories with a recorded removal of their beginning.
	Shortened int64 `json:"shortened"`
	Anchors   int64 `json:"anchors"`
	// Signed is true if the signatures of the anchors were checked.
	Signed bool `json:"signed"`
	// Published counts notes from outside the store that were compared with it.
	Published int `json:"published"`
	// AnchoredAt is the time of the newest anchor. Unanchored counts the verified events that no anchor
	// covers: only their hash chain protects them.
	AnchoredAt *time.Time `json:"anchoredAt,omitempty"`
	Unanchored int64      `json:"unanchored"`
	// Rules counts the definitions and judge configurations. RuleKey is true if their seals were checked
	// with the key. UnanchoredRules counts the rules that no anchor covers.
	Rules           int64 `json:"rules"`
	RuleKey         bool  `json:"ruleKey"`
	UnanchoredRules int64 `json:"unanchoredRules"`
	// Problems are sorted by instance and event. More counts the problems after the first 1000.
	Problems []Problem `json:"problems"`
	More     int64     `json:"more,omitempty"`
}

// Clean reports whether there are no problems.
func (r VerifyReport) Clean() bool { return len(r.Problems) == 0 }

// The limits of a report.
const (
	maxProblems    = 1000
	progressEvents = 1000
)

// Verify reads the whole store, or one instance, and reports everything that has changed since it was written. It
// checks every hash, the hash chains, and every instance and snapshot against the fold of its events. It also checks
// the anchors: their signatures, their tree, and their heads against every history.
//
// It changes nothing. It needs memory only for the rollbacks of the longest history, the changes between two anchors,
// and about fifty bytes for each instance. The store may be in use. Instances are read from the newest down, so an
// instance that starts in the meantime is not counted in this run but verified in the next.
//
// Only operators and auditors may call it. An error means that verification could not be completed;
// broken data is in the report.
func (a *Auditor) Verify(ctx context.Context, p engine.Principal, req VerifyRequest) (VerifyReport, error) {
	if err := engine.Authorize(p, engine.RightVerify); err != nil {
		return VerifyReport{}, err
	}
	configs, err := lru.New[string, bool](maxConfigs)
	if err != nil {
		return VerifyReport{}, err
	}
	v := &verification{
		engine: a.engine, store: a.store, req: req, broken: map[string]bool{}, definitions: map[string]string{},
		configs: configs, rules: map[int64]string{},
		unsigned: map[string][]int64{}, extents: map[uint64]extent{}, seed: maphash.MakeSeed(),
	}
	if v.req.Jobs < 1 {
		v.req.Jobs = runtime.GOMAXPROCS(0)
	}
	if err := v.run(store.BulkRead(ctx)); err != nil {
		return VerifyReport{}, err
	}
	return v.result(), nil
}

type verification struct {
	engine *engine.Engine
	store  store.Store
	req    VerifyRequest

	instances, events, shortened atomic.Int64

	mu           sync.Mutex
	report       VerifyReport
	broken       map[string]bool // instances with a problem in their history
	absent       bool            // the requested instance does not exist
	reported     int64           // events at the last call of Progress
	definitions  map[string]string
	configs      *lru.Cache[string, bool] // whether the judge configurations that events name exist
	unsigned     map[string][]int64       // truncated events that no key signed, by instance
	extents      map[uint64]extent        // how far histories go, by a hash of the instance's id, because there are many
	seed         maphash.Seed
	rules        map[int64]string // the hashes of the chain of rules, by place
	ruleEnd      int64            // the last place
	ruleAnchored int64            // the last place that an anchor covers
}

// extent is the last seq of a history, and the last seq that an anchor covers.
type extent struct{ last, lastAnchored int64 }

func (v *verification) run(ctx context.Context) error {
	checks := []func(context.Context) error{v.checkInstances, v.checkDefinitions, v.checkRules, v.checkAnchors}
	if id := v.req.Instance; id != "" {
		checks = []func(context.Context) error{func(ctx context.Context) error { return v.checkInstance(ctx, id) }, v.checkAnchors}
	}
	for _, check := range checks {
		if err := check(ctx); err != nil {
			return err
		}
	}
	if v.absent && v.report.Problems == nil {
		return engine.UnknownInstance(v.req.Instance)
	}
	return nil
}

func (v *verification) checkInstances(ctx context.Context) error {
	return v.eachHead(ctx, func(yield func(record.Head, error) bool) {
		for inst, err := range v.store.Instances(ctx, store.InstanceQuery{Heads: true}) {
			if !yield(headOf(inst), err) {
				return
			}
		}
	}, func(ctx context.Context, h record.Head) error { return v.checkInstance(ctx, h.Instance) })
}

func (v *verification) result() VerifyReport {
	r := v.report
	r.RuleKey = v.engine.HasRuleKey()
	if v.ruleEnd > 0 {
		r.UnanchoredRules = max(0, v.ruleEnd-v.ruleAnchored)
	}
	r.Instances, r.Events, r.Shortened = v.instances.Load(), v.events.Load(), v.shortened.Load()
	if r.Problems == nil {
		r.Problems = []Problem{}
	}
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Anchor, b.Anchor))
	})
	return r
}

func (v *verification) addProblem(p Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Instance != "" && p.Kind != BreakRow { // a row problem does not affect the events
		v.broken[p.Instance] = true
	}
	if len(v.report.Problems) == maxProblems {
		v.report.More++
		return
	}
	v.report.Problems = append(v.report.Problems, p)
}

func (v *verification) isWhole(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.broken[id]
}

// recordExtent records how far a history goes, and which of its truncated events are unsigned.
func (v *verification) recordExtent(row record.Instance, unsigned []int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := maphash.String(v.seed, row.ID)
	r := v.extents[key]
	r.last = row.Seq
	v.extents[key] = r
	if len(unsigned) > 0 {
		v.unsigned[row.ID] = unsigned
	}
}

func (v *verification) recordAnchored(h record.Head) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := maphash.String(v.seed, h.Instance)
	if r, known := v.extents[key]; known { // an instance that does not exist has no unanchored events
		r.lastAnchored = max(r.lastAnchored, h.Seq)
		v.extents[key] = r
	}
}

func (v *verification) countUnanchored() (n int64) {
	for _, r := range v.extents {
		n += max(0, r.last-r.lastAnchored)
	}
	return n
}

// findUnsignedAbove returns the seq of an unsigned truncated event above a head, 0 if there is none.
func (v *verification) findUnsignedAbove(h record.Head) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, seq := range v.unsigned[h.Instance] {
		if seq > h.Seq {
			return seq
		}
	}
	return 0
}

func (v *verification) reportProgress(events int64) {
	v.instances.Add(1)
	total := v.events.Add(events)
	if v.req.Progress == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if total-v.reported >= progressEvents || v.reported == 0 {
		v.reported = total
		v.req.Progress(v.instances.Load(), total)
	}
}

// eachHead calls do for all heads, a few in parallel, and stops at the first error. If the store
// cannot list the heads because of damage, that is a problem.
func (v *verification) eachHead(ctx context.Context, all iter.Seq2[record.Head, error], do func(context.Context, record.Head) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan record.Head)
	var workers sync.WaitGroup
	for range v.req.Jobs {
		workers.Go(func() {
			for h := range queue {
				if err := do(ctx, h); err != nil {
					cancel(err)
				}
			}
		})
	}
	var unlisted error
	for h, err := range all {
		if err != nil {
			unlisted = v.problemOf(err, Problem{}, "the list of instances")
			break
		}
		select {
		case queue <- h:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(queue)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return engine.StoreError("be verified", cause)
	}
	return unlisted
}

// isDamage reports whether an error is about the stored data and not about access to it.
func isDamage(err error) bool {
	return errors.Is(err, store.ErrDamaged) || isUndecodable(err)
}

// isUndecodable reports whether an error is about the bytes of an event.
func isUndecodable(err error) bool {
	return errors.Is(err, record.ErrMalformed) || errors.Is(err, record.ErrUnknownKind) || errors.Is(err, record.ErrOtherSchema)
}

// problemOf adds a problem for an error about damaged data, and returns any other error.
func (v *verification) problemOf(err error, at Problem, what string) error {
	if !isDamage(err) {
		return engine.StoreError("be verified", err)
	}
	at.Kind, at.Message = BreakUnreadable, fmt.Sprintf("%s cannot be read: %v", what, err)
	v.addProblem(at)
	return nil
}
