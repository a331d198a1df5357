package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// reviewForm is the form of a page of a review, as a browser keeps it.
func (v *visitor) reviewForm(page, decision, reason string) url.Values {
	v.kit.t.Helper()
	return url.Values{
		"csrf": {csrfField.FindStringSubmatch(v.show(page))[1]}, "from": {base + page}, "decision": {decision}, "reason": {reason},
	}
}

func TestOfTwoBrowsersOneDecides(t *testing.T) {
	k := newKit(t)
	ids := parkedPapers(k, 2)
	page := "reviews/" + ids[0]
	first, last := k.signIn(reviewer), k.signIn(second)
	approval, rejection := first.reviewForm(page, "approve", "Read it."), last.reviewForm(page, "reject", "Typed at length.")
	stream := last.follow(page, -1)
	if got := first.submit(page+"/-/resolve", approval); got.status != http.StatusSeeOther {
		t.Fatalf("the first: %d\n%s", got.status, textOf(got.body))
	}
	stream.waitFor("state", "Approved by rev:rob")
	got := last.submit(page+"/-/resolve", rejection)
	if got.status != http.StatusConflict {
		t.Errorf("the second got %d", got.status)
	}
	wantText(t, got.body, "The review is no longer open: it is resolved (approve) by rev:rob. Read it.", "Approved by rev:rob", "0s ago", "Your reason was not sent", "Typed at length.")
	if strings.Contains(got.body, "<body data-live") {
		t.Error("the page with what was typed is updated")
	}
	// The first browser sends its form twice: nothing happens again.
	if got := first.submit(page+"/-/resolve", approval); got.status != http.StatusSeeOther {
		t.Errorf("the same form again got %d", got.status)
	}
	if r, err := k.Review(t.Context(), auditor, ids[0]); err != nil || r.By != reviewer.ID || r.Channel != record.ChannelAPI {
		t.Errorf("decided by %q (%q), %v", r.By, r.Channel, err)
	}
}

func TestManyBrowsersDecideAReviewOnce(t *testing.T) {
	k := newKit(t)
	page := "reviews/" + parkedPapers(k, 1)[0]
	const browsers = 8
	var group sync.WaitGroup
	answers := make(chan answer, browsers)
	for i := range browsers {
		who := []engine.Principal{reviewer, second, operator}[i%3]
		v := k.signIn(who)
		form := v.reviewForm(page, []string{"approve", "reject"}[i%2], fmt.Sprintf("Reason %d", i))
		group.Go(func() { answers <- v.submit(page+"/-/resolve", form) })
	}
	group.Wait()
	close(answers)
	count := map[int]int{}
	for a := range answers {
		count[a.status]++
		if a.status == http.StatusConflict {
			wantText(t, a.body, "The review is no longer open")
		}
	}
	if count[http.StatusSeeOther] != 1 || count[http.StatusConflict] != browsers-1 {
		t.Errorf("the statuses are %v", count)
	}
}

func TestADecisionAfterARestart(t *testing.T) {
	k := newKit(t)
	page := "reviews/" + parkedPapers(k, 1)[0]
	v := k.signIn(reviewer)
	form := v.reviewForm(page, "approve", "Read it.")
	k.sessions.mu.Lock()
	clear(k.sessions.byID) // sessions live in memory
	k.sessions.mu.Unlock()
	got := v.submit(page+"/-/resolve", form)
	if got.status != http.StatusUnauthorized {
		t.Errorf("without a session: %d", got.status)
	}
	wantText(t, got.body, "Your session has ended, so nothing was done.")
	again := k.signIn(reviewer)
	if got := again.submit(page+"/-/resolve", form); got.status != http.StatusForbidden {
		t.Errorf("with the form of another session: %d", got.status)
	}
	wantText(t, again.show(page), "1 of 1 that wait", "Your decision")
	if got := again.send(page, "resolve", "decision", "approve", "reason", "Read it."); got.status != http.StatusSeeOther {
		t.Errorf("after signing in again: %d", got.status)
	}
}

func TestReviewFormsAreGuarded(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	id := k.start(agent, "paper", `{}`)
	k.advance(agent, id, "submit", `{"title":"On moves"}`)
	review := k.park(operator, id, "publish", `{}`)
	page := "reviews/" + review
	for what, c := range map[string]struct {
		who    engine.Principal
		change func(url.Values)
		status int
		text   string
	}{
		"no CSRF token":       {reviewer, func(f url.Values) { f.Del("csrf") }, http.StatusForbidden, "out of date, so nothing was done"},
		"another CSRF token":  {reviewer, func(f url.Values) { f.Set("csrf", k.signIn(reviewer).reviewForm(page, "", "").Get("csrf")) }, http.StatusForbidden, "out of date, so nothing was done"},
		"no decision":         {reviewer, func(f url.Values) { f.Del("decision") }, http.StatusBadRequest, "must be approve or reject"},
		"no reason":           {reviewer, func(f url.Values) { f.Set("reason", " ") }, http.StatusBadRequest, "reason"},
		"an output":           {reviewer, func(f url.Values) { f.Set("output", "1") }, http.StatusBadRequest, "only for reviews of a step"},
		"not JSON":            {reviewer, func(f url.Values) { f.Set("output", "{") }, http.StatusBadRequest, "The output is not JSON."},
		"a long reason":       {reviewer, func(f url.Values) { f.Set("reason", strings.Repeat("x", 5000)) }, http.StatusRequestEntityTooLarge, "reason"},
		"one's own request":   {operator, func(url.Values) {}, http.StatusForbidden, "You asked for this move yourself."},
		"an auditor":          {auditor, func(url.Values) {}, http.StatusForbidden, "may not resolve a review"},
		"outside one's scope": {limited, func(url.Values) {}, http.StatusNotFound, "There is no review"},
	} {
		v := k.signIn(c.who)
		form := url.Values{"csrf": {csrfField.FindStringSubmatch(v.show("reviews"))[1]}, "from": {base + page}, "decision": {"approve"}, "reason": {"Fine."}}
		c.change(form)
		got := v.submit(page+"/-/resolve", form)
		if got.status != c.status {
			t.Errorf("%s: got %d, want %d", what, got.status, c.status)
		}
		wantText(t, got.body, c.text)
		if c.who == reviewer && c.status == http.StatusBadRequest && form.Get("reason") == "Fine." && !strings.Contains(got.body, ">Fine.</textarea>") {
			t.Errorf("%s: the reason is lost", what)
		}
	}
	if r, err := k.Review(t.Context(), auditor, review); err != nil || r.Status != record.ReviewOpen {
		t.Errorf("the review is %s, %v", r.Status, err)
	}
	if body := k.signIn(operator).show(page); strings.Contains(body, "decision-form") || !strings.Contains(body, "Leave it to another reviewer") {
		t.Error("the requester gets the form")
	}
	if body := k.signIn(auditor).show(page); strings.Contains(body, "decision-form") {
		t.Error("an auditor gets the form")
	}
}

func TestAReviewThatEndsMeanwhileSaysSoInPlace(t *testing.T) {
	var mu sync.Mutex
	late := time.Duration(0)
	k := newKit(t, func(s *setup) {
		s.engine = append(s.engine, func(cfg *engine.Config) {
			cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(late) }
		})
	})
	k.define(operator, strings.Replace(paper, `"requireAssurance":"human"`, `"requireAssurance":"human","review":{"expiresAfter":"1h"}`, 1))
	var instances, reviews []string
	for range 2 {
		id := k.start(agent, "paper", `{}`)
		k.advance(agent, id, "submit", `{"title":"On moves"}`)
		instances, reviews = append(instances, id), append(reviews, k.park(agent, id, "publish", `{}`))
	}
	v := k.signIn(reviewer)
	form := v.reviewForm("reviews/"+reviews[0], "approve", "Fine.")
	stream := v.follow("reviews/"+reviews[0], -1)
	k.advance(agent, instances[0], "revise", `{}`)
	stream.waitFor("state", "No longer valid")
	got := v.submit("reviews/"+reviews[0]+"/-/resolve", form)
	if got.status != http.StatusConflict {
		t.Errorf("a stale review: %d", got.status)
	}
	wantText(t, got.body, "No longer valid", "Your reason was not sent", "Fine.")

	form = v.reviewForm("reviews/"+reviews[1], "approve", "Fine.")
	mu.Lock()
	late = 2 * time.Hour
	mu.Unlock()
	wantText(t, v.show("reviews/"+reviews[1]), "Expired: nobody decided in time")
	if got = v.submit("reviews/"+reviews[1]+"/-/resolve", form); got.status != http.StatusConflict {
		t.Errorf("an expired review: %d", got.status)
	}
	wantText(t, got.body, "Expired: nobody decided in time", "Your reason was not sent")
	wantText(t, v.show("reviews?status=expired"), "1 shown")
	wantText(t, v.show("reviews?status=stale"), "1 shown")
}

func TestTenReviewsAreTenDecisions(t *testing.T) {
	k := newKit(t)
	parkedPapers(k, 10)
	v := k.signIn(reviewer)
	page := findAll(v.show("reviews"), `<a href="/console/(reviews/[^"]+)">`)[0]
	for i := range 10 {
		body := v.show(page)
		if i < 9 && len(findAll(body, `href="/console/(reviews/[^"]+)" data-key="j"`)) != 1 || !strings.Contains(body, `data-key="a"`) || !strings.Contains(body, `data-key="r"`) {
			t.Errorf("review %d lacks keys", i)
		}
		page = v.send(page, "resolve", "decision", "approve", "reason", "As the nine others.").next
	}
	if page != "reviews" {
		t.Errorf("after ten decisions: %q", page)
	}
	done, err := k.Reviews(t.Context(), auditor, engine.ReviewsRequest{Status: "resolved"})
	if err != nil || done.Count != 10 {
		t.Errorf("%d are resolved, %v", done.Count, err)
	}
}
