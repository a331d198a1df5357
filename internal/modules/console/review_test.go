package console

import (
	"net/http"
	"strings"
	"testing"

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
		"Only an operator can take back a move that a person approved", "note not there \"Read twice\"", "No evidence was fetched", "No model examined this.")
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
