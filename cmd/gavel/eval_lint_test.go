package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/validators"
)

// golden reads the cases that come with the program.
func golden(t *testing.T) []eval.Golden {
	t.Helper()
	files, err := goldenFiles([]string{filepath.Join("..", "..", "testdata", "golden")})
	if err != nil {
		t.Fatal(err)
	}
	var out []eval.Golden
	for _, file := range files {
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		for g, err := range eval.ReadCases(file, in) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, g)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// What the page says of the golden cases is so: how many, of what kind, balanced.
func TestGoldenCasesAreBalanced(t *testing.T) {
	t.Parallel()
	cases := golden(t)
	if len(cases) < 240 {
		t.Errorf("%d cases", len(cases))
	}
	type count struct{ all, approve int }
	tags, splits, flows := map[string]map[string]int{}, map[eval.Split]count{}, map[string]count{}
	for _, c := range cases {
		approve := 0
		if c.Expect.Outcome == judge.Approve {
			approve = 1
		}
		flow := filepath.Base(c.File)
		splits[c.Split] = count{splits[c.Split].all + 1, splits[c.Split].approve + approve}
		flows[flow] = count{flows[flow].all + 1, flows[flow].approve + approve}
		for _, tag := range c.Tags {
			if tags[tag] == nil {
				tags[tag] = map[string]int{}
			}
			tags[tag][flow]++
		}
		if c.Label.Source != "synthetic" || c.Label.By != "gavel authors" {
			t.Errorf("%s:%d: labelled %+v", c.File, c.Line, c.Label)
		}
	}
	if len(flows) != 5 {
		t.Errorf("%d workflows", len(flows))
	}
	for flow, n := range flows {
		if share := float64(n.approve) / float64(n.all); share < 0.45 || share > 0.55 {
			t.Errorf("%s: %d of %d are to be approved", flow, n.approve, n.all)
		}
		for tag, want := range map[string]int{
			"complete": 12, "benign_odd": 12, "twin": 12, "one_token": 3, "injection": 3,
			"false_success": 3, "missing_evidence": 3, "escalate": 2, "structural": 1,
		} {
			if tags[tag][flow] < want {
				t.Errorf("%s: %d cases with the tag %s; want %d", flow, tags[tag][flow], tag, want)
			}
		}
	}
	for _, tag := range []string{"de", "fr", "es", "zh", "ja", "ar", "pt", "pl"} {
		if len(tags["language:"+tag]) == 0 {
			t.Errorf("no case in %s", tag)
		}
	}
	for split, want := range map[eval.Split]float64{eval.Dev: 0.3, eval.Cal: 0.3, eval.Test: 0.4} {
		n := splits[split]
		share, approve := float64(n.all)/float64(len(cases)), float64(n.approve)/float64(n.all)
		if share < want-0.05 || share > want+0.05 || approve < 0.45 || approve > 0.55 {
			t.Errorf("%s has %.2f of the cases, %.2f of them to be approved", split, share, approve)
		}
	}
}

// A twin says less than the case that it was made from, and nothing else.
func TestTwinsOnlyLackEvidence(t *testing.T) {
	t.Parallel()
	whole, twins := map[string]eval.Golden{}, 0
	for _, c := range golden(t) {
		switch {
		case slices.Contains(c.Tags, "complete"):
			whole[c.Group] = c
		case slices.Contains(c.Tags, eval.TagTwin):
			twins++
			was := len(whole[c.Group].Data) + len(whole[c.Group].Context)
			if is := len(c.Data) + len(c.Context); is >= was {
				t.Errorf("%s has %d bytes and was made from %d", c.ID, is, was)
			}
			if len(c.Expect.Criteria) != 1 {
				t.Errorf("%s names %d criteria; want the one whose evidence is gone", c.ID, len(c.Expect.Criteria))
			}
		}
	}
	if twins != 60 {
		t.Errorf("%d twins", twins)
	}
}

// All that code can tell it tells: malformed cases are refused, and every other one
// passes all layers before the model, so that only a judge can tell them apart.
func TestStructureDoesWhatTheTagsPromise(t *testing.T) {
	t.Parallel()
	pipeline, err := judge.New(judge.Config{Compiler: plainSandbox(t)})
	if err != nil {
		t.Fatal(err)
	}
	cache := newDefinitionCache()
	for _, g := range golden(t) {
		found := cache.find(g.File, g.Workflow)
		if found.err != nil {
			t.Fatal(found.err)
		}
		c, err := found.definition.Case(workflow.CaseInput{
			Operation: judge.Advance, Owner: operatorOwner, Instance: g.ID, State: g.State, Action: g.Action,
			Data: g.Data, Context: g.Context, Principal: "eval:agent", Role: "agent", Now: time.Unix(0, 0),
		})
		if err != nil {
			t.Fatalf("%s: %v", g.ID, err)
		}
		c.Rubric.UseLLM, c.Rubric.Criteria = false, nil
		v, err := pipeline.Decide(t.Context(), c)
		if err != nil {
			t.Fatalf("%s: %v", g.ID, err)
		}
		want := judge.Approve
		if slices.Contains(g.Tags, "structural") {
			want = judge.Reject
			if !slices.ContainsFunc(v.Findings, func(f validators.Finding) bool { return slices.Contains(g.Expect.ViolationsAny, f.Code) }) {
				t.Errorf("%s: refused with %+v, want one of %v", g.ID, v.Findings, g.Expect.ViolationsAny)
			}
		}
		if v.Outcome != want {
			t.Errorf("%s %v: %s by %s: %+v", g.ID, g.Tags, v.Outcome, v.DecidedBy, v.Findings)
		}
	}
}

// The page shows what gavel prints of the golden cases, and they are clean.
func TestGoldenCasesAreClean(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "testdata", "golden")
	said := strings.TrimSpace(string(runGavel(t, "eval", "lint", dir)))
	if !strings.Contains(said, "0 issues") || !strings.Contains(pages(t)["../../docs/evaluation.md"], said) {
		t.Errorf("docs/evaluation.md does not show: %s", said)
	}
	var report evalLintReport
	if err := json.Unmarshal(runGavel(t, "eval", "lint", "--json", dir), &report); err != nil || !report.OK || report.Cases < 240 {
		t.Errorf("%+v, %v", report, err)
	}
	definitions, err := filepath.Glob(filepath.Join(dir, "workflows", "*.yaml"))
	if err != nil || len(definitions) != 5 {
		t.Fatalf("%v, %v", definitions, err)
	}
	for line := range strings.Lines(string(runGavel(t, "lint", filepath.Join(dir, "workflows")))) {
		if !strings.Contains(line, "[llm-without-model]") {
			t.Error(line)
		}
	}
}
