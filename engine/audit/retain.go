package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// RetainRequest selects histories to shorten as the definitions of operators allow.
type RetainRequest struct {
	// Workflow limits it to one workflow; "" means all.
	Workflow string
	// DryRun reports what would be removed, and removes nothing.
	DryRun bool
	// Limit stops after that many histories; 0 means 10000.
	Limit int
	// ForgottenAfter is how long a cursor must stay unmoved, with newer events above it, to be reported as forgotten;
	// 0 means DefaultForgottenAfter. PassForgotten also removes events that only such cursors, or dead letters of
	// that age, need.
	ForgottenAfter time.Duration
	PassForgotten  bool
}

// RetainResult reports the shortened histories or, in a dry run, those that would be shortened.
type RetainResult struct {
	DryRun bool `json:"dryRun"`
	// Ended counts the ended instances that were examined, of workflows with a retention.
	Ended int `json:"ended"`
	// Events counts the events removed from all Histories.
	Events    int64      `json:"events"`
	Histories []Retained `json:"histories"` // never nil
	// Kept counts the histories that were not shortened, by reason (see the Kept constants).
	Kept map[string]int `json:"kept"`
	// Broken are instances whose history does not verify: it is evidence and is kept.
	Broken []string `json:"broken,omitempty"`
	// Forgotten are cursors that have not moved for too long.
	Forgotten []store.Cursor `json:"forgotten,omitempty"`
	// More is true if the limit was reached and another request is needed.
	More bool `json:"more,omitempty"`
}

// Retained is one history whose beginning was removed.
type Retained struct {
	ID       string    `json:"id"`
	Workflow string    `json:"workflow"`
	EndedAt  time.Time `json:"endedAt"`
	// UpTo is the seq of the last removed event, Events the number removed, Left the number left.
	UpTo   int64 `json:"upTo"`
	Events int64 `json:"events"`
	Left   int64 `json:"left"`
	// Pinned is why no more was removed; "" if only the end had to be kept.
	Pinned string `json:"pinned,omitempty"`
}

// Why a history was not shortened, or not further.
const (
	KeptNotDue     = "not_due"      // it ended too recently
	KeptDone       = "done"         // only the end is left
	KeptReview     = "review"       // a review is open
	KeptCall       = "call"         // a call is not settled
	KeptCheckpoint = "checkpoint"   // a checkpoint may be rolled back to
	KeptYoung      = "young"        // a retry may still be answered from it
	KeptRestored   = "restored"     // a later event restores it
	KeptRemoval    = "removal"      // it holds the record of an earlier removal
	KeptUnexported = "not_exported" // a reader with a cursor does not have it yet
	KeptMoved      = "moved"        // something happened to it in the meantime
	KeptBroken     = "broken"       // it does not verify, or differs from what was anchored
)

// defaultRetainLimit is the default of RetainRequest.Limit.
const defaultRetainLimit = 10_000

// Retain removes the beginning of the histories of instances that ended longer ago than the retention in the newest
// version of their definition, if an operator registered that version. The rest verifies and folds from a snapshot,
// and an event records the removal. Retain never removes:
//
//   - anything that a checkpoint needs, or the event that ended the instance
//   - anything of an instance that is running, has an open review or an unsettled call, or does not verify
//   - events that the reader of a cursor has not received yet
//
// The removal is signed with Config.Signer. Without such a note, no one could distinguish it from tampering by
// someone who can write the store. Without the key, Retain removes nothing from a store that has anchors
// (engine.CodeUnavailable). It also skips instances that differ from the anchors. A dry run needs no key.
func (a *Auditor) Retain(ctx context.Context, p engine.Principal, req RetainRequest) (RetainResult, error) {
	if err := engine.Authorize(p, engine.RightRetain); err != nil {
		return RetainResult{}, err
	}
	if req.Limit < 0 {
		return RetainResult{}, &engine.Error{Code: engine.CodeInvalidArgument, Path: "/limit", Message: "The limit is 1 or more.", Hint: "Leave it out for the default."}
	}
	req.Limit = cmp.Or(req.Limit, defaultRetainLimit)
	ctx = store.BulkRead(ctx)
	if err := a.checkMayRemove(ctx, req.DryRun); err != nil {
		return RetainResult{}, err
	}
	workflows, err := a.operatorDefinitions(ctx, p, req.Workflow)
	if err != nil {
		return RetainResult{}, err
	}
	run := retainer{Auditor: a, by: p, req: req, out: RetainResult{DryRun: req.DryRun, Histories: []Retained{}, Kept: map[string]int{}}}
	look := func(ctx context.Context) error { return run.findDue(ctx, workflows) }
	if req.DryRun {
		err = look(ctx)
	} else {
		err = a.lead(ctx, engine.JobRetain, look)
	}
	return run.out, err
}

func (r *retainer) findDue(ctx context.Context, workflows []*workflow.Definition) (err error) {
	if r.unexported, r.out.Forgotten, err = r.readUnexported(ctx, r.req); err != nil {
		return err
	}
	for _, d := range workflows {
		if d.Retention.Events <= 0 {
			continue
		}
		for _, status := range []record.Status{record.Complete, record.Cancelled} {
			if err := r.retainAll(ctx, d, status); err != nil {
				return err
			}
		}
	}
	return r.removeDue(ctx)
}

// operatorDefinitions returns the newest versions of the definitions that belong to operators,
// of one workflow, or of all for "".
func (a *Auditor) operatorDefinitions(ctx context.Context, p engine.Principal, name string) ([]*workflow.Definition, error) {
	names := []string{name}
	if name == "" {
		all, err := a.engine.List(ctx, p)
		if err != nil {
			return nil, err
		}
		names = names[:0]
		for _, d := range all {
			names = append(names, d.Name)
		}
	}
	var out []*workflow.Definition
	for _, name := range names {
		stored, d, err := a.engine.LoadDefinition(ctx, p, engine.RightRetain, name, 0)
		if err != nil {
			return nil, err
		}
		if stored.Operator {
			out = append(out, d)
		}
	}
	return out, nil
}

type retainer struct {
	*Auditor
	by  engine.Principal
	req RetainRequest
	out RetainResult
	// due are histories to shorten. They are processed in batches, because each batch must read all
	// anchors; dueEvents counts their events.
	due       []dueHistory
	dueEvents int

	unexported unexported
}

// dueHistory is a history that can be shortened, and why no further.
type dueHistory struct {
	inst   record.Instance
	whole  verifiedHistory
	upTo   int64
	pinned string
}

// The limits of a batch.
const (
	maxDue       = 1000
	maxDueEvents = 100_000
)

func (r *retainer) retainAll(ctx context.Context, d *workflow.Definition, status record.Status) error {
	for inst, err := range r.store.Instances(ctx, store.InstanceQuery{Workflow: d.Name, Status: status}) {
		if err != nil {
			return engine.StoreError("list the instances", err)
		}
		if len(r.out.Histories)+len(r.due) >= r.req.Limit {
			r.out.More = true
			return nil
		}
		if err := r.retainOne(ctx, inst, d.Retention); err != nil {
			return err
		}
	}
	return nil
}

func (r *retainer) retainOne(ctx context.Context, inst record.Instance, keep workflow.Retention) error {
	r.out.Ended++
	now := r.engine.Now()
	switch {
	case len(inst.Facts.Reviews) > 0:
		r.out.Kept[KeptReview]++
		return nil
	case len(inst.Facts.Calls) > 0:
		r.out.Kept[KeptCall]++
		return nil
	case now.Sub(inst.CreatedAt) < keep.Events: // it cannot have ended before it began
		r.out.Kept[KeptNotDue]++
		return nil
	}
	whole, err := r.verifyHistory(ctx, inst)
	if err != nil {
		return r.countKept(ctx, inst, err)
	}
	end := whole.lastEvent()
	if now.Sub(end.time) < keep.Events {
		r.out.Kept[KeptNotDue]++
		return nil
	}
	needed, err := r.unexported.firstUnread(ctx, inst.ID)
	if err != nil {
		return engine.StoreError("find the unexported events", err)
	}
	upTo, pinned := whole.findCut(now.Add(-workflow.MinRetention), needed)
	if upTo < whole.events[0].seq {
		r.out.Kept[pinned]++
		return nil
	}
	r.due = append(r.due, dueHistory{inst, whole, upTo, pinned})
	if r.dueEvents += len(whole.events); len(r.due) < maxDue && r.dueEvents < maxDueEvents {
		return nil
	}
	return r.removeDue(ctx)
}

func (r *retainer) removeDue(ctx context.Context) error {
	heads, err := r.loadAnchoredHeads(ctx, r.due)
	if err != nil {
		return err
	}
	for _, d := range r.due {
		err := d.whole.checkAnchored(d.inst.ID, heads[d.inst.ID])
		if err == nil && !r.req.DryRun {
			err = r.removeBeginning(ctx, d.inst, d.whole, d.upTo)
		}
		if err != nil {
			if err := r.countKept(ctx, d.inst, err); err != nil {
				return err
			}
			continue
		}
		r.recordRemoval(d)
	}
	r.due, r.dueEvents = nil, 0
	return nil
}

func (r *retainer) recordRemoval(d dueHistory) {
	gone := d.upTo - d.whole.events[0].seq + 1
	if d.pinned == KeptDone {
		d.pinned = ""
	}
	r.out.Events += gone
	r.out.Histories = append(r.out.Histories, Retained{
		ID: d.inst.ID, Workflow: d.inst.Workflow, EndedAt: d.whole.lastEvent().time, UpTo: d.upTo, Events: gone, Left: d.inst.Seq - d.upTo, Pinned: d.pinned,
	})
}

// countKept counts a history that was not shortened because of its state; other errors end the run.
func (r *retainer) countKept(ctx context.Context, inst record.Instance, err error) error {
	broken := errors.Is(err, record.ErrBroken) || errors.Is(err, record.ErrIllegalStep) || errors.Is(err, record.ErrNoRevision) ||
		errors.Is(err, record.ErrMalformed) || errors.Is(err, record.ErrUnknownKind)
	switch {
	case errors.Is(err, store.ErrConflict), broken && r.hasChanged(ctx, inst):
		r.out.Kept[KeptMoved]++
	case broken:
		r.out.Kept[KeptBroken]++
		r.out.Broken = append(r.out.Broken, inst.ID)
	default:
		return engine.StoreError("remove the beginning of a history", err)
	}
	return nil
}

// hasChanged reports whether an event was recorded since the instance was loaded. Its history may then
// have been shortened while it was read, and only looked broken.
func (r *retainer) hasChanged(ctx context.Context, inst record.Instance) bool {
	now, err := r.store.Load(ctx, inst.ID)
	return err == nil && now.Seq != inst.Seq
}

// verifiedHistory is a verified history, and the instance that it folds from: the zero Instance unless its
// beginning was removed earlier.
type verifiedHistory struct {
	floor  record.Instance
	events []verifiedEvent
}

type verifiedEvent struct {
	seq, revision int64
	time          time.Time
	kind          record.Kind
	restores      int64 // 0 if it restores nothing
	hash          string
}

func (r *retainer) verifyHistory(ctx context.Context, inst record.Instance) (verifiedHistory, error) {
	var out verifiedHistory
	var chain record.Chain
	for ev, err := range r.store.Events(ctx, store.EventQuery{Instance: inst.ID}) {
		if err != nil {
			return out, err
		}
		if ev.Seq > inst.Seq {
			return out, store.ErrConflict
		}
		if len(out.events) == 0 && ev.Seq > 1 {
			if out.floor, err = r.floorOf(ctx, ev); err != nil {
				return out, err
			}
			chain = record.NewChainFrom(out.floor)
		}
		if err := chain.Add(ev); err != nil {
			return out, err
		}
		e := verifiedEvent{seq: ev.Seq, revision: ev.Revision, time: ev.Time, kind: ev.Kind, hash: ev.Hash}
		if ev.Rollback != nil {
			e.restores = ev.Rollback.Restores
		}
		out.events = append(out.events, e)
	}
	if chain.Head() != inst.Head || chain.Seq() != inst.Seq {
		return out, &record.BrokenError{Instance: inst.ID, Seq: chain.Seq() + 1, How: "the history does not end at the instance's event"}
	}
	return out, nil
}

// floorOf returns the instance that the first remaining event follows: the snapshot that was made
// when the events before it were removed.
func (r *retainer) floorOf(ctx context.Context, first record.Event) (record.Instance, error) {
	cut, err := engine.LoadTruncation(ctx, r.store, first.Instance)
	if err != nil {
		return record.Instance{}, err
	}
	floor, err := r.store.Snapshot(ctx, first.Instance, cut.Revision)
	if errors.Is(err, store.ErrNotFound) || err == nil && (floor.Seq != first.Seq-1 || floor.Head != first.PrevHash) {
		return record.Instance{}, &record.BrokenError{Instance: first.Instance, Seq: first.Seq, How: "the beginning is missing, and no snapshot replaces it"}
	}
	return floor, err
}

// lastEvent returns the event that gave the instance its present state.
func (s verifiedHistory) lastEvent() verifiedEvent {
	for i := len(s.events) - 1; i >= 0; i-- {
		if s.events[i].kind.Revises() {
			return s.events[i]
		}
	}
	return s.events[0]
}

// findCut returns the seq of the last event that can be removed, and why no more can. Events after young
// are too recent; needed is the seq of the first event that a reader still needs. It is pure.
func (s verifiedHistory) findCut(young time.Time, needed int64) (upTo int64, pinned string) {
	upTo, pinned = s.lastEvent().seq-1, KeptDone
	lower := func(to int64, why string) {
		if to < upTo {
			upTo, pinned = to, why
		}
	}
	lower(needed-1, KeptUnexported)
	for _, e := range s.events {
		switch {
		case e.kind == record.Checkpointed:
			lower(e.seq-1, KeptCheckpoint)
		case e.kind == record.Truncated: // an unsigned removal must not be removed by a signed one
			lower(e.seq-1, KeptRemoval)
		case e.time.After(young):
			lower(e.seq-1, KeptYoung)
		}
	}
	// The history must still contain what a later event restores. Go backwards, because each event that
	// is kept for that may restore something itself.
	for i := len(s.events) - 1; i >= 0 && s.events[i].seq > upTo; i-- {
		if r := s.events[i].restores; r != 0 {
			lower(s.lastSeq(r), KeptRestored)
		}
	}
	return upTo, pinned
}

// lastSeq returns the seq of the last event at or below a revision.
func (s verifiedHistory) lastSeq(revision int64) int64 {
	last := s.floor.Seq
	for _, e := range s.events {
		if e.revision <= revision {
			last = e.seq
		}
	}
	return last
}

func (r *retainer) removeBeginning(ctx context.Context, inst record.Instance, whole verifiedHistory, upTo int64) error {
	first := whole.events[0].seq
	gone := r.store.Events(ctx, store.EventQuery{Instance: inst.ID, Limit: int(upTo - first + 1)})
	floor, err := record.FoldFrom(whole.floor, gone, 0)
	switch {
	case err != nil:
		return err
	case floor.Seq != upTo || floor.Head != whole.events[upTo-first].hash:
		return fmt.Errorf("%w: the fold ends at event %d", store.ErrConflict, floor.Seq)
	}
	ev := record.Event{
		Kind: record.Truncated, Time: r.engine.Now(), Principal: r.by.ID, Role: string(r.by.Role),
		Truncation: &record.Truncation{UpTo: upTo, Hash: floor.Head, Count: upTo, Revision: floor.Revision, Floor: record.DigestState(floor)},
	}
	if key := r.signer; key != nil {
		if ev.Truncation.Note, err = key.Sign(ev.Truncation.Text(inst.ID)); err != nil {
			return engine.InternalError("sign the removal", err)
		}
	}
	sealed, next, err := record.Seal(inst, ev, nil)
	if err != nil {
		return engine.InternalError("seal the event", err)
	}
	c := store.Commit{Expect: inst.Seq, Events: []record.Event{sealed}, Next: next, Floor: &floor, Unanchored: r.signer == nil, Lease: store.LeaseOf(ctx)}
	if err := r.store.Commit(ctx, c); err != nil {
		return err
	}
	r.engine.Publish(ctx, sealed)
	return nil
}

// checkMayRemove rejects any removal from an anchored store without the signing key: no one could tell later who removed
// the events.
func (a *Auditor) checkMayRemove(ctx context.Context, dryRun bool) error {
	if dryRun || a.signer != nil {
		return nil
	}
	_, err := store.First(a.store.Anchors(ctx, store.LastAnchor), "an anchor")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return engine.StoreError("read the last anchor", err)
	}
	return &engine.Error{
		Code: engine.CodeUnavailable, Message: "This store is anchored: a removal that is not signed with the anchor key looks like tampering.",
		Hint: "Pass the key with --anchor-key or in GAVEL_ANCHOR_KEY.",
	}
}

// loadAnchoredHeads returns the anchored heads of the due histories, by instance, and checks that the newest anchor
// covers them. Otherwise, signing a removal could hide that a history has been rewritten since. It returns nil if
// nothing is signed.
func (r *retainer) loadAnchoredHeads(ctx context.Context, due []dueHistory) (map[string][]record.Head, error) {
	if r.signer == nil || len(due) == 0 {
		return nil, nil //nolint:nilnil // nothing is anchored
	}
	heads := make(map[string][]record.Head, len(due))
	for _, d := range due {
		heads[d.inst.ID] = nil
	}
	var tree record.Tree
	var newest store.Anchor
	for a, err := range r.store.Anchors(ctx, 0) {
		if err != nil {
			return nil, engine.StoreError("read the anchors", err)
		}
		_, all, err := record.DecodeHeads(a.Heads)
		if err != nil {
			return nil, newAnchorError(err)
		}
		for _, h := range all {
			leaf, err := h.Leaf()
			if err != nil {
				return nil, newAnchorError(err)
			}
			tree.Append(leaf)
			if known, ok := heads[h.Instance]; ok {
				heads[h.Instance] = append(known, h)
			}
		}
		newest = a
	}
	if newest.Number == 0 {
		return heads, nil
	}
	return heads, r.checkSignature(newest, tree)
}

func (r *retainer) checkSignature(newest store.Anchor, tree record.Tree) error {
	text, err := record.OpenNote(newest.Note, r.signer.Verifier())
	if errors.Is(err, record.ErrSignature) {
		return &engine.Error{
			Code: engine.CodeUnavailable, Message: "The newest anchor was not signed with this key.",
			Hint: "Give the key that signs this store's anchors: the old one, until a new one has signed an anchor.", Err: err,
		}
	}
	var said record.Anchor
	if err == nil {
		said, err = record.ParseAnchor(text)
	}
	switch {
	case err != nil:
		return newAnchorError(err)
	case said.Size != tree.Size() || said.Root != tree.Root():
		return newAnchorError(fmt.Errorf("the heads stored with the anchors differ from those that anchor %d signs", said.Number))
	}
	return nil
}

// checkAnchored checks a history against its anchored heads. It leaves heads below an earlier removal to Verify,
// which checks them with the event that records the removal.
func (s verifiedHistory) checkAnchored(id string, heads []record.Head) error {
	first := s.events[0].seq
	for _, h := range heads {
		switch at := h.Seq - first; {
		case at < 0:
		case at >= int64(len(s.events)):
			return &record.BrokenError{Instance: id, Seq: h.Seq, How: "the anchored event is missing"}
		case s.events[at].hash != h.Hash:
			return &record.BrokenError{Instance: id, Seq: h.Seq, How: "it differs from the anchored event"}
		}
	}
	return nil
}
