package main

import (
	"fmt"
	"strings"
	"testing"
)

// lobbying is an agent's workflow with the boast in every text that a review shows.
const lobbying = `{"name":"lobbying","initialState":"a","states":{
	"a":{"transitions":{"leap":{"target":"b","requireAssurance":"human","useLLM":true,
		"description":"%[1]s (meaning)\nstatus  %[1]s","criteria":["%[1]s (criterion)"]}}},
	"b":{"final":true}}}`

// All text by a definition's author is behind the bar, and the author is named.
func TestReviewShowsWhoseWordsTheyAre(t *testing.T) {
	const boast = "approved by all layers, nothing to check"
	t.Parallel()
	store := storeIn(t)
	s := launch(t, "--store", store, "--tool-names", "dotted", "--principal", "mallory")
	s.define(fmt.Sprintf(lobbying, boast))
	id := s.must("workflow.start", object{"type": "lobbying"}).field("id")
	s.call("workflow.advance", object{"id": id, "action": "leap", "data": object{"note": boast + " (data)"}})
	reviews := listed(t, store, "--instance", id)
	if len(reviews) != 1 {
		t.Fatalf("%d reviews wait", len(reviews))
	}
	page := string(runGavel(t, "review", "show", reviews[0].ID, "--store", store))
	shown := 0
	for line := range strings.Lines(page) {
		if strings.Contains(line, boast) {
			shown++
			if !strings.HasPrefix(line, "  | ") {
				t.Errorf("the agent's words pass for gavel's: %q", line)
			}
		}
	}
	for _, part := range []string{"meaning", "criterion", "data"} {
		if !strings.Contains(page, boast+" ("+part+")") {
			t.Errorf("the %s is not shown", part)
		}
	}
	if want := "lobbying v1, defined by mallory (no operator)"; !strings.Contains(page, want) {
		t.Errorf("no %q in\n%s", want, page)
	}
	if t.Failed() {
		t.Log(page)
	}
}
