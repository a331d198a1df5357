package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestVerifyNamesTheBrokenEvent(t *testing.T) {
	h := sample(t)
	change := func(i int, f func(*record.Event)) []record.Event {
		events := slices.Clone(h.events)
		f(&events[i])
		return events
	}
	swapped := slices.Clone(h.events)
	swapped[2], swapped[3] = swapped[3], swapped[2]
	other := &history{tb: t}
	e := started(`{}`)
	e.Instance = "wf-2"
	other.seal(e, nil)
	tests := map[string]struct {
		events []record.Event
		seq    int64
	}{
		"an edited field":     {change(2, func(e *record.Event) { e.To = "approved" }), 3},
		"an edited principal": {change(4, func(e *record.Event) { e.Principal = "x" }), 5},
		"an edited decision": {change(2, func(e *record.Event) {
			d := *e.Decision
			d.Confidence = 0.5
			e.Decision = &d
		}), 3},
		"an edited hash":     {change(2, func(e *record.Event) { e.Hash = strings.Repeat("0", 64) }), 3},
		"an edited previous": {change(2, func(e *record.Event) { e.PrevHash = h.events[0].Hash }), 3},
		"no hash":            {change(2, func(e *record.Event) { e.Hash = "" }), 3},
		"a deleted event":    {slices.Delete(slices.Clone(h.events), 2, 3), 3},
		"no first event":     {h.events[1:], 1},
		"swapped events":     {swapped, 3},
		"a doubled event":    {slices.Insert(slices.Clone(h.events), 2, h.events[1]), 3},
		"another instance":   {slices.Replace(slices.Clone(h.events), 2, 3, other.events[0]), 3},
	}
	for name, tt := range tests {
		var broken *record.BrokenError
		err := record.Verify(each(tt.events))
		if !errors.As(err, &broken) || !errors.Is(err, record.ErrBroken) || broken.Seq != tt.seq || broken.Instance != "wf-1" {
			t.Errorf("%s: got %v, want event %d of wf-1", name, err, tt.seq)
		}
	}
	if err := record.Verify(h.seq()); err != nil {
		t.Errorf("the untouched history: %v", err)
	}
}

func TestChainHeadShowsACutEnd(t *testing.T) {
	h := sample(t)
	var c record.Chain
	for _, e := range h.events[:len(h.events)-1] {
		if err := c.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if c.Seq() != h.last().Seq-1 || c.Head() == h.last().Head {
		t.Errorf("the chain ends at %d with the head of %d", c.Seq(), h.last().Seq)
	}
	if err := c.Add(h.events[len(h.events)-1]); err != nil || c.Head() != h.last().Head {
		t.Errorf("whole: %v, head %s, want %s", err, c.Head(), h.last().Head)
	}
}

// drawHistory draws a legal history of random length and content.
func drawHistory(t *rapid.T) *history {
	h := &history{tb: t}
	h.seal(started(drawObject(t)), nil)
	actions := rapid.SampledFrom([]string{"submit", "approve", "reset"})
	for range rapid.IntRange(0, 15).Draw(t, "events") {
		var e record.Event
		var restored *record.Instance
		switch kind := rapid.SampledFrom([]record.Kind{
			record.Advanced, record.Advanced, record.Refused, record.Prechecked, record.Checkpointed, record.RolledBack, record.KindCancelled,
		}).Draw(t, "kind"); kind {
		case record.Advanced:
			e = advanced(actions.Draw(t, "action"), rapid.SampledFrom([]string{"draft", "reviewing", "approved"}).Draw(t, "to"), drawObject(t))
			e.Status = rapid.SampledFrom([]record.Status{record.Running, record.Running, record.Complete}).Draw(t, "status")
			e.Freezes = rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/b"}), 0, 2).Draw(t, "freezes")
		case record.Refused, record.Prechecked:
			e = refused(actions.Draw(t, "action"), drawObject(t))
			e.Kind = kind
		case record.Checkpointed:
			e = record.Event{Kind: kind, Checkpoint: &record.Checkpoint{ID: fmt.Sprint("cp-", len(h.events)), Description: rapid.String().Draw(t, "description")}}
		case record.RolledBack:
			then := h.after[rapid.IntRange(0, len(h.after)-1).Draw(t, "restores")]
			if then.Revision == 0 {
				continue
			}
			restored = &then
			e = record.Event{Kind: kind, Rollback: &record.Rollback{CheckpointID: "cp", Restores: then.Revision}}
		case record.KindCancelled:
			e = record.Event{Kind: kind, Reason: rapid.String().Draw(t, "reason")}
		}
		if (e.Kind == record.Advanced || e.Kind == record.KindCancelled) && h.last().Status != record.Running {
			continue
		}
		e.Principal = rapid.SampledFrom([]string{"local:agent", "local:other"}).Draw(t, "principal")
		e.Time = epoch.Add(time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(t, "time")))
		h.seal(e, restored)
	}
	return h
}

func drawObject(t *rapid.T) string {
	doc := map[string]any{}
	for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ключ", "<&>"}), 0, 3).Draw(t, "keys") {
		doc[key] = rapid.OneOf(
			rapid.Just(any(nil)), rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		).Draw(t, "value")
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// reread encodes and decodes events.
func reread(events []record.Event) ([]record.Event, error) {
	out := make([]record.Event, len(events))
	for i, e := range events {
		back, err := record.Decode(e.Body())
		if err != nil {
			return nil, err
		}
		back.PrevHash, back.Hash = e.PrevHash, e.Hash
		out[i] = back
	}
	return out, nil
}

func TestFoldingIsSealing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		events, err := reread(h.events)
		if err != nil {
			t.Fatal(err)
		}
		if err := record.Verify(each(events)); err != nil {
			t.Fatal(err)
		}
		var inst record.Instance
		byRevision := map[int64]record.Instance{}
		for i, e := range events {
			inst, err = record.Fold(inst, e, func(r int64) (record.Instance, error) { return byRevision[r], nil })
			if err != nil || !reflect.DeepEqual(inst, h.after[i]) {
				t.Fatalf("event %d (%s): folded to %+v, %v, sealed to %+v", i, e.Kind, inst, err, h.after[i])
			}
			byRevision[inst.Revision] = inst
		}
		for revision, want := range byRevision {
			if got, err := record.FoldAt(each(events), revision); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("revision %d: %+v, %v, want %+v", revision, got, err, want)
			}
		}
	})
}

func TestTamperingIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		i := rapid.IntRange(0, len(h.events)-1).Draw(t, "event")
		body := bytes.Clone(h.events[i].Body())
		at := rapid.IntRange(0, len(body)-1).Draw(t, "byte")
		body[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		events, err := reread(h.events)
		if err != nil {
			t.Fatal(err)
		}
		edited, err := record.Decode(body)
		if err != nil {
			return // detected on reading
		}
		edited.PrevHash, edited.Hash = events[i].PrevHash, events[i].Hash
		events[i] = edited
		var broken *record.BrokenError
		if err := record.Verify(each(events)); !errors.As(err, &broken) || broken.Seq != int64(i+1) {
			t.Fatalf("byte %d of event %d was changed to %q: %v", at, i+1, body[at], err)
		}
	})
}
