package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// mayRemove refuses to remove anything of an anchored store without the key: nobody
// could tell afterwards who removed it.
func (a *Auditor) mayRemove(ctx context.Context, dryRun bool) error {
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
		Code: engine.CodeUnavailable, Message: "This store is anchored, and without the key that signs its anchors a removal cannot be told from tampering.",
		Hint: "Give the key with --anchor-key or in GAVEL_ANCHOR_KEY.",
	}
}

// loadAnchoredHeads are the heads of histories that anchors name, by instance. They are what
// the newest anchor was signed over: what is signed here must not hide that a history was
// written anew since. nil where nothing is signed.
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
		return newAnchorError(fmt.Errorf("the heads kept with the anchors are not those that anchor %d was signed over", said.Number))
	}
	return nil
}

// checkAnchored checks a history against the anchored heads of it. One below what
// was removed before is for Verify to judge, with the event that says so.
func (s survey) checkAnchored(id string, heads []record.Head) error {
	first := s.events[0].seq
	for _, h := range heads {
		switch at := h.Seq - first; {
		case at < 0:
		case at >= int64(len(s.events)):
			return &record.BrokenError{Instance: id, Seq: h.Seq, How: "it was anchored and is missing"}
		case s.events[at].hash != h.Hash:
			return &record.BrokenError{Instance: id, Seq: h.Seq, How: "it is another event than the one that was anchored"}
		}
	}
	return nil
}
