package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

// What persons decided about an action is shown to the model that judges it for another principal.
func TestPrecedentsAreWhatPersonsDecided(t *testing.T) {
	t.Parallel()
	const flow = `{"name":"judged","initialState":"open","sensitive":["/card"],"states":{
		"open":{"transitions":{"close":{"target":"closed","useLLM":true,"requireAssurance":"human","exemplarsFrom":"history","criteria":["It says what was done","It says for how long"]},"move":"other"}},
		"other":{"transitions":{"close":{"target":"closed","useLLM":true,"requireAssurance":"human","criteria":["It says what was done"]}}},
		"closed":{"final":true}}}`
	db, asked := memory.New(), ""
	j := newJudgedWith(t, db, func(m *judge.ModelConfig, c *engine.Config) {
		c.ReviewPath, c.ClientReviews = true, true
		m.Completer = llm.CompleterFunc(func(_ context.Context, req llm.Request) (llm.Reply, error) {
			asked = req.User
			a := llm.Answer{Keyed: true, Confidence: 0.9, Approved: true}
			for _, id := range []string{"c1", "c2"} {
				a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: llm.StatusCannotAssess})
			}
			return llm.Reply{Answer: a, Model: "m", Calls: 1}, nil
		})
	})
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(flow)}); err != nil {
		t.Fatal(err)
	}
	request := func(who engine.Principal, note string, moved bool) (id, review string) {
		t.Helper()
		started, err := j.Start(t.Context(), who, engine.StartRequest{Type: "judged"})
		if err != nil {
			t.Fatal(err)
		}
		if moved {
			if _, err := j.Advance(t.Context(), who, engine.AdvanceRequest{ID: started.ID, Action: "move"}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := j.Advance(t.Context(), who, closing(started.ID, note))
		if err != nil || got.Review == nil {
			t.Fatalf("%v: %+v", err, got)
		}
		return started.ID, got.Review.ID
	}
	resolve := func(review string, how judge.Outcome, why string, channel record.Channel) {
		t.Helper()
		by := engine.Principal{ID: "rev", Role: engine.RoleReviewer}
		if _, err := j.Resolve(t.Context(), by, engine.ResolveRequest{ID: review, Decision: how, Reason: why, Channel: channel}); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []struct {
		note    string
		how     judge.Outcome
		why     string
		channel record.Channel
		moved   bool
	}{
		{"approved", judge.Approve, "Fine.", "", false},
		{"named", judge.Reject, "c2: no duration.", "", false},
		{"silent", judge.Reject, "No.", "", false},
		{"from a form", judge.Approve, "Fine.", record.ChannelClient, false},
		{"elsewhere", judge.Approve, "Fine.", "", true},
		{"reopened", judge.Reject, "c1.", "", false},
	} {
		_, review := request(agent, one.note, one.moved)
		resolve(review, one.how, one.why, one.channel)
		if one.note == "reopened" {
			resolve(review, engine.Reopen, "Look again.", "")
		}
	}
	source, ok := engine.NewMemory(db).(judge.Precedents)
	if !ok {
		t.Fatal("the memory has no precedents")
	}
	found, err := source.Precedents(t.Context(), judge.Case{Workflow: "judged", State: "open", Action: "close"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range found {
		got[string(p.Data)] = fmt.Sprint(p.Criteria, p.Principal)
	}
	want := map[string]string{
		`{"note":"approved"}`: "map[It says for how long:met It says what was done:met]" + agent.ID,
		`{"note":"named"}`:    "map[It says for how long:not_met]" + agent.ID,
		`{"note":"silent"}`:   "map[]" + agent.ID,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if strings.Contains(asked, "decided") {
		t.Errorf("a principal's own moves are shown to it: %s", asked)
	}
	_, review := request(other, "new", false)
	for _, one := range []string{`:decided1>>` + "\n" + `{"data":{"note":"named"},"person":{"c2":"not_met"}}`, `:decided2>>` + "\n" + `{"data":{"note":"approved"},"person":{"c1":"met","c2":"met"}}`} {
		if !strings.Contains(asked, one) {
			t.Errorf("no %q in\n%s", one, asked)
		}
	}
	view, err := j.Review(t.Context(), operator, review)
	at := slices.IndexFunc(view.Escalation.Opinions, func(o judge.Opinion) bool { return o.Model != nil })
	if err != nil || at < 0 || !strings.HasPrefix(view.Escalation.Opinions[at].Model.Exemplars, "sha256:") {
		t.Errorf("%v: %+v", err, view.Escalation.Opinions)
	}
}

// A sensitive value that a move repeats in another field is recorded nowhere, so no exemplar or label can show it: nor
// can one that the context holds.
func TestRecordedDataHoldNoCopyOfASensitiveValue(t *testing.T) {
	t.Parallel()
	const flow = `{"name":"judged","initialState":"open","sensitive":["/card","/pin"],"states":{
		"open":{"transitions":{"close":{"target":"closed","requireAssurance":"human"}}},"closed":{"final":true}}}`
	db := memory.New()
	j := newJudgedWith(t, db, func(_ *judge.ModelConfig, c *engine.Config) { c.ReviewPath = true })
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(flow)}); err != nil {
		t.Fatal(err)
	}
	started, err := j.Start(t.Context(), agent, engine.StartRequest{Type: "judged", Context: []byte(`{"pin":"pin-7788"}`)})
	if err != nil {
		t.Fatal(err)
	}
	data := document.ReadTrusted([]byte(`{"card":"4000-1234","list":["from 4000-1234"],"note":"pin-7788 <b>","number":7}`))
	got, err := j.Advance(t.Context(), agent, engine.AdvanceRequest{ID: started.ID, Action: "close", Data: data})
	if err != nil || got.Review == nil {
		t.Fatalf("%v: %+v", err, got)
	}
	rev := engine.Principal{ID: "rev", Role: engine.RoleReviewer}
	if _, err := j.Resolve(t.Context(), rev, engine.ResolveRequest{ID: got.Review.ID, Decision: judge.Reject, Reason: "No."}); err != nil {
		t.Fatal(err)
	}
	if again, err := j.Advance(t.Context(), agent, engine.AdvanceRequest{ID: started.ID, Action: "close", Data: data}); err != nil || again.Decision.Code != judge.CodeReviewRejected {
		t.Errorf("the same request again: %v, %+v", err, again)
	}
	kept := 0
	for ev, err := range db.Events(t.Context(), store.EventQuery{Instance: started.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == record.Started || ev.Decision == nil || len(ev.Decision.Data) == 0 {
			continue
		}
		if text := string(ev.Decision.Data); strings.Contains(text, "4000") || strings.Contains(text, "7788") || !strings.Contains(text, `"list":["from [masked]"]`) || !strings.Contains(text, `"number":7`) {
			t.Errorf("recorded: %s", text)
		}
		kept++
	}
	if kept == 0 {
		t.Error("no data were recorded")
	}
}
