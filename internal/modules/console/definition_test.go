package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// paper2 is the second version of paper.
var paper2 = strings.Replace(paper, `"revise":"draft"`, `"revise":{"target":"draft","requiredFields":["reason"]}`, 1)

func TestTheDefinitionPages(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	k.define(operator, paper2)
	id := k.start(agent, "paper", `{}`)
	k.advance(agent, id, "submit", `{}`)
	k.advance(agent, id, "submit", `{"title":"On moves"}`)
	for _, who := range []engine.Principal{reviewer, operator, auditor} {
		v := k.signIn(who)
		wantText(t, v.show("definitions"), "1 workflow", "paper", "version 2", operator.ID)
		page := v.show("definitions/paper")
		wantText(t, page, "version 2", "What version 2 changed", `+ "reason"`, "draft submit review 2 1 50 %", "required_field 1", "review publish published 0 0", "Lint", "Complete definition")
		if !strings.Contains(page, `<svg xmlns="http://www.w3.org/2000/svg" class="gavel-diagram"`) || !strings.Contains(textOf(page), "2 asked, 50% refused") {
			t.Errorf("a %s sees no diagram with traffic", who.Role)
		}
		if has := strings.Contains(page, "Playground"); has != (who.Role != engine.RoleAuditor) {
			t.Errorf("a %s sees the playground: %v", who.Role, has)
		}
		old := v.show("definitions/paper?version=1")
		wantText(t, old, "version 1", "not the newest")
		if strings.Contains(old, "What version") {
			t.Error("the first version is compared with something")
		}
		if got := v.get("definitions/paper/-/definition.json?version=1"); got.status != http.StatusOK || !strings.Contains(got.body, `"revise": "draft"`) || !strings.Contains(got.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("the download of version 1: %d\n%s", got.status, got.body)
		}
	}
	for path, want := range map[string]int{"definitions/other": http.StatusNotFound, "definitions/paper?version=3": http.StatusNotFound, "definitions/paper?version=x": http.StatusBadRequest} {
		if got := k.signIn(reviewer).get(path); got.status != want {
			t.Errorf("%s: got %d, want %d", path, got.status, want)
		}
	}
	v := k.signIn(limited)
	if got := v.get("definitions/paper"); got.status != http.StatusNotFound {
		t.Errorf("a visitor limited to other workflows got %d", got.status)
	}
	wantText(t, v.show("definitions"), "No workflow is defined yet")
}

func TestThePlaygroundShowsTheVerdictAndRecordsNothing(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper2)
	id := k.start(agent, "paper", `{}`)
	before := k.countEvents()
	for _, who := range []engine.Principal{reviewer, operator} {
		v := k.signIn(who)
		wantText(t, v.show("definitions/paper?state=review&action=revise"), `"reason": ""`)
		got := v.send("definitions/paper?version=1", "decide", "state", "draft", "action", "submit", "data", `{"other": 1}`, "context", ` `, "version", "1")
		if got.status != http.StatusOK {
			t.Fatalf("%s: %d\n%s", who.Role, got.status, textOf(got.body))
		}
		wantText(t, got.body, "refused submit in draft", "What to do", "Not checked", `Only the caller knows whether anything is in the state "draft" now.`, `{"other": 1}`)
		if strings.Contains(got.body, `<body data-live`) {
			t.Error("a page that answers a form would be replaced by its live updates")
		}
		approved := v.send("definitions/paper", "decide", "state", "draft", "action", "submit", "data", `{"title":"x"}`).body
		if who.Role == engine.RoleOperator { // a reviewer may not submit, as over REST
			wantText(t, got.body, "title", "Action approved", "Required fields refused")
			wantText(t, approved, "approved submit in draft → review")
		}
		for _, bad := range []struct{ data, want string }{{`{"title":`, `"data" is not acceptable`}, {`[1]`, "object"}, {strings.Repeat("<b>", 9), "not acceptable"}} {
			got := v.send("definitions/paper", "decide", "state", "draft", "action", "submit", "data", bad.data)
			if got.status != http.StatusBadRequest {
				t.Errorf("%s: %d", bad.data, got.status)
			}
			wantText(t, got.body, bad.want, bad.data) // what was typed is still there
		}
	}
	if got := k.signIn(auditor).send("definitions", "decide"); got.status != http.StatusNotFound {
		t.Errorf("the list has no form, but an auditor got %d", got.status)
	}
	v := k.signIn(auditor)
	token := csrfField.FindStringSubmatch(v.show("definitions/paper"))
	if got := v.submit("definitions/paper/-/decide", url.Values{"csrf": {token[1]}, "state": {"draft"}, "action": {"submit"}}); got.status != http.StatusForbidden {
		t.Errorf("an auditor's POST got %d", got.status)
	}
	if after := k.countEvents(); after != before {
		t.Errorf("the playground recorded %d events", after-before)
	}
	if got := k.advance(agent, id, "submit", `{"title":"x"}`); got.State != "review" {
		t.Errorf("the instance is in %s", got.State)
	}
}

// countEvents counts the events of all instances.
func (k *kit) countEvents() int {
	k.t.Helper()
	read, err := k.Tail(k.t.Context(), operator, engine.TailRequest{Limit: 1000})
	if err != nil || read.More {
		k.t.Fatalf("read the events: %v", err)
	}
	return len(read.Events)
}

func TestHostileDefinitionsAreInert(t *testing.T) {
	k := newKit(t)
	hostile := "</style><script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \u202egnp.exe\u202c \u2066\u200b\u001b[31m " + strings.Repeat("W", 20_000) + "end"
	quote := func(s string) string { return writeJSON(s) }
	state := "<svg onload=alert(1)>"
	doc := `{"name":"bad","description":` + quote(strings.Replace(hostile, "end", strings.Repeat("W", 80_000)+"end", 1)) + `,"initialState":` + quote(state) + `,"states":{` +
		quote(state) + `:{"description":` + quote(hostile) + `,"transitions":{"<i>go</i>":{"target":"z","requiredFields":["<u>\u202e"],"criteria":[` + quote(hostile) + `]}}},"z":{"final":true}}}`
	k.define(operator, doc)
	k.define(operator, strings.Replace(doc, `"z":{"final":true}`, `"z":{"final":true,"description":`+quote(hostile)+`}`, 1))
	v := k.signIn(reviewer)
	answered := v.send("definitions/bad", "decide", "state", state, "action", "<i>go</i>", "data", `{"x":"<script>\u202e"}`).body
	for name, page := range map[string]string{"definitions": v.show("definitions"), "definition": v.show("definitions/bad"), "answer": answered} {
		for _, raw := range []string{"<script>alert", "<img", "<i>go", "<u>", "<svg onload", "\u202e", "\u2066", "\x1b", "href=\"javascript"} {
			if strings.Contains(page, raw) {
				t.Errorf("%s has %q", name, raw)
			}
		}
		if len(page) > 200_000 {
			t.Errorf("%s has %d bytes", name, len(page))
		}
	}
	wantText(t, v.show("definitions/bad"), "<script>alert(1)</script>", "⟨U+202E⟩gnp.exe", "␛[31m", "more characters)", "<svg onload=alert(1)>", "<i>go</i>")
	if got := v.get("definitions/bad/-/definition.json"); !strings.Contains(got.body, strings.Repeat("W", 100_000)+"end") {
		t.Error("the download is not complete")
	}
}

func TestABigDefinitionFitsOnItsPage(t *testing.T) {
	k := newKit(t)
	var states strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&states, `"state-%d":{"transitions":{"go-%d":"state-%d","back-%d":"state-0"}},`, i, i, i+1, i)
	}
	doc := `{"name":"big","initialState":"state-0","states":{` + states.String() + `"state-2000":{"final":true}}}`
	k.define(operator, doc)
	k.define(operator, strings.ReplaceAll(doc, "back-", "home-"))
	page := k.signIn(reviewer).show("definitions/big")
	wantText(t, page, "3\u202f800 more transitions are not shown", "more lines are in the complete difference", "more characters)")
	if len(page) > 400_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if !strings.Contains(page, `<input id="play-state" name="state"`) {
		t.Error("the playground lists 2,000 states")
	}
}
