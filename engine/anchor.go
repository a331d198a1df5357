package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// AnchorResult is an anchor that was written, or the newest one when nothing had
// happened since.
type AnchorResult struct {
	Number int64     `json:"number"` // 0: there is none, and nothing to anchor
	At     time.Time `json:"at"`
	// Instances are those that this anchor adds, Events all events that were ever taken.
	Instances int    `json:"instances"`
	Events    int64  `json:"events"`
	Note      string `json:"note"`
	// Written is false when there was nothing to add.
	Written bool `json:"written"`
}

// anchorAttempts bounds how often an anchor is begun anew because another process has
// just written one.
const anchorAttempts = 5

// Anchor signs where all instances stand: those that have moved since the last anchor
// are added to the tree whose root is signed, so that the newest anchor covers all of
// them. It is an operator's to do, and needs Config.Anchors.
func (e *Engine) Anchor(ctx context.Context, p Principal) (AnchorResult, error) {
	if err := authorize(p, RightAnchor); err != nil {
		return AnchorResult{}, err
	}
	db, err := e.anchorer()
	if err != nil {
		return AnchorResult{}, err
	}
	if e.cfg.Anchors == nil {
		return AnchorResult{}, &Error{
			Code: CodeUnavailable, Message: "No key to sign anchors with is configured.",
			Hint: "Make one with gavel anchor keygen, keep it away from the store, and give it with --anchor-key.",
		}
	}
	ctx = store.BulkRead(ctx)
	for range anchorAttempts {
		result, err := e.anchorOnce(ctx, db)
		if !errors.Is(err, store.ErrConflict) {
			return result, err
		}
	}
	return AnchorResult{}, &Error{Code: CodeBusy, Message: "Other processes write anchors all the time.", Hint: "Let one of them do it."}
}

func (e *Engine) anchorer() (store.Anchorer, error) {
	if db, ok := e.cfg.Store.(store.Anchorer); ok {
		return db, nil
	}
	return nil, &Error{Code: CodeUnavailable, Message: "This store keeps no anchors.", Hint: "Use another store."}
}

// anchorOnce writes the next anchor. ErrConflict when another process was first.
func (e *Engine) anchorOnce(ctx context.Context, db store.Anchorer) (AnchorResult, error) {
	last, tree, err := lastAnchor(ctx, db)
	if err != nil {
		return AnchorResult{}, err
	}
	// The position is read first: what is committed from now on is the next anchor's,
	// even where the heads show it already.
	events, err := db.LastPosition(ctx)
	if err != nil {
		return AnchorResult{}, storeError("say how many events it has", err)
	}
	rules, err := e.rules.head(ctx)
	if err != nil {
		return AnchorResult{}, err
	}
	heads, err := e.moved(ctx, db, last.said.Number, rules)
	if err != nil {
		return AnchorResult{}, err
	}
	instances := len(heads)
	if instances > 0 && heads[instances-1].Instance == record.RuleChain {
		instances--
	}
	if len(heads) == 0 {
		e.anchored.Store(&anchorMark{number: last.said.Number, position: events, rules: rules})
		return AnchorResult{Number: last.said.Number, At: last.said.Time, Events: last.said.Events, Note: last.note}, nil
	}
	for _, h := range heads {
		leaf, err := h.Leaf()
		if err != nil {
			return AnchorResult{}, damagedAnchors(err)
		}
		tree.Append(leaf)
	}
	counted := max(events, last.said.Events) // a repair may have lost the newest events
	next := record.Anchor{
		Origin: e.cfg.Anchors.Name(), Size: tree.Size(), Root: tree.Root(), Number: last.said.Number + 1,
		Time: e.now(), Events: counted,
	}
	if last.note != "" {
		next.Previous = record.HashNote(last.note)
	}
	note, err := e.cfg.Anchors.Sign(next.Text())
	if err != nil {
		return AnchorResult{}, internal("sign an anchor", err)
	}
	err = db.AddAnchor(ctx, store.Anchor{Number: next.Number, At: next.Time, Note: note, Heads: record.EncodeHeads(tree, heads), Seen: events})
	if errors.Is(err, store.ErrConflict) {
		return AnchorResult{}, err
	}
	if err != nil {
		return AnchorResult{}, storeError("keep the anchor", err)
	}
	e.anchored.Store(&anchorMark{number: next.Number, position: events, rules: rules})
	return AnchorResult{Number: next.Number, At: next.Time, Instances: instances, Events: counted, Note: note, Written: true}, nil
}

// anchorMark says up to where this process has seen that everything is anchored.
type anchorMark struct {
	number, position int64
	rules            record.Head
}

// moved are the heads that no anchor up to the last one names, by id. What an instance's
// newest anchored head is, the anchors say: positions alone may have been used twice, in
// a store that was repaired, or be what somebody wrote there. They save the first look
// at everything from then on, which is one for each process. The end of the chain of rules
// comes last, where that is another one.
func (e *Engine) moved(ctx context.Context, db store.Anchorer, last int64, rules record.Head) ([]record.Head, error) {
	var seen anchorMark
	if mark := e.anchored.Load(); mark != nil && mark.number <= last {
		seen = *mark
	}
	seed := maphash.MakeSeed()
	newest := map[uint64]uint64{} // heads by instance: hashes, because there may be a million
	newest[maphash.String(seed, record.RuleChain)] = maphash.Comparable(seed, seen.rules)
	for a, err := range db.Anchors(ctx, seen.number) {
		if err != nil {
			return nil, storeError("read the anchors", err)
		}
		if a.Number > last { // somebody was faster
			return nil, store.ErrConflict
		}
		_, heads, err := record.DecodeHeads(a.Heads)
		if err != nil {
			continue // what it named is anchored once more
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
	for h, err := range db.Heads(ctx, seen.position) {
		if err != nil {
			return nil, storeError("say where the instances stand", err)
		}
		if fresh(h) {
			out = append(out, h)
		}
	}
	if rules.Seq > 0 && fresh(rules) {
		out = append(out, rules)
	}
	return out, nil
}

// anchored is an anchor with what it says.
type anchored struct {
	note string
	said record.Anchor
}

// lastAnchor returns the newest anchor, the zero one when there is none, and the tree
// that it signed: a tree with the signed root is the signed one, wherever it was kept.
func lastAnchor(ctx context.Context, db store.Anchorer) (anchored, record.Tree, error) {
	stored, err := db.LastAnchor(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return anchored{}, record.Tree{}, nil
	case err != nil:
		return anchored{}, record.Tree{}, storeError("read the last anchor", err)
	}
	text, err := record.ReadNoteText(stored.Note)
	if err != nil {
		return anchored{}, record.Tree{}, damagedAnchors(err)
	}
	said, err := record.ParseAnchor(text)
	if err != nil {
		return anchored{}, record.Tree{}, damagedAnchors(err)
	}
	tree, _, err := record.DecodeHeads(stored.Heads)
	if err != nil {
		return anchored{}, record.Tree{}, damagedAnchors(err)
	}
	if said.Number != stored.Number || tree.Size() != said.Size || tree.Root() != said.Root {
		return anchored{}, record.Tree{}, damagedAnchors(fmt.Errorf("anchor %d is not what its note says", stored.Number))
	}
	return anchored{stored.Note, said}, tree, nil
}

func damagedAnchors(err error) error {
	return &Error{
		Code: CodeUnavailable, Message: "The anchors in this store are damaged, and nothing can go on from them.",
		Hint: "Run gavel verify to see what was changed; restore a backup.", Err: err,
	}
}

// Anchors lists the notes of all anchors above a number, oldest first: to be kept
// outside the store.
func (e *Engine) Anchors(ctx context.Context, p Principal, after int64) iter.Seq2[store.Anchor, error] {
	return func(yield func(store.Anchor, error) bool) {
		if err := authorize(p, RightVerify); err != nil {
			yield(store.Anchor{}, err)
			return
		}
		db, err := e.anchorer()
		if err != nil {
			yield(store.Anchor{}, err)
			return
		}
		for a, err := range db.Anchors(ctx, after) {
			if err != nil {
				yield(store.Anchor{}, storeError("read the anchors", err))
				return
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}
