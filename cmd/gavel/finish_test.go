package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
)

const finishedPaper = `{"name":"paper","initialState":"draft","states":{
	"draft":{"transitions":{"submit":{"target":"published","requiredFields":["summary"]}}},
	"published":{"final":true,"outcome":"success"}}}`

// Every page that a person sees reports in words that an agent ended early.
func TestAnEarlyEndIsShown(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	if _, err := sys.Engine.Define(t.Context(), gavel.Operator, engine.DefineRequest{Document: []byte(finishedPaper)}); err != nil {
		t.Fatal(err)
	}
	agent := engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	started, err := sys.Engine.Start(t.Context(), agent, engine.StartRequest{Type: "paper", Context: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	review := ""
	for range 2 {
		r, err := sys.Engine.Finish(t.Context(), agent, engine.FinishRequest{ID: started.ID, States: []string{"published"}, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Review != nil {
			review = r.Review.ID
		}
	}
	shows := func(want string, args ...string) {
		t.Helper()
		if got := string(runGavel(t, append(args, "--store", store)...)); !strings.Contains(got, want) {
			t.Errorf("gavel %s: no %q in\n%s", strings.Join(args, " "), want, got)
		}
	}
	shows("paper     (end)   draft -> -", "review", "list")
	shows("asked          the agent ended early, in draft", "review", "show", review)
	shows("escalated (end)", "instances", "timeline", started.ID)
	shows("The agent ended early, after 1 refused stop.", "instances", "history", started.ID)
	shows("reviews\n", "instances", "show", started.ID)
	shows("The agent gets", "review", "reject", review, "--reason", "Write the summary.")
	shows("rejected by", "review", "list", "--status", "rejected")
	shows("reviewer", "instances", "history", started.ID)
	shows("4 events", "verify")
}
