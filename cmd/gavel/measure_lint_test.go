package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// golden reads the golden cases of the repository.
func golden(t *testing.T) []eval.Golden {
	t.Helper()
	files, err := measure.GoldenFiles([]string{filepath.Join("..", "..", "testdata", "golden")})
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

// goldenTags is the minimum number of cases of each workflow with each tag. False is for workflows whose data contain
// everything, true for those with evidence, history, long data or a dialogue.
var goldenTags = map[bool]map[string]int{
	false: {
		"complete": 12, "benign_odd": 12, "twin": 12, "one_token": 3, "injection": 3,
		"false_success": 3, "missing_evidence": 3, "escalate": 2, "structural": 1,
	},
	true: {"complete": 6, "benign_odd": 6, "contradicted": 4, "twin": 1, "escalate": 6, "history": 4},
}

// The golden cases match their page: their number, their kinds, and the balance between them.
func TestGoldenCasesAreBalanced(t *testing.T) {
	t.Parallel()
	type count struct {
		all, approve, escalate int
		groups                 map[string]bool
	}
	cases, tags, splits, flows, fetching := golden(t), map[string]map[string]int{}, map[eval.Split]*count{}, map[string]*count{}, map[string]bool{}
	for _, c := range cases {
		flow := filepath.Base(c.File)
		if splits[c.Split] == nil {
			splits[c.Split] = &count{groups: map[string]bool{}}
		}
		if flows[flow] == nil {
			flows[flow] = &count{groups: map[string]bool{}}
		}
		for _, n := range []*count{splits[c.Split], flows[flow]} {
			n.all++
			n.groups[c.Group] = true
			switch c.Expect.Outcome {
			case judge.Approve:
				n.approve++
			case judge.Escalate:
				n.escalate++
			}
		}
		for _, tag := range c.Tags {
			if tags[tag] == nil {
				tags[tag] = map[string]int{}
			}
			tags[tag][flow]++
			tags[tag][""]++
		}
		fetching[flow] = fetching[flow] || len(c.History) > 0
		checkGoldenCase(t, c)
	}
	for flow, n := range flows {
		if share := float64(n.approve) / float64(n.all); share < 0.38 || share > 0.55 {
			t.Errorf("%s: %d of %d are to be approved", flow, n.approve, n.all)
		}
		for tag, want := range goldenTags[fetching[flow]] {
			if tags[tag][flow] < want {
				t.Errorf("%s: %d cases with the tag %s; want %d", flow, tags[tag][flow], tag, want)
			}
		}
	}
	for tag, want := range map[string]int{"evidence": 100, "history": 100, "long": 60, "dialogue": 35} {
		if tags[tag][""] < want {
			t.Errorf("%d cases with the tag %s; want %d", tags[tag][""], tag, want)
		}
	}
	for _, tag := range []string{"de", "fr", "es", "it", "zh", "ja", "ar", "pt", "pl"} {
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
		if n.escalate < 15 || len(n.groups) < 30 {
			t.Errorf("%s has %d cases for a person and %d groups; want 15 and 30", split, n.escalate, len(n.groups))
		}
	}
}

// checkGoldenCase compares a case with its tags and its label.
func checkGoldenCase(t *testing.T, c eval.Golden) {
	t.Helper()
	for tag, is := range map[string]bool{
		"evidence": len(c.Evidence) > 0,
		"history":  len(c.History) > 1 || len(c.History) == 1 && c.History[0].By != measure.EvaluationPrincipal,
		"escalate": c.Expect.Outcome == judge.Escalate,
	} {
		if slices.Contains(c.Tags, tag) != is {
			t.Errorf("%s:%d: the tag %s is wrong", c.File, c.Line, tag)
		}
	}
	if size := caseSize(t, c); slices.Contains(c.Tags, "long") && (size < 2<<10 || size > 20<<10) {
		t.Errorf("%s:%d: %d bytes are not 2 to 20 KB", c.File, c.Line, size)
	}
	if c.Label.Source != "synthetic" || c.Label.By != "language model" {
		t.Errorf("%s:%d: labelled %+v", c.File, c.Line, c.Label)
	}
}

// A twin lacks some content of the case that it was made from, and differs in nothing else.
func TestTwinsOnlyLackEvidence(t *testing.T) {
	t.Parallel()
	whole, twins := map[string]eval.Golden{}, 0
	for _, c := range golden(t) {
		switch {
		case slices.Contains(c.Tags, "complete"):
			whole[c.Group] = c
		case slices.Contains(c.Tags, eval.TagTwin):
			twins++
			was, is := caseSize(t, whole[c.Group]), caseSize(t, c)
			if is >= was {
				t.Errorf("%s has %d bytes and was made from %d", c.ID, is, was)
			}
			if len(c.Expect.Criteria) != 1 {
				t.Errorf("%s names %d criteria; want the one whose evidence is gone", c.ID, len(c.Expect.Criteria))
			}
		}
	}
	if twins != 73 {
		t.Errorf("%d twins", twins)
	}
}

func caseSize(t *testing.T, c eval.Golden) int {
	t.Helper()
	evidence, err := json.Marshal(c.Evidence)
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Data) + len(c.Context) + len(evidence)
}

// The layers without a model handle everything that they can. Malformed cases are refused, missing evidence goes to a
// person, and every other case passes all layers before the model. So only a judge can distinguish those.
func TestStructuralLayersMatchGoldenTags(t *testing.T) {
	t.Parallel()
	set, err := measure.ReadGolden(t.Context(), []string{goldenFolder}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	builder, decide := &measure.CaseBuilder{Set: set, Definitions: measure.NewDefinitionCache()}, measure.NewDecider(plainSandbox(t), nil, measure.Cell{})
	for _, g := range goldenCases(t) {
		c, err := builder.Build(g)
		if err != nil {
			t.Fatalf("%s: %v", g.ID, err)
		}
		c.Rubric.Criteria = nil
		v, err := decide(t.Context(), g, c)
		if err != nil {
			t.Fatalf("%s: %v", g.ID, err)
		}
		want := judge.Approve
		if slices.Contains(g.Tags, "structural") {
			want = judge.Reject
		}
		if slices.Contains(g.Tags, "not_fetched") {
			want = judge.Escalate
		}
		if want == judge.Reject {
			if !slices.ContainsFunc(v.Findings, func(f validators.Finding) bool { return slices.Contains(g.Expect.ViolationsAny, f.Code) }) {
				t.Errorf("%s: refused with %+v, want one of %v", g.ID, v.Findings, g.Expect.ViolationsAny)
			}
		}
		if v.Outcome != want {
			t.Errorf("%s %v: %s by %s: %+v", g.ID, g.Tags, v.Outcome, v.DecidedBy, v.Findings)
		}
	}
}

// The page shows gavel's output for the golden cases, and lint finds no issues in them.
func TestGoldenCasesAreClean(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "testdata", "golden")
	said := strings.TrimSpace(string(runGavel(t, "eval", "lint", dir)))
	if !strings.Contains(said, "0 issues") || !strings.Contains(pages(t)["../../docs/evaluation.md"], said) {
		t.Errorf("docs/evaluation.md does not show: %s", said)
	}
	var report measure.LintReport
	if err := json.Unmarshal(runGavel(t, "eval", "lint", "--json", dir), &report); err != nil || !report.OK || report.Cases != len(golden(t)) {
		t.Errorf("%+v, %v", report, err)
	}
	definitions, err := filepath.Glob(filepath.Join(dir, "workflows", "*.yaml"))
	if err != nil || len(definitions) != 11 {
		t.Fatalf("%v, %v", definitions, err)
	}
	for line := range strings.Lines(string(runGavel(t, "lint", filepath.Join(dir, "workflows")))) {
		if !strings.Contains(line, "[llm-without-model]") {
			t.Error(line)
		}
	}
}
