package values

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// SealEvent returns an event in its stored form; call it before record.Seal. prev is the instance
// before the event, and d defines its sensitive values.
func (k *Keyring) SealEvent(ctx context.Context, d *workflow.Definition, prev record.Instance, ev record.Event) (record.Event, error) {
	if k == nil || len(d.Sensitive) == 0 {
		return ev, nil
	}
	at := binding{cmp.Or(prev.ID, ev.Instance), contextData, prev.Seq + 1}
	sealed, err := k.sealDocument(ctx, d, at, ev.Patch)
	if err != nil {
		return ev, err
	}
	if len(sealed) > 0 && &sealed[0] != &ev.Patch[0] {
		ev.Patch = sealed
		ev.SetMerged(nil, nil) // the merged context has plain values
	}
	if ev.Import == nil {
		return ev, nil
	}
	// In events from another program, sensitive values can be anywhere.
	at.kind = importData
	if ev.Checkpoint != nil && len(ev.Checkpoint.Metadata) > 0 {
		named := *ev.Checkpoint
		if named.Metadata, err = k.sealDocument(ctx, nil, at, named.Metadata); err != nil {
			return ev, err
		}
		ev.Checkpoint = &named
	}
	return ev, nil
}

// OpenEvent returns an event as people and judges see it. Its hash is still that of the stored form.
// destroyed reports that some of its values are lost forever.
func (k *Keyring) OpenEvent(ctx context.Context, ev record.Event) (opened record.Event, destroyed bool, err error) {
	open := func(kind string, doc json.RawMessage) json.RawMessage {
		if err != nil {
			return nil
		}
		plain, gone, failed := k.openDocument(ctx, binding{ev.Instance, kind, ev.Seq}, doc)
		destroyed, err = destroyed || gone, failed
		return plain
	}
	ev.Patch = open(contextData, ev.Patch)
	if ev.Import != nil && ev.Checkpoint != nil {
		named := *ev.Checkpoint
		named.Metadata = open(importData, named.Metadata)
		ev.Checkpoint = &named
	}
	return ev, destroyed, err
}

// OpenInstance returns an instance with its context as people and judges see it.
func (k *Keyring) OpenInstance(ctx context.Context, inst record.Instance) (record.Instance, error) {
	inst = inst.StoredForm()
	if !workflow.MayHoldSealed(inst.Context) {
		return inst, nil
	}
	if k != nil {
		if last, ok := k.contexts.Get(inst.ID); ok && time.Now().Before(last.until) && bytes.Equal(last.stored, inst.Context) {
			return inst.WithPlainContext(last.plain, false), nil
		}
	}
	opened, destroyed, err := k.openDocument(ctx, binding{instance: inst.ID, kind: contextData}, inst.Context)
	if err != nil {
		return record.Instance{}, err
	}
	inst = inst.WithPlainContext(opened, destroyed)
	k.Remember(inst)
	return inst, nil
}

// Remember caches an instance that is about to be stored, so that its next move need not open it. The
// entry applies only to the same stored bytes, and expires with the last looked-up key.
func (k *Keyring) Remember(inst record.Instance) {
	kept := inst.StoredForm().Context
	if k == nil || inst.IsDestroyed() || len(kept) > maxContextSize {
		return
	}
	if key, ok := k.cache.Peek(keyID{inst.ID, 0}); ok && key.cipher != nil {
		k.contexts.Add(inst.ID, plainContext{kept, inst.Context, key.at.Add(keyMaxAge)})
	}
}

// SealReview returns a review in its stored form; d defines the sensitive values in its data.
func (k *Keyring) SealReview(ctx context.Context, d *workflow.Definition, row store.Review) (store.Review, error) {
	if k == nil || len(d.Sensitive) == 0 || len(row.Data) == 0 {
		return row, nil
	}
	var err error
	row.Data, err = k.sealDocument(ctx, d, binding{row.Instance, reviewData, row.Seq}, row.Data)
	return row, err
}

// OpenReview returns a review with its data as they were sent. destroyed reports that some of them are
// lost forever.
func (k *Keyring) OpenReview(ctx context.Context, row store.Review) (opened store.Review, destroyed bool, err error) {
	row.Data, destroyed, err = k.openDocument(ctx, binding{row.Instance, reviewData, row.Seq}, row.Data)
	return row, destroyed, err
}

// HoldsPlain reports whether a stored event has sensitive values in plain text, from before values
// were sealed.
func HoldsPlain(d *workflow.Definition, ev record.Event) (found bool) {
	_, err := d.Mask(ev.Patch, func(string, json.RawMessage) string { found = true; return "" })
	return err == nil && found
}

// runData is the kind of document for data of a run that is kept outside the store.
const runData = "run"

// SealText seals text that is kept outside the store, for an instance that exists or will exist.
func (k *Keyring) SealText(ctx context.Context, instance, text string) (string, error) {
	if k == nil {
		return text, nil
	}
	key, err := k.newest(ctx, instance)
	if err != nil {
		return "", err
	}
	return key.seal(binding{instance, runData, 0}, "", []byte(text)), nil
}

// OpenText opens text from SealText and returns any other text unchanged. It can return ErrDestroyed or
// ErrUnreadable.
func (k *Keyring) OpenText(ctx context.Context, instance, text string) (string, error) {
	if !strings.HasPrefix(text, workflow.SealedForm) {
		return text, nil
	}
	o := opener{k: k, at: binding{instance, runData, 0}}
	plain, err := o.openValue(ctx, "", text)
	if err == nil && o.destroyed {
		err = ErrDestroyed
	}
	return string(plain), err
}
