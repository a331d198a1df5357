package console

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/module"
)

// paper is a workflow with a move that a person decides.
const paper = `{"name":"paper","initialState":"draft","states":{
	"draft":{"transitions":{"submit":{"target":"review","requiredFields":["title"]}}},
	"review":{"transitions":{"publish":{"target":"published","requireAssurance":"human"},"revise":"draft"}},
	"published":{"final":true,"outcome":"success"}}}`

func TestTheFirstPageShowsWhatWaitsWasRefusedAndWorks(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	v := k.signIn(reviewer)
	wantText(t, v.show(""), "Waiting for a first call…")
	id := k.start(agent, "paper", `{}`)
	wantText(t, v.show(""), "At work", "draft", agent.ID)
	k.advance(agent, id, "submit", `{}`)
	wantText(t, v.show(""), "Refused in the last hour", "title")
	k.advance(agent, id, "submit", `{"title":"On moves"}`)
	k.park(agent, id, "publish", `{}`)
	wantText(t, v.show(""), "Waiting for a person", "publish", "review → published")
}

func TestAnAgentHasNoAccess(t *testing.T) {
	k := newKit(t)
	v := k.visit()
	got := v.submit("sign-in", map[string][]string{"token": {agent.ID}})
	if got.status != http.StatusForbidden || len(got.header.Values("Set-Cookie")) > 0 {
		t.Errorf("an agent got %d and %q", got.status, got.header.Values("Set-Cookie"))
	}
	if got := v.get(""); got.status != http.StatusSeeOther || !strings.HasPrefix(got.next, signInPath) {
		t.Errorf("without a session: %d to %q", got.status, got.next)
	}
}

// Warnings name workflows and files of everybody: visitors who may use only some workflows see none of them.
func TestWarningsAreForVisitorsOfAllWorkflows(t *testing.T) {
	k := newKit(t, func(s *setup) {
		s.host.Warnings = func(context.Context) []module.Warning {
			return []module.Warning{{Name: "no-model", Text: "Payroll needs a <model>.", Next: "Configure one."}}
		}
	})
	wantText(t, k.signIn(reviewer).show(""), "Payroll needs a <model>.", "Configure one.")
	if page := k.signIn(limited).show(""); strings.Contains(page, "Payroll") {
		t.Error("a visitor of some workflows sees the warning")
	}
}
