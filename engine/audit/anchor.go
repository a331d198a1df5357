package audit

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// AnchorResult is an anchor that was written, or the newest existing one if nothing has happened
// since.
type AnchorResult struct {
	Number int64     `json:"number"` // 0: no anchor exists, and there is nothing to anchor
	At     time.Time `json:"at"`
	// Instances counts the instances that this anchor adds, Events all events ever recorded.
	Instances int    `json:"instances"`
	Events    int64  `json:"events"`
	Note      string `json:"note"`
	// Written is false if there was nothing to add.
	Written bool `json:"written"`
}

// anchorAttempts limits how often an anchor is started again because a history was shortened
// in the meantime.
const anchorAttempts = 5

// Anchor signs the heads of all instances. It adds those that have moved since the last anchor to the tree whose root
// is signed, so that the newest anchor covers all instances. Only operators may call it, and it needs Config.Signer.
func (a *Auditor) Anchor(ctx context.Context, p engine.Principal) (AnchorResult, error) {
	if err := engine.Authorize(p, engine.RightAnchor); err != nil {
		return AnchorResult{}, err
	}
	if a.signer == nil {
		return AnchorResult{}, &engine.Error{
			Code: engine.CodeUnavailable, Message: "No signing key for anchors is configured.",
			Hint: "Create one with gavel anchor keygen, keep it away from the store, and pass it with --anchor-key.",
		}
	}
	var result AnchorResult
	err := a.lead(store.BulkRead(ctx), engine.JobAnchor, func(ctx context.Context) (err error) {
		for range anchorAttempts {
			if result, err = a.anchorOnce(ctx); !errors.Is(err, store.ErrConflict) {
				break
			}
		}
		return err
	})
	return result, err
}

// maxLeadWait is how long a job waits for another process that runs the same job.
const maxLeadWait = 5 * time.Second

// lead runs a job that only one process may run at a time.
func (a *Auditor) lead(ctx context.Context, job string, do func(ctx context.Context) error) error {
	err := a.engine.Lead(ctx, job, maxLeadWait, do)
	if errors.Is(err, store.ErrLeaseTaken) || errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrConflict) {
		return &engine.Error{Code: engine.CodeBusy, Message: "Another process is already doing this.", Hint: "Try again in half a minute.", Err: err}
	}
	return err
}

// anchorOnce writes the next anchor. It returns ErrConflict if another process was faster.
func (a *Auditor) anchorOnce(ctx context.Context) (AnchorResult, error) {
	last, tree, err := lastAnchor(ctx, a.store)
	if err != nil {
		return AnchorResult{}, err
	}
	// Read the position first. Anything committed from now on belongs to the next anchor, even if the heads include
	// it already. An instance that starts during the walk may be missing from the heads.
	events, err := a.store.LastPosition(ctx)
	if err != nil {
		return AnchorResult{}, engine.StoreError("count its events", err)
	}
	rules, err := a.engine.RuleHead(ctx)
	if err != nil {
		return AnchorResult{}, err
	}
	heads, err := a.listMovedHeads(ctx, last.anchor.Number, rules)
	if err != nil {
		return AnchorResult{}, err
	}
	instances := len(heads)
	if instances > 0 && heads[instances-1].Instance == record.RuleChain {
		instances--
	}
	if len(heads) == 0 {
		a.mark.Store(&anchorMark{number: last.anchor.Number, position: events, rules: rules})
		return AnchorResult{Number: last.anchor.Number, At: last.anchor.Time, Events: last.anchor.Events, Note: last.note}, nil
	}
	for _, h := range heads {
		leaf, err := h.Leaf()
		if err != nil {
			return AnchorResult{}, newAnchorError(err)
		}
		tree.Append(leaf)
	}
	counted := max(events, last.anchor.Events) // a repair may have lost the newest events
	next := record.Anchor{
		Origin: a.signer.Name(), Size: tree.Size(), Root: tree.Root(), Number: last.anchor.Number + 1,
		Time: a.engine.Now(), Events: counted,
	}
	if last.note != "" {
		next.Previous = record.HashNote(last.note)
	}
	note, err := a.signer.Sign(next.Text())
	if err != nil {
		return AnchorResult{}, engine.InternalError("sign an anchor", err)
	}
	err = a.store.AddAnchor(ctx, store.Anchor{Number: next.Number, At: next.Time, Note: note, Heads: record.EncodeHeads(tree, heads), Seen: events, Lease: store.LeaseOf(ctx)})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrLeaseLost) {
		return AnchorResult{}, err
	}
	if err != nil {
		return AnchorResult{}, engine.StoreError("keep the anchor", err)
	}
	a.mark.Store(&anchorMark{number: next.Number, position: events, rules: rules})
	return AnchorResult{Number: next.Number, At: next.Time, Instances: instances, Events: counted, Note: note, Written: true}, nil
}

// anchorMark is the position up to which this process knows that everything is anchored.
type anchorMark struct {
	number, position int64
	rules            record.Head
}

// listMovedHeads returns the heads, ordered by id, that no anchor up to the last one contains. It reads the newest
// anchored head of an instance from the anchors, because positions cannot be trusted. In a repaired store a position
// may have been used twice, and anyone who can write the store can change one. Positions are used only to skip what
// this process has already seen anchored; its first call reads everything. The head of the chain of rules comes last,
// if it has changed.
func (a *Auditor) listMovedHeads(ctx context.Context, last int64, rules record.Head) ([]record.Head, error) {
	var seen anchorMark
	if mark := a.mark.Load(); mark != nil && mark.number <= last {
		seen = *mark
	}
	seed := maphash.MakeSeed()
	newest := map[uint64]uint64{} // heads by instance: hashes, because there may be a million
	newest[maphash.String(seed, record.RuleChain)] = maphash.Comparable(seed, seen.rules)
	for anchor, err := range a.store.Anchors(ctx, seen.number) {
		if err != nil {
			return nil, engine.StoreError("read the anchors", err)
		}
		if anchor.Number > last { // another process was faster
			return nil, store.ErrConflict
		}
		_, heads, err := record.DecodeHeads(anchor.Heads)
		if err != nil {
			continue // its heads are anchored again
		}
		for _, h := range heads {
			newest[maphash.String(seed, h.Instance)] = maphash.Comparable(seed, h)
		}
	}
	fresh := func(h record.Head) bool {
		known, ok := newest[maphash.String(seed, h.Instance)]
		return !ok || known != maphash.Comparable(seed, h)
	}
	var out []record.Head
	for inst, err := range a.store.Instances(ctx, store.InstanceQuery{MovedAfter: seen.position, Heads: true}) {
		if err != nil {
			return nil, engine.StoreError("list the instances", err)
		}
		if h := headOf(inst); fresh(h) {
			out = append(out, h)
		}
	}
	slices.Reverse(out)
	if rules.Seq > 0 && fresh(rules) {
		out = append(out, rules)
	}
	return out, nil
}

func headOf(i record.Instance) record.Head {
	return record.Head{Instance: i.ID, Seq: i.Seq, Hash: i.Head}
}

type anchorNote struct {
	note   string
	anchor record.Anchor
}

// lastAnchor returns the newest anchor, zero if there is none, and its tree. The source of the tree need not be
// trusted: if its root is the signed root, it is the signed tree.
func lastAnchor(ctx context.Context, db store.Store) (anchorNote, record.Tree, error) {
	stored, err := store.First(db.Anchors(ctx, store.LastAnchor), "an anchor")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return anchorNote{}, record.Tree{}, nil
	case err != nil:
		return anchorNote{}, record.Tree{}, engine.StoreError("read the last anchor", err)
	}
	text, err := record.ReadNoteText(stored.Note)
	if err != nil {
		return anchorNote{}, record.Tree{}, newAnchorError(err)
	}
	said, err := record.ParseAnchor(text)
	if err != nil {
		return anchorNote{}, record.Tree{}, newAnchorError(err)
	}
	tree, _, err := record.DecodeHeads(stored.Heads)
	if err != nil {
		return anchorNote{}, record.Tree{}, newAnchorError(err)
	}
	if said.Number != stored.Number || tree.Size() != said.Size || tree.Root() != said.Root {
		return anchorNote{}, record.Tree{}, newAnchorError(fmt.Errorf("anchor %d does not match its note", stored.Number))
	}
	return anchorNote{stored.Note, said}, tree, nil
}

func newAnchorError(err error) error {
	return &engine.Error{
		Code: engine.CodeUnavailable, Message: "The anchors in this store are damaged and cannot be continued.",
		Hint: "Run gavel verify to see what was changed; restore a backup.", Err: err,
	}
}

// Anchors lists the notes of all anchors above a number, oldest first, so that they can be kept
// outside the store.
func (a *Auditor) Anchors(ctx context.Context, p engine.Principal, after int64) iter.Seq2[store.Anchor, error] {
	return func(yield func(store.Anchor, error) bool) {
		if err := engine.Authorize(p, engine.RightVerify); err != nil {
			yield(store.Anchor{}, err)
			return
		}
		for anchor, err := range a.store.Anchors(ctx, max(after, 0)) {
			if err != nil {
				yield(store.Anchor{}, engine.StoreError("read the anchors", err))
				return
			}
			if !yield(anchor, nil) {
				return
			}
		}
	}
}
