package record_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

func applyImport(to, data string, counts bool) record.Event {
	return record.Event{
		Kind: record.Imported, Action: "go", To: to, Patch: json.RawMessage(data),
		Import: &record.Import{Source: ".workflows", Line: 3, Counts: counts},
	}
}

func truncated(upTo int64, hash string) record.Event {
	return record.Event{Kind: record.Truncated, Truncation: &record.Truncation{UpTo: upTo, Hash: hash, Count: upTo, Revision: 1}}
}

// begun adds events up to "reviewing" at revision 2, with a freeze and a performer in the facts.
func begun(h *history) {
	h.seal(started(`{"n":1}`), nil)
	e := advanced("submit", "reviewing", `{"n":2}`)
	e.Freezes = []string{"/n"}
	h.seal(e, nil)
}

// TestFoldRareKinds checks the instance after each of them.
func TestFoldRareKinds(t *testing.T) {
	tests := map[string]struct {
		event    record.Event
		restores int64
		state    string
		status   record.Status
		context  string
		visited  []string
		revision int64
		version  int
	}{
		"undone":    {restoring(record.Undone, 1), 1, "draft", record.Running, `{"n":1}`, []string{"draft"}, 3, 1},
		"redone":    {restoring(record.Redone, 2), 2, "reviewing", record.Running, `{"n":2}`, []string{"draft", "reviewing"}, 3, 1},
		"migrated":  {migrated("signing"), 0, "signing", record.Running, `{"n":2}`, []string{"draft", "reviewing", "signing"}, 3, 2},
		"truncated": {truncated(1, strings.Repeat("a", 64)), 0, "reviewing", record.Running, `{"n":2}`, []string{"draft", "reviewing"}, 2, 1},
		"imported":  {applyImport("approved", `{"by":"x"}`, false), 0, "approved", record.Running, `{"n":2,"by":"x"}`, []string{"draft", "reviewing"}, 3, 1},
		"imported, and counted": {
			applyImport("approved", `{"by":"x"}`, true), 0, "approved", record.Running, `{"n":2,"by":"x"}`,
			[]string{"draft", "reviewing", "approved"},
			3, 1,
		},
		"reconciled": {
			record.Event{Kind: record.Reconciled, To: "draft", Patch: json.RawMessage(`{"m":3}`), Import: &record.Import{Source: ".workflows"}},
			0, "draft", record.Running, `{"m":3}`,
			[]string{"draft", "reviewing"},
			3, 1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{tb: t}
			begun(h)
			var restored *record.Instance
			if tt.restores > 0 {
				restored = h.at(tt.restores)
			}
			h.seal(tt.event, restored)
			got := h.last()
			if got.State != tt.state || got.Status != tt.status || string(got.Context) != tt.context {
				t.Errorf("in %q (%s) with %s, want %q (%s) with %s", got.State, got.Status, got.Context, tt.state, tt.status, tt.context)
			}
			if got.Revision != tt.revision || got.Version != tt.version || got.Seq != 3 {
				t.Errorf("revision %d, version %d, seq %d; want %d, %d, 3", got.Revision, got.Version, got.Seq, tt.revision, tt.version)
			}
			if !reflect.DeepEqual(got.Facts.Visited, tt.visited) {
				t.Errorf("visited %v, want %v", got.Facts.Visited, tt.visited)
			}
			folded, err := record.FoldAt(h.seq(), 0)
			if err != nil || !reflect.DeepEqual(folded, got) {
				t.Errorf("folded anew: %+v, %v; want %+v", folded, err, got)
			}
		})
	}
}

// TestUndoneTakesTheFactsBack: the frozen fields and performers are as they were before.
func TestUndoneTakesTheFactsBack(t *testing.T) {
	h := &history{tb: t}
	begun(h)
	h.back(record.Undone, 1)
	if got, want := h.last().Facts, h.at(1).Facts; !reflect.DeepEqual(got, want) {
		t.Errorf("facts %+v, want %+v", got, want)
	}
	h.back(record.Redone, 2)
	if got := h.last().Facts; len(got.Frozen) != 1 || len(got.Performed["submit"]) != 1 {
		t.Errorf("made again, the facts are %+v", got)
	}
}

// TestMigratedRenamesVisits: a visit counts under the new name and no longer under the
// old one, which may mean another state now.
func TestMigratedRenamesVisits(t *testing.T) {
	tests := map[string]struct {
		states map[string]string
		to     string
		want   []string
	}{
		"one":              {map[string]string{"reviewing": "review"}, "review", []string{"draft", "review"}},
		"of the past":      {map[string]string{"draft": "writing"}, "reviewing", []string{"writing", "reviewing"}},
		"two change names": {map[string]string{"draft": "reviewing", "reviewing": "draft"}, "draft", []string{"reviewing", "draft"}},
		"two become one":   {map[string]string{"draft": "work", "reviewing": "work"}, "work", []string{"work"}},
		"none":             {nil, "reviewing", []string{"draft", "reviewing"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{tb: t}
			begun(h)
			e := migrated(tt.to)
			e.Migration.States = tt.states
			h.seal(e, nil)
			if got := h.last().Facts.Visited; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("visited %v, want %v", got, tt.want)
			}
			if got := h.at(2).Facts.Visited; !reflect.DeepEqual(got, []string{"draft", "reviewing"}) {
				t.Errorf("the revision before was changed: %v", got)
			}
		})
	}
}

// TestMigratedCanEnd: the state may be final in the new version.
func TestMigratedCanEnd(t *testing.T) {
	h := &history{tb: t}
	begun(h)
	e := migrated("reviewing")
	e.Status = record.Complete
	h.seal(e, nil)
	if h.last().Status != record.Complete {
		t.Errorf("status %s, want complete", h.last().Status)
	}
}

// TestImportedBegins: an imported history begins without a started event.
func TestImportedBegins(t *testing.T) {
	h := &history{tb: t}
	e := applyImport("draft", `{"a":1}`, false)
	e.Instance, e.Workflow, e.Version, e.DefinitionHash = "wf-1", "doc", 1, "sha256:aa"
	h.seal(e, nil)
	got := h.last()
	if got.ID != "wf-1" || got.State != "draft" || got.Status != record.Running || got.Owner != "local:agent" || len(got.Facts.Visited) != 0 || got.Revision != 1 {
		t.Errorf("got %+v", got)
	}
	h.seal(applyImport("done", `{"b":2}`, true), nil)
	if got := h.last(); string(got.Context) != `{"a":1,"b":2}` || !reflect.DeepEqual(got.Facts.Visited, []string{"done"}) || got.Facts.Performed != nil {
		t.Errorf("got %+v", got)
	}
}

// TestImportedFreezes: a field that an imported step froze is frozen, whether the step counts or not.
func TestImportedFreezes(t *testing.T) {
	for _, counts := range []bool{false, true} {
		h := &history{tb: t}
		begun(h)
		e := applyImport("reviewing", `{"id":1}`, counts)
		e.Freezes = []string{"/id"}
		h.seal(e, nil)
		if got := h.last().Facts.Frozen; !reflect.DeepEqual(got, []string{"/n", "/id"}) {
			t.Errorf("counts %v: frozen %q", counts, got)
		}
	}
}

// TestImportedCheckpoint: a checkpoint may be imported, a truncation may not.
func TestImportedCheckpoint(t *testing.T) {
	h := &history{tb: t}
	begun(h)
	from := &record.Import{Source: "x"}
	h.seal(record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{ID: "cp-1"}, Import: from}, nil)
	cut := truncated(1, strings.Repeat("a", 64))
	cut.Time, cut.Principal = h.last().UpdatedAt, "op:eve"
	if _, _, err := record.Seal(h.last(), cut, nil); err != nil {
		t.Error(err)
	}
	cut.Import = from
	if _, _, err := record.Seal(h.last(), cut, nil); !errors.Is(err, record.ErrIllegalStep) {
		t.Errorf("got %v", err)
	}
}

func TestSealRejectsIllegalRareKinds(t *testing.T) {
	hash := strings.Repeat("a", 64)
	ended := func(h *history) {
		begun(h)
		e := advanced("end", "done", `{}`)
		e.Status = record.Complete
		h.seal(e, nil)
	}
	with := func(e record.Event, change func(*record.Event)) record.Event { change(&e); return e }
	at1 := func(h *history) *record.Instance { return h.at(1) }
	tests := map[string]struct {
		before   func(*history)
		event    record.Event
		restored func(*history) *record.Instance
	}{
		"an undo without a revision":     {begun, record.Event{Kind: record.Undone}, at1},
		"an undo of nothing at hand":     {begun, restoring(record.Undone, 1), nil},
		"an undo to another revision":    {begun, restoring(record.Undone, 2), at1},
		"an undo to another state":       {begun, with(restoring(record.Undone, 1), func(e *record.Event) { e.To = "reviewing" }), at1},
		"an undo with a patch":           {begun, with(restoring(record.Undone, 1), func(e *record.Event) { e.Patch = json.RawMessage(`{"a":1}`) }), at1},
		"an undo that begins":            {nil, with(restoring(record.Undone, 1), func(e *record.Event) { e.Instance, e.Workflow, e.Version, e.To = "wf-1", "doc", 1, "a" }), nil},
		"a redo with a patch":            {begun, with(restoring(record.Redone, 1), func(e *record.Event) { e.Patch = json.RawMessage(`{"a":1}`) }), at1},
		"a redo to the future":           {begun, restoring(record.Redone, 9), at1},
		"a migration that says nothing":  {begun, with(migrated("reviewing"), func(e *record.Event) { e.Migration = nil }), nil},
		"a migration with a patch":       {begun, with(migrated("reviewing"), func(e *record.Event) { e.Patch = json.RawMessage(`{"a":1}`) }), nil},
		"a migration of what has ended":  {ended, migrated("done"), nil},
		"a migration that cancels":       {begun, with(migrated("reviewing"), func(e *record.Event) { e.Status = record.Cancelled }), nil},
		"a migration from elsewhere":     {begun, with(migrated("reviewing"), func(e *record.Event) { e.From = "draft" }), nil},
		"a migration to another one":     {begun, with(migrated("reviewing"), func(e *record.Event) { e.Workflow = "other" }), nil},
		"a refusal with a migration":     {begun, with(refused("go", ``), func(e *record.Event) { e.Migration = &record.Migration{FromVersion: 1} }), nil},
		"a refusal with an import":       {begun, with(refused("go", ``), func(e *record.Event) { e.Import = &record.Import{Source: "x"} }), nil},
		"a refusal with a truncation":    {begun, with(refused("go", ``), func(e *record.Event) { e.Truncation = &record.Truncation{UpTo: 1, Hash: hash, Count: 1} }), nil},
		"an import from nowhere":         {begun, with(applyImport("x", `{}`, false), func(e *record.Event) { e.Import = nil }), nil},
		"an import of another version":   {begun, with(applyImport("x", `{}`, false), func(e *record.Event) { e.Version = 2 }), nil},
		"an import with a bad document":  {begun, applyImport("x", `[1]`, false), nil},
		"a reconciliation without cause": {begun, record.Event{Kind: record.Reconciled, To: "x"}, nil},
		"a reconciliation that begins": {nil, record.Event{
			Kind: record.Reconciled, Instance: "wf-1", Workflow: "doc", Version: 1, To: "x", Import: &record.Import{Source: "x"},
		}, nil},
		"a truncation of nothing":      {begun, truncated(0, hash), nil},
		"a truncation of itself":       {begun, truncated(3, hash), nil},
		"a truncation without a hash":  {begun, truncated(1, ""), nil},
		"a truncation that moves":      {begun, with(truncated(1, hash), func(e *record.Event) { e.To = "draft" }), nil},
		"a truncation without details": {begun, record.Event{Kind: record.Truncated}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{tb: t}
			if tt.before != nil {
				tt.before(h)
			}
			var restored *record.Instance
			if tt.restored != nil {
				restored = tt.restored(h)
			}
			tt.event.Time = epoch
			if _, _, err := record.Seal(h.last(), tt.event, restored); !errors.Is(err, record.ErrIllegalStep) {
				t.Errorf("got %v, want ErrIllegalStep", err)
			}
		})
	}
}
