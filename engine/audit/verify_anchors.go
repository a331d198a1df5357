package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

type anchorCheck struct {
	*verification
	last anchorNote // the zero value after an anchor that cannot be read
	tree record.Tree
	// lost is true if tree is not the signed one, because something before it is broken.
	lost    bool
	newest  anchorNote       // the last readable anchor
	highest int64            // the last number
	notes   map[int64]string // the hashes of the readable notes; used only to compare published ones
}

func (v *verification) checkAnchors(ctx context.Context) error {
	c := &anchorCheck{verification: v, notes: map[int64]string{}}
	for a, err := range v.store.Anchors(ctx, 0) {
		if err != nil {
			if err := v.problemOf(err, Problem{}, "an anchor"); err != nil {
				return err
			}
			break
		}
		v.report.Anchors++
		heads, ok := c.checkAnchor(a)
		if !ok {
			continue
		}
		if err := c.checkHeads(ctx, a.Number, heads); err != nil {
			return err
		}
	}
	if len(v.req.Keys) > 0 && v.report.Anchors == 0 {
		c.addMismatch(0, "a key was given, but the store has no anchor: all anchors were removed, or none was ever made")
	}
	v.report.Signed = len(v.req.Keys) > 0 && v.report.Anchors > 0
	if c.newest.note != "" {
		v.report.AnchoredAt = &c.newest.anchor.Time
	}
	c.checkPublished()
	v.report.Unanchored = v.countUnanchored()
	return nil
}

func (c *anchorCheck) addMismatch(number int64, format string, args ...any) {
	c.addProblem(Problem{Anchor: number, Kind: BreakAnchor, Message: fmt.Sprintf(format, args...)})
}

// checkAnchor checks one anchor: its signature, that it follows from the previous one, and that the
// heads stored with it are the signed ones. It returns these heads; ok is false unless they match the
// signed root.
func (c *anchorCheck) checkAnchor(a store.Anchor) (heads []record.Head, ok bool) {
	c.highest = a.Number
	said, err := c.readNote(a.Note)
	if err != nil {
		c.addMismatch(a.Number, "anchor %d: %v", a.Number, err)
		c.last, c.tree, c.lost = anchorNote{}, record.Tree{}, true
		return nil, false
	}
	if c.req.Published != nil {
		c.notes[a.Number] = record.HashNote(a.Note)
	}
	before := c.last
	c.last = anchorNote{a.Note, said}
	c.newest = c.last
	switch {
	case said.Number != a.Number:
		c.addMismatch(a.Number, "anchor %d is in the place of anchor %d", said.Number, a.Number)
	case !a.At.Equal(said.Time):
		c.addMismatch(a.Number, "anchor %d is stored with a different time than in its note", a.Number)
	case a.Number > 1 && c.report.Anchors == 1:
		c.lost = true
		c.addMismatch(a.Number, "the anchors before anchor %d are missing", a.Number)
	case before.note != "" && a.Number != before.anchor.Number+1:
		c.lost = true
		c.addMismatch(a.Number, "the anchors between anchor %d and anchor %d are missing", before.anchor.Number, a.Number)
	case before.note != "" && said.Previous != record.HashNote(before.note), a.Number == 1 && said.Previous != "":
		c.addMismatch(a.Number, "anchor %d does not continue the anchor before it", a.Number)
	}
	return c.growTree(a, said)
}

// growTree adds an anchor's heads to the tree and compares the result with the signed root.
func (c *anchorCheck) growTree(a store.Anchor, said record.Anchor) (heads []record.Head, ok bool) {
	after, heads, err := record.DecodeHeads(a.Heads)
	grown := c.tree.Clone()
	for _, h := range heads {
		leaf, bad := h.Leaf()
		if bad != nil {
			err = bad
			break
		}
		grown.Append(leaf)
	}
	if err != nil {
		c.addMismatch(a.Number, "anchor %d: %v", a.Number, err)
		c.tree, c.lost = record.Tree{}, true
		return nil, false
	}
	known := !c.lost
	kept := after.Size() == said.Size && after.Root() == said.Root
	same := grown.Size() == said.Size && grown.Root() == said.Root
	// Later anchors can be checked even if this one cannot.
	c.tree, c.lost = after, !kept
	if same {
		c.tree, c.lost = grown, false
	}
	switch {
	case !same && known:
		c.addMismatch(a.Number, "the heads stored with anchor %d are not the signed ones", a.Number)
	case !kept:
		c.addMismatch(a.Number, "the tree stored with anchor %d is not the signed one", a.Number)
	}
	return heads, same
}

// readNote returns the content of a note if one of the keys signed it.
func (c *anchorCheck) readNote(note string) (record.Anchor, error) {
	text, err := record.ReadNoteText(note)
	if err == nil && len(c.req.Keys) > 0 {
		text, err = record.OpenNote(note, c.req.Keys...)
	}
	if err != nil {
		return record.Anchor{}, err
	}
	return record.ParseAnchor(text)
}

func (c *anchorCheck) checkHeads(ctx context.Context, number int64, heads []record.Head) error {
	return c.eachHead(ctx, func(yield func(record.Head, error) bool) {
		for _, h := range heads {
			if h.Instance == record.RuleChain {
				c.checkRuleHead(number, h)
				continue
			}
			c.recordAnchored(h)
			if (c.req.Instance == "" || h.Instance == c.req.Instance) && !yield(h, nil) {
				return
			}
		}
	}, func(ctx context.Context, h record.Head) error { return c.checkHead(ctx, number, h) })
}

// checkHead checks the event that an anchor names. It skips an instance that is known to be broken,
// because its problem has been reported.
func (v *verification) checkHead(ctx context.Context, number int64, head record.Head) error {
	if !v.isWhole(head.Instance) {
		return nil
	}
	wrong := problemFunc(func(kind Break, format string, args ...any) {
		v.addProblem(Problem{Instance: head.Instance, Seq: head.Seq, Anchor: number, Kind: kind, Message: fmt.Sprintf(format, args...)})
	})
	for e, err := range v.store.Events(ctx, store.EventQuery{Instance: head.Instance, AfterSeq: head.Seq - 1, Limit: 1}) {
		if err != nil {
			return v.problemOf(err, Problem{Instance: head.Instance, Seq: head.Seq}, "the event")
		}
		if e.Seq == head.Seq {
			if e.Hash != head.Hash {
				wrong(BreakAnchor, "the event differs from the one that anchor %d signs: the history was rewritten", number)
			} else {
				v.checkRemovals(head, number, wrong)
			}
			return nil
		}
	}
	row, err := v.store.Load(ctx, head.Instance)
	switch {
	case errors.Is(err, store.ErrNotFound):
		wrong(BreakMissing, "anchor %d signs event %d of this instance, but the instance is missing", number, head.Seq)
		return nil
	case err != nil:
		return v.problemOf(err, Problem{Instance: head.Instance}, "its present state")
	}
	cut, err := v.loadTruncation(ctx, head.Instance)
	switch {
	case err != nil:
		return err
	case cut == nil || head.Seq > cut.UpTo:
		wrong(BreakTruncated, "anchor %d signs event %d, but the history ends at event %d", number, head.Seq, row.Seq)
	case head.Seq == cut.UpTo && head.Hash != cut.Hash:
		wrong(BreakAnchor, "the removed beginning ended with a different event than the one that anchor %d signs", number)
	default: // the event was removed, which is legitimate if the removal is signed
		v.checkRemovals(head, number, wrong)
	}
	return nil
}

type problemFunc func(kind Break, format string, args ...any)

// checkRemovals requires a signature for every removal made after a history was anchored, because the anchor also
// covers the events before the one that it names.
func (v *verification) checkRemovals(head record.Head, number int64, wrong problemFunc) {
	if seq := v.findUnsignedAbove(head); seq > 0 {
		wrong(BreakAnchor, "event %d removes events that anchor %d covers, and the anchor key did not sign the removal", seq, number)
	}
}

// checkPublished compares the notes that were kept outside with the store. A note that is missing or
// different in the store shows that the store was replaced by an older one.
func (c *anchorCheck) checkPublished() {
	if c.req.Published != nil && len(c.req.Published) == 0 {
		c.addMismatch(0, "the published file has no complete anchor to compare: it was emptied, or it is the wrong file")
	}
	var newest record.Anchor
	told := false
	for i, note := range c.req.Published {
		said, err := c.readNote(note)
		if err != nil {
			c.addProblem(Problem{Kind: BreakAnchor, Message: fmt.Sprintf("published note %d: %v", i+1, err)})
			continue
		}
		c.report.Published++
		if said.Number > newest.Number {
			newest = said
		}
		stored, there := c.notes[said.Number]
		if there && stored != record.HashNote(note) && !told {
			told = true
			c.addProblem(Problem{Anchor: said.Number, Kind: BreakRolledBack, Message: fmt.Sprintf(
				"the published text of anchor %d differs from the store's: an older store was restored and used, or the anchor was edited", said.Number)})
		}
	}
	if newest.Number > c.highest {
		c.addProblem(Problem{Anchor: newest.Number, Kind: BreakRolledBack, Message: fmt.Sprintf(
			"anchor %d of %s was published over %d events, but the store ends at anchor %d: an older store was restored, or anchors were removed",
			newest.Number, newest.Time.Format("2006-01-02 15:04:05 MST"), newest.Events, c.highest)})
	}
}
