package record_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

func TestSealSetsTheFrameAndFoldsTheInstance(t *testing.T) {
	h := sample(t)
	wantRevisions := []int64{1, 1, 2, 2, 2, 3, 4, 5}
	for i, e := range h.events {
		inst := h.after[i]
		prev := ""
		if i > 0 {
			prev = h.events[i-1].Hash
		}
		if e.Seq != int64(i+1) || e.Revision != wantRevisions[i] || e.PrevHash != prev || len(e.Hash) != 64 {
			t.Errorf("event %d: seq %d revision %d prev %q hash %q", i, e.Seq, e.Revision, e.PrevHash, e.Hash)
		}
		if inst.Seq != e.Seq || inst.Revision != e.Revision || inst.Head != e.Hash || !inst.UpdatedAt.Equal(e.Time) {
			t.Errorf("event %d leads to %+v", i, inst)
		}
		if e.Status != inst.Status || e.To != inst.State {
			t.Errorf("event %d says %s %s, the instance %s %s", i, e.To, e.Status, inst.State, inst.Status)
		}
	}
	first := h.after[0]
	if first.Owner != "local:agent" || !first.CreatedAt.Equal(epoch) || first.State != "draft" || first.Status != record.Running {
		t.Errorf("after start: %+v", first)
	}
	if got, want := string(h.after[2].Context), `{"title":"<a> & b","by":"zoë"}`; got != want {
		t.Errorf("context after submit: %s, want %s", got, want)
	}
	complete := h.after[5]
	wantFacts := workflow.Facts{
		Visited: []string{"draft", "reviewing", "approved"}, Frozen: []string{"/title"},
		Performed: map[string][]string{"submit": {"local:agent"}, "approve": {"local:other"}},
	}
	if complete.Status != record.Complete || !reflect.DeepEqual(complete.Facts, wantFacts) {
		t.Errorf("after approve: %s %+v", complete.Status, complete.Facts)
	}
	back, at := h.after[6], h.after[3]
	if back.State != at.State || back.Status != at.Status || string(back.Context) != string(at.Context) || !reflect.DeepEqual(back.Facts, at.Facts) {
		t.Errorf("a rollback restored %+v, want %+v", back, at)
	}
	if h.last().Status != record.Cancelled || h.last().State != "reviewing" {
		t.Errorf("after cancel: %+v", h.last())
	}
}

func TestFactsCountOnce(t *testing.T) {
	h := &history{tb: t}
	h.seal(started(`{}`), nil)
	for range 2 {
		for _, to := range []string{"reviewing", "draft"} {
			e := advanced("go", to, `{}`)
			e.Freezes = []string{"/a", "/b"}
			h.seal(e, nil)
		}
	}
	want := workflow.Facts{
		Visited: []string{"draft", "reviewing"}, Frozen: []string{"/a", "/b"},
		Performed: map[string][]string{"go": {"local:agent"}},
	}
	if got := h.last().Facts; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSealDoesNotShareFactsBetweenSteps(t *testing.T) {
	h := &history{tb: t}
	h.seal(started(`{}`), nil)
	for _, to := range []string{"b", "c", "d", "e"} { // so that lists have room to grow into
		e := advanced("go", to, `{}`)
		e.Principal, e.Freezes = "by "+to, []string{"/" + to}
		h.seal(e, nil)
	}
	base := h.last()
	before := base.Clone()
	var forks, wants []record.Instance
	for _, to := range []string{"x", "y", "z"} { // from the same base: none may see another fork's facts
		e := advanced("go", to, `{}`)
		e.Time, e.Principal, e.Freezes = epoch, "by "+to, []string{"/" + to}
		_, next, err := record.Seal(base, e, nil)
		if err != nil {
			t.Fatal(err)
		}
		forks, wants = append(forks, next), append(wants, next.Clone())
	}
	if !reflect.DeepEqual(forks, wants) {
		t.Errorf("forks share facts: %+v", forks)
	}
	if !reflect.DeepEqual(base, before) {
		t.Errorf("the base was changed: %+v", base)
	}
}

func TestSealRefusesIllegalSteps(t *testing.T) {
	running := func(h *history) { h.seal(started(`{}`), nil) }
	ended := func(h *history) {
		running(h)
		e := advanced("end", "done", `{}`)
		e.Status = record.Complete
		h.seal(e, nil)
	}
	with := func(e record.Event, change func(*record.Event)) record.Event { change(&e); return e }
	tests := map[string]struct {
		before   func(*history)
		event    record.Event
		restored *record.Instance
		want     error
	}{
		"unknown kind":               {running, record.Event{Kind: "exploded"}, nil, record.ErrUnknownKind},
		"no kind":                    {running, record.Event{}, nil, record.ErrUnknownKind},
		"a second start":             {running, started(`{}`), nil, record.ErrIllegalStep},
		"no start":                   {nil, with(advanced("go", "b", ``), func(e *record.Event) { e.Instance, e.Workflow, e.Version = "wf-1", "doc", 1 }), nil, record.ErrIllegalStep},
		"a start without instance":   {nil, with(started(`{}`), func(e *record.Event) { e.Instance = "" }), nil, record.ErrIllegalStep},
		"a start without state":      {nil, with(started(`{}`), func(e *record.Event) { e.To = "" }), nil, record.ErrIllegalStep},
		"a start from somewhere":     {nil, with(started(`{}`), func(e *record.Event) { e.From = "x" }), nil, record.ErrIllegalStep},
		"a start that is cancelled":  {nil, with(started(`{}`), func(e *record.Event) { e.Status = record.Cancelled }), nil, record.ErrIllegalStep},
		"a start that was refused":   {nil, with(started(`{}`), func(e *record.Event) { e.Decision = decision(false) }), nil, record.ErrIllegalStep},
		"a start with a bad patch":   {nil, started(`[1]`), nil, record.ErrIllegalStep},
		"another instance":           {running, with(refused("go", ``), func(e *record.Event) { e.Instance = "wf-2" }), nil, record.ErrIllegalStep},
		"another version":            {running, with(refused("go", ``), func(e *record.Event) { e.Version = 2 }), nil, record.ErrIllegalStep},
		"another definition":         {running, with(refused("go", ``), func(e *record.Event) { e.DefinitionHash = "sha256:bb" }), nil, record.ErrIllegalStep},
		"from another state":         {running, with(advanced("go", "b", ``), func(e *record.Event) { e.From = "b" }), nil, record.ErrIllegalStep},
		"an advance to nowhere":      {running, advanced("go", "", ``), nil, record.ErrIllegalStep},
		"an advance without verdict": {running, with(advanced("go", "b", ``), func(e *record.Event) { e.Decision = nil }), nil, record.ErrIllegalStep},
		"an advance not applied":     {running, with(advanced("go", "b", ``), func(e *record.Event) { e.Decision = decision(false) }), nil, record.ErrIllegalStep},
		"an advance that cancels":    {running, with(advanced("go", "b", ``), func(e *record.Event) { e.Status = record.Cancelled }), nil, record.ErrIllegalStep},
		"an advance after the end":   {ended, advanced("go", "b", ``), nil, record.ErrIllegalStep},
		"a cancel after the end":     {ended, record.Event{Kind: record.KindCancelled}, nil, record.ErrIllegalStep},
		"a refusal that moves":       {running, with(refused("go", ``), func(e *record.Event) { e.To = "b" }), nil, record.ErrIllegalStep},
		"a refusal that merges":      {running, with(refused("go", ``), func(e *record.Event) { e.Patch = json.RawMessage(`{}`) }), nil, record.ErrIllegalStep},
		"a refusal that freezes":     {running, with(refused("go", ``), func(e *record.Event) { e.Freezes = []string{"/a"} }), nil, record.ErrIllegalStep},
		"a refusal that ends":        {running, with(refused("go", ``), func(e *record.Event) { e.Status = record.Complete }), nil, record.ErrIllegalStep},
		"a refusal that applied":     {running, with(refused("go", ``), func(e *record.Event) { e.Decision = decision(true) }), nil, record.ErrIllegalStep},
		"an empty checkpoint":        {running, record.Event{Kind: record.Checkpointed}, nil, record.ErrIllegalStep},
		"a checkpoint elsewhere":     {running, record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{ID: "c", Revision: 9}}, nil, record.ErrIllegalStep},
		"a rollback to nothing":      {running, record.Event{Kind: record.RolledBack, To: "draft", Rollback: &record.Rollback{Restores: 1}}, nil, record.ErrIllegalStep},
		"a rollback to another":      {running, record.Event{Kind: record.RolledBack, Rollback: &record.Rollback{Restores: 1}}, &record.Instance{ID: "wf-2", Revision: 1, State: "draft", Status: record.Running}, record.ErrIllegalStep},
		"a rollback to the future":   {running, record.Event{Kind: record.RolledBack, Rollback: &record.Rollback{Restores: 2}}, &record.Instance{ID: "wf-1", Revision: 2, State: "draft", Status: record.Running}, record.ErrIllegalStep},
		"a time beyond storing":      {running, with(refused("go", ``), func(e *record.Event) { e.Time = time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC) }), nil, record.ErrMalformed},
		"text that is not UTF-8":     {running, with(refused("go", ``), func(e *record.Event) { e.Action = "g\xffo" }), nil, record.ErrMalformed},
		"a document not UTF-8":       {running, refused("go", "{\"a\":\"\xff\"}"), nil, record.ErrMalformed},
		"an event over the limit":    {running, refused("go", `{"a":"`+strings.Repeat("x", record.MaxEvent)+`"}`), nil, record.ErrTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{tb: t}
			if tt.before != nil {
				tt.before(h)
			}
			if tt.event.Time.IsZero() {
				tt.event.Time = epoch
			}
			_, _, err := record.Seal(h.last(), tt.event, tt.restored)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestSealBoundsTheContext(t *testing.T) {
	h := &history{tb: t}
	h.seal(started(`{}`), nil)
	big := strings.Repeat("x", 100<<10)
	for _, key := range []string{"a", "b", "d", "e", "f"} {
		h.seal(advanced("go", "draft", `{"`+key+`":"`+big+`"}`), nil)
	}
	e := advanced("go", "draft", `{"c":"`+big+`"}`)
	e.Time = epoch
	if _, _, err := record.Seal(h.last(), e, nil); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a context of 600 KB: got %v, want ErrTooLarge", err)
	}
}

func TestFoldAtRevisions(t *testing.T) {
	h := sample(t)
	want := map[int64]record.Instance{}
	for _, inst := range h.after {
		want[inst.Revision] = inst
	}
	want[0] = h.last()
	for revision, inst := range want {
		got, err := record.FoldAt(h.seq(), revision)
		if err != nil || !reflect.DeepEqual(got, inst) {
			t.Errorf("revision %d: got %+v, %v, want %+v", revision, got, err, inst)
		}
	}
	if _, err := record.FoldAt(h.seq(), 99); !errors.Is(err, record.ErrNoRevision) {
		t.Errorf("revision 99: got %v", err)
	}
	if _, err := record.FoldAt(each(nil), 0); !errors.Is(err, record.ErrNoRevision) {
		t.Errorf("no events: got %v", err)
	}
	boom := errors.New("boom")
	if _, err := record.FoldAt(func(yield func(record.Event, error) bool) { yield(record.Event{}, boom) }, 0); !errors.Is(err, boom) {
		t.Errorf("a failing read: got %v", err)
	}
}

func TestCheckAppend(t *testing.T) {
	h := sample(t)
	if err := record.CheckAppend(2, h.events[2:4], h.after[3]); err != nil {
		t.Errorf("two good events: %v", err)
	}
	unsealed := refused("go", ``)
	unsealed.Instance, unsealed.Seq = "wf-1", 9
	tests := map[string]struct {
		expect int64
		events []record.Event
		next   record.Instance
	}{
		"nothing":         {0, nil, h.after[0]},
		"a gap":           {1, h.events[2:3], h.after[2]},
		"another end":     {2, h.events[2:3], h.after[3]},
		"not sealed":      {8, []record.Event{unsealed}, h.last()},
		"a missing event": {1, []record.Event{h.events[1], h.events[3]}, h.after[3]},
	}
	for name, tt := range tests {
		if err := record.CheckAppend(tt.expect, tt.events, tt.next); !errors.Is(err, record.ErrIllegalStep) {
			t.Errorf("%s: got %v, want ErrIllegalStep", name, err)
		}
	}
}
