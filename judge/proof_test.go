package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestCountWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "...": 0, "LGTM": 1, "12.5": 1, "e-mail": 1, "1,240.50 EUR": 2, "approved_by": 2, "a.b.c": 1, "a .b": 2,
		"Read sections 1 to 4.": 5, `"amount":1240.5,"currency":"EUR"`: 4, "l'outil d'essai": 2,
		"审阅了第一节": 3, "テスト": 2, "读了 3 节": 3, "नमस्ते दुनिया": 2,
	} {
		if got := countWords(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// Quotes of a fooled model, and the result under each requirement.
func TestProof(t *testing.T) {
	t.Parallel()
	const text = "The comments say what was compared"
	data := `{"comments":"Compared table 1 with its sources","passed":"all tests passed: 12 of 12","ok":true,"result":"two words"}`
	for _, tt := range []struct {
		name     string
		proof    Proof
		evidence string
		status   string
		why      string
	}{
		{"a clause", Proof{}, "Compared table 1 with its sources", llm.StatusMet, ""},
		{"members with their keys", Proof{}, `"passed":"all tests passed: 12 of 12","result":"two`, llm.StatusMet, ""},
		{"three words", Proof{}, "Compared table 1", llm.StatusCannotAssess, "its quote has 3 of the 4 required words"},
		{"three characters", Proof{}, "Com", llm.StatusCannotAssess, "its quote has 1 of the 4 required words"},
		{"a pointer", Proof{}, "/data/comments", llm.StatusCannotAssess, "a pointer alone proves nothing; quote the text"},
		{"a short field, quoted whole", Proof{}, "two words", llm.StatusMet, ""},
		{"a short field, with its key", Proof{}, `"result":"two words"`, llm.StatusMet, ""},
		{"a value that is no text, with its key", Proof{}, `"ok": true`, llm.StatusMet, ""},
		{"a part of a short field", Proof{}, "two", llm.StatusCannotAssess, "its quote has 1 of the 4 required words"},
		{"a part of a short field, with its key", Proof{}, `"result":"two`, llm.StatusCannotAssess, "its quote has 2 of the 4 required words"},
		{"a short field, where the owner asks for more", Proof{MinWords: 3}, "two words", llm.StatusCannotAssess, "its quote has 2 of the 3 required words"},
		{"a short field, from another", Proof{From: "/data/comments"}, "two words", llm.StatusCannotAssess, "its quote does not appear in /data/comments"},
		{"a word, where one does", Proof{MinWords: 1}, "sources", llm.StatusMet, ""},
		{"too few", Proof{MinWords: 7}, "Compared table 1 with its sources", llm.StatusCannotAssess, "its quote has 6 of the 7 required words"},
		{"no figure", Proof{Figure: true}, `"comments":"Compared table`, llm.StatusCannotAssess, ""},
		{"a figure", Proof{Figure: true}, "Compared table 1 with its sources", llm.StatusMet, ""},
		{"no figure in four words", Proof{Figure: true, MinWords: 3}, "with its sources", llm.StatusCannotAssess, "its quote has no figure"},
		{"a pattern", Proof{Pattern: "[0-9]+ of [0-9]+"}, "tests passed: 12 of 12", llm.StatusMet, ""},
		{"another pattern", Proof{Pattern: "^[0-9]+ failed"}, "tests passed: 12 of 12", llm.StatusCannotAssess, "its quote does not match ^[0-9]+ failed"},
		{"from the field", Proof{From: "/data/passed"}, "tests passed: 12 of 12", llm.StatusMet, ""},
		{"from another field", Proof{From: "/data/comments"}, "tests passed: 12 of 12", llm.StatusCannotAssess, "its quote does not appear in /data/comments"},
		{"from the context", Proof{From: "context"}, "tests passed: 12 of 12", llm.StatusCannotAssess, "its quote does not appear in context"},
		{"a claim for evidence", Proof{Basis: BasisEvidence}, "tests passed: 12 of 12", llm.StatusNotMet, "its quote does not appear in evidence"},
		{"evidence", Proof{Basis: BasisEvidence}, "ran the whole suite: 3 of 12 passed", llm.StatusMet, ""},
		{"evidence, from its member", Proof{Basis: BasisEvidence, From: "/evidence/ci"}, "ran the whole suite: 3 of 12 passed", llm.StatusMet, ""},
		{"evidence, from another member", Proof{Basis: BasisEvidence, From: "/evidence/bank"}, "ran the whole suite: 3 of 12 passed", llm.StatusNotMet, "its quote does not appear in /evidence/bank"},
		{"the user's words", Proof{Basis: BasisEvidence, From: "/evidence/said/messages"}, "please refund my last order", llm.StatusMet, ""},
		{"the claim that the user said so", Proof{Basis: BasisEvidence, From: "/evidence/said/messages"}, "Compared table 1 with its sources", llm.StatusNotMet, "its quote does not appear in /evidence/said/messages"},
		{"evidence that is missing", Proof{Basis: BasisEvidence, MinWords: 1}, "timeout", llm.StatusNotMet, "the quote is not in what the model was shown"},
		{"evidence of which only the failure is known", Proof{Basis: BasisEvidence, MinWords: 1}, `"bank":{"notAvailable":"timeout"}`, llm.StatusNotMet, "the quote is not in what the model was shown"},
	} {
		c := reviewCase(func(c *Case) {
			c.Rubric.Criteria, c.Rubric.Proofs = []string{text}, map[string]Proof{text: tt.proof}
			c.Data = document.ReadTrusted([]byte(data))
			c.MaskedData, c.Merged, c.MaskedMerged = c.Data, c.Data, c.Data
			c.Fetched = []Evidence{
				{Name: "ci", Content: json.RawMessage(`{"says":"ran the whole suite: 3 of 12 passed"}`)},
				{Name: "bank", Failure: FailureTimeout},
				{Name: "said", Content: json.RawMessage(`{"messages":["hello","please refund my last order"],"omitted":0}`)},
			}
		})
		a := approving([]string{"c1"})
		a.Criteria[0].Evidence = tt.evidence
		op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
		got := op.Model.Criteria[0]
		if got.Status != tt.status || tt.why != "" && got.Why != tt.why {
			t.Errorf("%s: %s (%s), want %s (%s)", tt.name, got.Status, got.Why, tt.status, tt.why)
		}
		want := map[string]Outcome{llm.StatusMet: Approve, llm.StatusNotMet: Reject, llm.StatusCannotAssess: Escalate}[tt.status]
		if op.Outcome != want {
			t.Errorf("%s: %s, want %s", tt.name, op.Outcome, want)
		}
		if tt.status == llm.StatusNotMet && !strings.HasPrefix(op.Findings[0].Message, "Not met (") {
			t.Errorf("%s: %s", tt.name, op.Findings[0].Message)
		}
	}
}

// Only a quote from the evidence meets such a criterion, whatever the model answers.
func TestEvidenceOnly(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) { c.Rubric.Proofs = map[string]Proof{c.Rubric.Criteria[1]: {Basis: BasisEvidence}} })
	unsure := approving([]string{"c1", "c2"})
	unsure.Criteria[1].Status = llm.StatusCannotAssess
	op := opine(t, newModel(t, ModelConfig{Completer: tells(unsure)}), c)
	if op.Outcome != Reject || op.Model.Criteria[1].Status != llm.StatusNotMet {
		t.Errorf("%s %+v", op.Outcome, op.Model.Criteria)
	}
}

func TestQuoteCountsOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ first, second, why string }{
		{"Ann Lee", `"reviewer":"Ann Lee"`, "its quote already proves c1"},
		{"Ann Lee", `"by":"Bob Ray"`, ""},
		{"yes", "yes", ""}, // two fields have this value
	} {
		c := reviewCase(func(c *Case) {
			c.Data = document.ReadTrusted([]byte(`{"reviewer":"Ann Lee","by":"Bob Ray","read":"yes","compared":"yes"}`))
			c.MaskedData, c.Merged, c.MaskedMerged = c.Data, c.Data, c.Data
		})
		a := approving([]string{"c1", "c2"})
		a.Criteria[0].Evidence, a.Criteria[1].Evidence = tt.first, tt.second
		if got := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c).Model.Criteria[1]; got.Why != tt.why {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
	c := reviewCase()
	a := approving([]string{"c1", "c2"})
	a.Criteria[0].Evidence = quote
	a.Criteria[1].Evidence = `"` + quote + `,"`
	op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
	if got := op.Model.Criteria[1]; op.Outcome != Escalate || got.Status != llm.StatusCannotAssess || got.Why != "its quote already proves c1" {
		t.Errorf("%s %+v", op.Outcome, got)
	}
}

// The model is told the requirement, and a calibration is bound to it.
func TestProofIsAsked(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	plain := CriteriaDigest(c.Rubric)
	c.Rubric.Proofs = map[string]Proof{c.Rubric.Criteria[0]: {Basis: BasisEvidence, MinWords: 6, Figure: true, Pattern: "x+"}}
	p, err := Show(c)
	if err != nil || !strings.Contains(p.User, "was read [quote: from evidence, of at least 6 words, with a figure, matching x+]\n") {
		t.Errorf("%v\n%s", err, p.User)
	}
	if CriteriaDigest(c.Rubric) == plain {
		t.Error("a calibration does not notice the demand")
	}
}
