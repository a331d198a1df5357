package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
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
