package console

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// parkedPapers returns the reviews of n papers that wait, oldest first.
func parkedPapers(k *kit, n int) (ids []string) {
	k.define(operator, paper)
	for range n {
		id := k.start(agent, "paper", `{}`)
		k.advance(agent, id, "submit", `{"title":"On moves"}`)
		ids = append(ids, k.park(agent, id, "publish", `{"note":"Read twice"}`))
	}
	return ids
}

func TestReviewsAreDecidedOneAfterTheOther(t *testing.T) {
	k := newKit(t)
	ids := parkedPapers(k, 3)
	v := k.signIn(reviewer)
	page := v.show("reviews/" + ids[0])
	wantText(t, page, "May agent:ada perform publish , from review to published ?", "1 of 3 that wait", "The instance moves to published, and ends there (success)",
		"Only an operator can take it back, and only inside gavel.", "note not there \"Read twice\"", "No evidence was fetched", "No model examined this.")
	if strings.Contains(page, "checked>") || strings.Contains(page, "autofocus") {
		t.Error("a decision is selected, or a field has the focus")
	}
	if strings.Index(page, `value="reject"`) > strings.Index(page, `value="approve"`) {
		t.Error("approve comes first")
	}
	got := v.send("reviews/"+ids[0], "resolve", "decision", "approve", "reason", "The note is good.")
	if got.status != http.StatusSeeOther || got.next != "reviews/"+ids[1] {
		t.Fatalf("after the first: %d to %q\n%s", got.status, got.next, textOf(got.body))
	}
	wantText(t, v.show(got.next), "Approved; \"publish\" was performed.", "1 of 2 that wait")
	for _, id := range ids[1:] {
		got = v.send("reviews/"+id, "resolve", "decision", "reject", "reason", "Not this one.")
	}
	if got.next != "reviews" {
		t.Errorf("after the last: to %q", got.next)
	}
	wantText(t, v.show("reviews"), "No other review waits.", "Nothing waits for a person")
	if body := v.show("reviews/" + ids[0]); strings.Contains(body, "What will happen") || strings.Contains(body, "<form class") {
		t.Error("a review that is decided asks for a decision")
	}
	wantText(t, v.show("reviews?status=resolved"), "approve publish in paper", "reject publish in paper", "decided by rev:rob", "3 shown")
	wantText(t, v.show("reviews/"+ids[0]), "Approved by rev:rob", "The note is good.")
	wantText(t, v.show("reviews/"+ids[2]), "Rejected by rev:rob", "Allow it to be asked again")
	got = v.send("reviews/"+ids[2], "resolve", "decision", "reopen", "reason", "I was wrong.")
	if got.status != http.StatusSeeOther {
		t.Errorf("reopen: %d\n%s", got.status, textOf(got.body))
	}
	if r, err := k.Review(t.Context(), reviewer, ids[2]); err != nil || r.Status != record.ReviewReopened {
		t.Errorf("reopened: %v, %v", r.Status, err)
	}
}

func TestReviewsAreWalkedOldestFirst(t *testing.T) {
	k := newKit(t)
	k.define(operator, `{"name":"mixed","initialState":"a","states":{"a":{"transitions":{
		"low":{"target":"b","requireAssurance":"human","review":{"priority":"low"}},
		"high":{"target":"b","requireAssurance":"human","review":{"priority":"high"}}}},"b":{"final":true,"outcome":"success"}}}`)
	var ids []string
	for _, action := range []string{"low", "high", "low", "high"} {
		ids = append(ids, k.park(agent, k.start(agent, "mixed", `{}`), action, `{}`))
	}
	if urgent, err := k.Reviews(t.Context(), reviewer, engine.ReviewsRequest{}); err != nil || urgent.Reviews[0].ID != ids[1] {
		t.Fatalf("the operation begins with %+v, %v", urgent.Reviews[0], err)
	}
	v := k.signIn(reviewer)
	at := findAll(v.show(""), `href="/console/(reviews/[^"]*)" data-key="r"`)[0]
	for i, id := range ids {
		if at != "reviews/"+id {
			t.Fatalf("place %d has %s, want %s", i+1, at, id)
		}
		page := v.show(at)
		wantText(t, page, fmt.Sprintf("%d of 4 that wait", i+1))
		back := findAll(page, `href="/console/reviews/([^"]*)" data-key="k"`)
		if i == 0 && len(back) > 0 || i > 0 && (len(back) != 1 || back[0] != ids[i-1]) {
			t.Errorf("place %d leads back to %v", i+1, back)
		}
		if next := findAll(page, `href="/console/(reviews/[^"]*)" data-key="j"`); len(next) > 0 {
			at = next[0]
		}
	}
	page := v.show("reviews")
	wantText(t, page, "4 shown, oldest first")
	if listed := findAll(page, `<li id="(rev-[^"]*)"`); !slices.Equal(listed, ids) {
		t.Errorf("listed %v, want %v", listed, ids)
	}
	for i := range listedReviews {
		one := engine.Principal{ID: fmt.Sprint("agent:", i/10), Role: engine.RoleAgent} // each may ask for a few
		k.park(one, k.start(one, "mixed", `{}`), "low", `{}`)
	}
	page = v.show("reviews")
	wantText(t, page, "50 shown, most urgent first, then oldest first")
	if listed := findAll(page, `<li id="(rev-[^"]*)"`); listed[0] != ids[1] {
		t.Errorf("the first of many pages begins with %s, want %s", listed[0], ids[1])
	}
	wantText(t, v.show(findAll(page, `href="/console/(reviews\?[^"]*cursor=[^"]*)"`)[0]), "4 shown, most urgent first, then oldest first")
}

func TestAMaskedFieldThatMayChangeIsListed(t *testing.T) {
	k := newKit(t)
	k.define(operator, `{"name":"cards","initialState":"a","sensitive":["/card","/holder/name"],"states":{
		"a":{"transitions":{"pay":{"target":"b","requireAssurance":"human"},"go":"a"}},"b":{"final":true,"outcome":"success"}}}`)
	const notice = "masked: it may have changed"
	id := k.start(agent, "cards", `{"card":"4111222233334444","holder":{"name":"Ada Byron","city":"London"},"x":"v0"}`)
	k.advance(agent, id, "go", `{"x":"v1","card":"4999222233334444"}`)
	review := k.park(agent, id, "pay", `{"x":"v2","card":"5555122223333444","note":"for 5555122223333444"}`)
	v := k.signIn(reviewer)
	for page, want := range map[string][]string{
		"reviews/" + review:                {`card "[masked]" ` + notice, `x "v1" "v2"`},
		"instances/" + id + "/decisions/3": {`card "[masked]" ` + notice},
		"instances/" + id + "/decisions/2": {`card "[masked]" ` + notice, `x "v0" "v1"`},
		"instances/" + id:                  {`card "[masked]" ` + notice, `x "v0" "v1"`},
	} {
		body := v.show(page)
		wantText(t, body, want...)
		// Moves name what they are about. The page of an instance compares contexts alone.
		if lists := strings.Contains(textOf(body), "holder.name"); lists != (page == "instances/"+id) {
			t.Errorf("/%s lists the untouched name: %v", page, lists)
		}
	}
	wantText(t, k.signIn(operator).show("reviews/"+review), `card "4999222233334444" "5555122223333444"`)
	if body := k.signIn(operator).show("reviews/" + review); strings.Contains(body, notice) {
		t.Error("an operator, who sees the values, is told that one is masked")
	}
}

func TestDownloadsHaveNamesOfTheirOwn(t *testing.T) {
	k := newKit(t)
	review := parkedPapers(k, 1)[0]
	r, err := k.Review(t.Context(), reviewer, review)
	if err != nil {
		t.Fatal(err)
	}
	v, seen := k.signIn(reviewer), map[string]bool{}
	for _, page := range []string{"reviews/" + review, "instances/" + r.Instance + "/decisions/2", "instances/" + r.Instance + "/decisions/3"} {
		for _, part := range []string{"review", "decision", "data", "context", "evidence"} {
			got := v.get(page + "/-/" + part + ".json")
			if got.status != http.StatusOK {
				continue
			}
			name := got.header.Get("Content-Disposition")
			if seen[name] || !strings.HasSuffix(name, "-"+part+`.json"`) {
				t.Errorf("/%s/-/%s.json is named %s", page, part, name)
			}
			seen[name] = true
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d downloads", len(seen))
	}
}

var keyed = regexp.MustCompile(`<[^>]*data-key="(.)"[^>]*>`)

func TestKeysAreAnnounced(t *testing.T) {
	k := newKit(t)
	ids := parkedPapers(k, 3)
	for i := range listedReviews {
		one := engine.Principal{ID: fmt.Sprint("agent:", i/10), Role: engine.RoleAgent} // each may ask for a few
		id := k.start(one, "paper", `{}`)
		k.advance(one, id, "submit", `{"title":"On moves"}`)
		k.park(one, id, "publish", `{}`)
	}
	v := k.signIn(reviewer)
	found := 0
	for _, page := range []string{"reviews", "reviews/" + ids[1]} {
		body := v.show(page)
		for _, m := range keyed.FindAllStringSubmatch(body, -1) {
			found++
			if !strings.Contains(m[0], `aria-keyshortcuts="`+m[1]+`"`) {
				t.Errorf("/%s: %s does not announce its key", page, m[0])
			}
		}
		if strings.Contains(body, "<kbd>") {
			t.Errorf("/%s: a hint of a key is part of a name", page)
		}
	}
	if found != 5 {
		t.Errorf("%d keys", found)
	}
}
