package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

func TestInstancesCanBeFilteredAndPaged(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	k.define(operator, strings.Replace(paper, `"paper"`, `"letter"`, 1))
	var ids []string
	for range listedInstances + 5 {
		ids = append(ids, k.start(agent, "paper", `{}`))
	}
	letter := k.start(agent, "letter", `{}`)
	v := k.signIn(auditor)
	first := v.show("instances")
	wantText(t, first, "50 shown, newest first", "letter")
	if !strings.Contains(first, `id="`+letter+`"`) || strings.Contains(first, `id="`+ids[0]+`"`) {
		t.Error("the first page does not have the newest instances")
	}
	second := v.show(findAll(first, `href="/console/(instances\?[^"]*cursor=[^"]*)"`)[0])
	wantText(t, second, "6 shown", "Newest")
	if !strings.Contains(second, `id="`+ids[0]+`"`) {
		t.Error("the second page does not have the oldest instance")
	}
	filtered := v.show("instances?workflow=letter&status=running&state=draft")
	wantText(t, filtered, "1 shown")
	wantText(t, v.show("instances?workflow=letter&status=complete"), "No instance here")
	if got := v.get("instances?status=lost"); got.status != http.StatusBadRequest {
		t.Errorf("an unknown status got %d", got.status)
	}
}

func TestTheTimelineIsPagedByCursor(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	id := k.start(agent, "paper", `{}`)
	for i := range 60 {
		k.advance(agent, id, "submit", fmt.Sprintf(`{"title":"Version %d"}`, i))
		k.advance(agent, id, "revise", `{}`)
	}
	v := k.signIn(reviewer)
	seen := map[string]int{}
	pages, next := 0, "instances/"+id
	for next != "" {
		page := v.show(next)
		pages++
		for seq := int64(1); seq <= 121; seq++ {
			if strings.Contains(page, fmt.Sprintf(`<li id="e%d">`, seq)) {
				seen[fmt.Sprint(seq)]++
			}
		}
		next = ""
		if found := findAll(page, `href="/console/(instances/[^"]*\?before=\d+)" data-key="j"`); len(found) > 0 {
			next = found[0]
		}
	}
	if pages != 3 || len(seen) != 121 {
		t.Errorf("%d pages show %d of 121 events", pages, len(seen))
	}
	for seq, n := range seen {
		if n != 1 {
			t.Errorf("event %s is on %d pages", seq, n)
		}
	}
	wantText(t, v.show("instances/"+id+"?revision=2"), "at revision 2", `"title": "Version 0"`)
	wantText(t, v.show("instances/"+id+"?revision=400"), "The instance has no revision 400 yet")
}

func TestRemovedEventsAreNeitherCountedNorOffered(t *testing.T) {
	k := newKit(t)
	k.define(operator, `{"name":"fading","initialState":"a","states":{
		"a":{"transitions":{"go":"b"}},"b":{"transitions":{"back":"a","end":"c"}},"c":{"final":true,"outcome":"success"}}}`)
	id := k.start(agent, "fading", `{}`)
	for range 60 {
		k.advance(agent, id, "go", `{}`)
		k.advance(agent, id, "back", `{}`)
	}
	// The checkpoint, 48 moves and the event of the removal fill one page exactly.
	if _, err := k.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	for i := range 47 {
		k.advance(agent, id, []string{"go", "back"}[i%2], `{}`)
	}
	k.advance(agent, id, "end", `{}`)
	v := k.signIn(auditor)
	wantText(t, v.show("instances/"+id), "revision 169 · 170 events", "50 of 170 events", "Older")
	k.removeEvents(id, 121)
	page := v.show("instances/" + id)
	wantText(t, page, "50 events, earlier ones were removed", "50 of 50 events; earlier ones were removed", "event 122, revision 121")
	if strings.Contains(page, "?before=") {
		t.Error("an older page is offered, but there is none")
	}
	wantText(t, v.show("instances/"+id+"?before=122"), "0 of 50 events; earlier ones were removed")
	wantText(t, v.show("instances/"+id+"?before=130"), "8 of 50 events; earlier ones were removed")
}

// removeEvents removes the first events of an instance, as a retention does.
func (k *kit) removeEvents(id string, upTo int64) {
	k.t.Helper()
	ctx := k.t.Context()
	floor, err := engine.FoldTo(ctx, k.store, id, upTo, upTo)
	if err != nil {
		k.t.Fatal(err)
	}
	inst, err := k.store.Load(ctx, id)
	if err != nil {
		k.t.Fatal(err)
	}
	ev, next, err := record.Seal(inst, record.Event{
		Kind: record.Truncated, Time: inst.UpdatedAt, Principal: operator.ID, Role: string(operator.Role),
		Truncation: &record.Truncation{UpTo: floor.Seq, Hash: floor.Head, Count: upTo, Revision: floor.Revision, Floor: record.DigestState(floor)},
	}, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.store.Commit(ctx, store.Commit{Expect: inst.Seq, Events: []record.Event{ev}, Next: next, Floor: &floor}); err != nil {
		k.t.Fatal(err)
	}
}
