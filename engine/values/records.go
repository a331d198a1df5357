package values

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// SealEvent returns an event as it is kept, before record.Seal: prev is the instance before it, and
// d says what is sensitive in it.
func (k *Keyring) SealEvent(ctx context.Context, d *workflow.Definition, prev record.Instance, ev record.Event) (record.Event, error) {
	if k == nil || len(d.Sensitive) == 0 {
		return ev, nil
	}
	at := place{cmp.Or(prev.ID, ev.Instance), inContext, prev.Seq + 1}
	sealed, err := k.sealDocument(ctx, d, at, ev.Patch)
	if err != nil {
		return ev, err
	}
	if len(sealed) > 0 && &sealed[0] != &ev.Patch[0] {
		ev.Patch = sealed
		ev.SetMerged(nil, nil) // that was of plain values
	}
	if ev.Import == nil {
		return ev, nil
	}
	// What another program wrote has its sensitive values anywhere.
	at.kind = inImport
	if len(ev.Import.Extra) > 0 {
		about := *ev.Import
		if about.Extra, err = k.sealDocument(ctx, nil, at, about.Extra); err != nil {
			return ev, err
		}
		ev.Import = &about
	}
	if ev.Checkpoint != nil && len(ev.Checkpoint.Metadata) > 0 {
		named := *ev.Checkpoint
		if named.Metadata, err = k.sealDocument(ctx, nil, at, named.Metadata); err != nil {
			return ev, err
		}
		ev.Checkpoint = &named
	}
	return ev, nil
}

// OpenEvent returns an event as people and judges see it; its hash is still that of what is kept.
// destroyed says that some of its values are gone for good.
func (k *Keyring) OpenEvent(ctx context.Context, ev record.Event) (opened record.Event, destroyed bool, err error) {
	open := func(kind string, doc json.RawMessage) json.RawMessage {
		if err != nil {
			return nil
		}
		plain, gone, failed := k.openDocument(ctx, place{ev.Instance, kind, ev.Seq}, doc)
		destroyed, err = destroyed || gone, failed
		return plain
	}
	ev.Patch = open(inContext, ev.Patch)
	if ev.Import == nil {
		return ev, destroyed, err
	}
	about := *ev.Import
	about.Extra = open(inImport, about.Extra)
	ev.Import = &about
	if ev.Checkpoint != nil {
		named := *ev.Checkpoint
		named.Metadata = open(inImport, named.Metadata)
		ev.Checkpoint = &named
	}
	return ev, destroyed, err
}

// OpenInstance returns an instance with its context as people and judges see it.
func (k *Keyring) OpenInstance(ctx context.Context, inst record.Instance) (record.Instance, error) {
	inst = inst.Kept()
	if !workflow.MayHoldSealed(inst.Context) {
		return inst, nil
	}
	opened, destroyed, err := k.openDocument(ctx, place{instance: inst.ID, kind: inContext}, inst.Context)
	if err != nil {
		return record.Instance{}, err
	}
	return inst.Opened(opened, destroyed), nil
}

// SealReview returns a review as it is kept; d says what is sensitive in its data.
func (k *Keyring) SealReview(ctx context.Context, d *workflow.Definition, row store.Review) (store.Review, error) {
	if k == nil || len(d.Sensitive) == 0 || len(row.Data) == 0 {
		return row, nil
	}
	var err error
	row.Data, err = k.sealDocument(ctx, d, place{row.Instance, inReview, row.Seq}, row.Data)
	return row, err
}

// OpenReview returns a review with its data as they were sent. destroyed says that some of them are
// gone for good.
func (k *Keyring) OpenReview(ctx context.Context, row store.Review) (opened store.Review, destroyed bool, err error) {
	row.Data, destroyed, err = k.openDocument(ctx, place{row.Instance, inReview, row.Seq}, row.Data)
	return row, destroyed, err
}

// HoldsPlain reports whether an event as it is kept holds sensitive values in plain, from before values
// were sealed.
func HoldsPlain(d *workflow.Definition, ev record.Event) (found bool) {
	_, err := d.Mask(ev.Patch, func(string, json.RawMessage) string { found = true; return "" })
	return err == nil && found
}
