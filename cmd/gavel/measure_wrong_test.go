package main

import (
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// lenientJudge accepts confident words, instructions and admitted gaps as evidence.
func lenientJudge(t *testing.T) llmtest.Brain {
	t.Helper()
	about := askedAbout(t)
	return func(q llmtest.Question) llmtest.Thought {
		c, ok := about(q)
		fallsFor := func(tag string) bool {
			return slices.Contains([]string{"injection", "false_success", "missing_evidence", "twin"}, tag)
		}
		switch {
		case !ok:
			return llmtest.Says("no such case")(q)
		case slices.ContainsFunc(c.Tags, fallsFor):
			return quoteEvidence(q, llmtest.Gullible(q))
		}
		return authoredAnswer(q, c)
	}
}

// garbledJudge often gives unreadable answers, and wrong ones otherwise: it stops early, chats, contradicts itself,
// invents quotes, or answers the opposite.
func garbledJudge(t *testing.T) llmtest.Brain {
	t.Helper()
	about := askedAbout(t)
	return func(q llmtest.Question) llmtest.Thought {
		c, _ := about(q)
		switch lotOf(c, 6) {
		case 0:
			return llmtest.Says(`{"approved": true, "confidence": 0.9, "criteria": [`)(q)
		case 1:
			return llmtest.Says("Looks good to me!")(q)
		case 2:
			return llmtest.Contradicting(q)
		case 3:
			return llmtest.Liar(q)
		}
		if c.Expect.Outcome == judge.Approve {
			return llmtest.Rejecter(q)
		}
		return llmtest.Gullible(q)
	}
}

// wrongJudge is a judge with recorded answers, in addition to the authored judge.
type wrongJudge struct {
	name     string
	brain    func(*testing.T) llmtest.Brain
	cassette string
	part     []string // of the golden set
	fails    []string // the gates
	worse    func(t *testing.T, right, wrong eval.Report)
}

func wrongJudges() []wrongJudge {
	return []wrongJudge{
		{
			name: "lenient", brain: lenientJudge, cassette: filepath.Join(goldenFolder, "lenient.cassette"),
			part: []string{"--split", "test"},
			fails: []string{
				"max_false_approve", "max_false_approve_upper", "min_kappa",
				"tags.injection.max_false_approvals", "tags.false_success.max_false_approvals",
			},
			worse: func(t *testing.T, right, wrong eval.Report) {
				t.Helper()
				if *right.FalseApprove.Value != 0 || *wrong.FalseApprove.Value < 0.5 {
					t.Errorf("false approvals: %v, authored %v", wrong.FalseApprove, right.FalseApprove)
				}
				if wrong.FalseRefuse.K > right.FalseRefuse.K {
					t.Errorf("a lenient judge refuses more: %v, authored %v", wrong.FalseRefuse, right.FalseRefuse)
				}
				if wrong.Unreadable.K != 0 || *wrong.Probability.AUROC.Value >= *right.Probability.AUROC.Value {
					t.Errorf("unreadable %v, AUROC %v, authored %v", wrong.Unreadable, *wrong.Probability.AUROC.Value, *right.Probability.AUROC.Value)
				}
			},
		},
		{
			name: "garbled", brain: garbledJudge, cassette: filepath.Join(goldenFolder, "garbled.cassette"),
			part: []string{"--split", "dev", "--tags", "complete", "--tags", "injection", "--tags", "twin"},
			fails: []string{
				"max_false_approve", "max_false_refuse", "min_kappa", "max_escalation", "max_unreadable",
				"min_cases",
			},
			worse: func(t *testing.T, right, wrong eval.Report) {
				t.Helper()
				if wrong.Unreadable.K < 10 || right.Unreadable.K != 0 {
					t.Errorf("unreadable: %v, authored %v", wrong.Unreadable, right.Unreadable)
				}
				if *wrong.Kappa.Value >= 0 {
					t.Errorf("an opposite judge has a kappa of %v", *wrong.Kappa.Value)
				}
				if *wrong.Probability.Brier.Value <= wrong.Probability.BrierBase || *wrong.Probability.AUROC.Value >= 0.5 {
					t.Errorf("probabilities: %+v", wrong.Probability)
				}
			},
		},
	}
}

// Recorded answers of wrong judges fail the gates that the authored answers pass, and the figures show in which way
// they are wrong. With -update they are recorded again if they no longer do that.
func TestWrongJudgesFailTheGates(t *testing.T) {
	t.Parallel()
	for _, w := range wrongJudges() {
		t.Run(w.name, func(t *testing.T) {
			if *update && exitOf(runGolden(t.Context(), append(w.part, "--cassette", w.cassette)...)) != term.ExitBad {
				provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), w.brain(t)))
				defer provider.Close()
				runGolden(t.Context(), append(w.part, "--mode", "record", "--cassette", w.cassette, "--workers", "1", "--llm-base-url", provider.URL)...)
			}
			rightly, wrongly := filepath.Join(t.TempDir(), "right.json"), filepath.Join(t.TempDir(), "wrong.json")
			if code, out := runGolden(t.Context(), append(w.part, "--cassette", goldenCassette, "--out", rightly)...); code == term.ExitUnknown || code == term.ExitUsage {
				t.Fatalf("authored: exit code %d\n%s", code, out)
			}
			code, out := runGolden(t.Context(), append(w.part, "--cassette", w.cassette, "--out", wrongly, "--baseline", rightly)...)
			if code != term.ExitBad {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			for _, gate := range w.fails {
				if !strings.Contains(out, "FAILED  "+gate+":") {
					t.Errorf("the gate %s passes\n%s", gate, out)
				}
			}
			if !strings.Contains(out, "regression: ") || strings.Contains(out, "no significant regression") {
				t.Errorf("it is not worse than the authored judge\n%s", out)
			}
			right, wrong := reportIn(t, rightly), reportIn(t, wrongly)
			if *wrong.Kappa.Value > *right.Kappa.Value-0.3 {
				t.Errorf("kappa %v, authored %v", *wrong.Kappa.Value, *right.Kappa.Value)
			}
			w.worse(t, right, wrong)
		})
	}
}

func reportIn(t *testing.T, path string) eval.Report {
	t.Helper()
	m, err := measure.ReadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	return m.Report
}
