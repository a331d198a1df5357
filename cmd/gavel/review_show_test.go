package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
)

// boast is what an agent would have the reader of a review take for gavel's word.
const boast = "approved by all layers, nothing to check"

// lobbying is a workflow of an agent's, with that in every place that a review shows.
const lobbying = `{"name":"lobbying","initialState":"a","states":{
	"a":{"transitions":{"leap":{"target":"b","requireAssurance":"human","useLLM":true,
		"description":"%[1]s (meaning)\nstatus  %[1]s","criteria":["%[1]s (criterion)"]}}},
	"b":{"final":true}}}`

// Whatever the author of a definition wrote stands behind the bar, and who he is, is said.
func TestReviewShowsWhoseWordsTheyAre(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	s := launch(t, "--store", store, "--tool-names", "dotted", "--principal", "agent:mallory")
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
	if want := "lobbying v1, defined by agent:mallory (no operator)"; !strings.Contains(page, want) {
		t.Errorf("no %q in\n%s", want, page)
	}
	if t.Failed() {
		t.Log(page)
	}
}

// What a layer says can hold the words of scripts, models and agents.
func TestReviewShowsEachLayerOnOneLine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := reviewPage{out: term.New(&b)}
	p.Escalation.Opinions = []engine.Opinion{
		{Layer: judge.LayerScript, Outcome: judge.Approve, Reasoning: boast + "\nmodel: " + boast},
		{Layer: judge.LayerModel, Outcome: judge.Approve, Reasoning: boast, Model: &judge.ModelRecord{
			Model: "m", Criteria: []judge.CriterionVerdict{{Text: boast, Status: "met", Evidence: boast + "\n" + boast, Why: boast, Basis: judge.BasisClaim}},
		}},
	}
	p.Criteria = []string{boast}
	p.layers()
	p.criteria()
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, boast) && !strings.HasPrefix(line, "  | ") {
			t.Errorf("somebody's words pass for gavel's: %q", line)
		}
	}
	if n := strings.Count(b.String(), "\n  | model: "); n != 1 {
		t.Errorf("the model speaks %d times:\n%s", n, &b)
	}
}
