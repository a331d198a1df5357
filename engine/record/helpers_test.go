package record_test

import (
	"encoding/json"
	"iter"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// history seals events one after the other and keeps the instance after each.
type history struct {
	tb interface {
		Helper()
		Fatalf(format string, args ...any)
	}
	events []record.Event
	after  []record.Instance // after[i] is the instance after events[i]
}

func (h *history) last() record.Instance {
	if len(h.after) == 0 {
		return record.Instance{}
	}
	return h.after[len(h.after)-1]
}

func (h *history) seal(e record.Event, restored *record.Instance) record.Event {
	h.tb.Helper()
	if e.Time.IsZero() {
		e.Time = epoch.Add(time.Duration(len(h.events)) * time.Second)
	}
	if e.Principal == "" {
		e.Principal, e.Role = "local:agent", "agent"
	}
	sealed, next, err := record.Seal(h.last(), e, restored)
	if err != nil {
		h.tb.Fatalf("seal %s: %v", e.Kind, err)
	}
	h.events, h.after = append(h.events, sealed), append(h.after, next)
	return sealed
}

func (h *history) seq() iter.Seq2[record.Event, error] { return each(h.events) }

func each(events []record.Event) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func started(context string) record.Event {
	return record.Event{
		Kind: record.Started, Instance: "wf-1", Workflow: "doc", Version: 1, DefinitionHash: "sha256:aa",
		To: "draft", Patch: json.RawMessage(context), Decision: decision(true),
	}
}

func advanced(action, to, data string) record.Event {
	return record.Event{Kind: record.Advanced, Action: action, To: to, Patch: json.RawMessage(data), Decision: decision(true)}
}

func refused(action, data string) record.Event {
	d := decision(false)
	d.Data = json.RawMessage(data)
	return record.Event{Kind: record.Refused, Action: action, Decision: d}
}

func decision(applied bool) *record.Decision {
	d := &record.Decision{ID: "dec-1", Rubric: judge.DefaultRubric(), Took: document.Milliseconds(time.Millisecond)}
	d.Outcome, d.Proposed, d.Applied = judge.Approve, judge.Approve, applied
	if !applied {
		d.Outcome, d.Code = judge.Reject, "required_field"
	}
	d.Confidence, d.Mode, d.DecidedBy = 1, judge.Enforce, judge.LayerFields
	return d
}

// sample is a history with every kind of event.
func sample(tb testing.TB) *history {
	tb.Helper()
	h := &history{tb: tb}
	h.seal(started(`{"title":"<a> & b","n":1.50}`), nil)
	h.seal(refused("submit", `{"x":null}`), nil)
	submit := advanced("submit", "reviewing", `{"n":null,"by":"zoë"}`)
	submit.Freezes = []string{"/title"}
	h.seal(submit, nil)
	h.seal(record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{ID: "cp-1"}}, nil)
	at := h.last()
	pre := refused("approve", `{}`)
	pre.Kind = record.Prechecked
	h.seal(pre, nil)
	approve := advanced("approve", "approved", `{"ok":true}`)
	approve.Status, approve.Principal, approve.Role = record.Complete, "local:other", "reviewer"
	h.seal(approve, nil)
	h.seal(record.Event{Kind: record.RolledBack, Rollback: &record.Rollback{CheckpointID: "cp-1", Restores: at.Revision}}, &at)
	h.seal(record.Event{Kind: record.KindCancelled, Reason: "done with it"}, nil)
	return h
}
