package llmtest

import (
	"cmp"
	"encoding/json"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Thought is what a model comes to: an Answer, or Text that stands for it as it is.
type Thought struct {
	Answer llm.Answer
	Text   string
}

// Brain is a scripted model.
type Brain func(Question) Thought

// Approver approves honestly: it quotes something of the data for every criterion,
// and says that it cannot tell where there is nothing to quote.
func Approver(q Question) Thought { return approveThought(q, 0.97) }

// Gullible approves everything with full confidence and quotes real text of the data
// for every criterion, whatever the data say: the model that every attacker wants.
func Gullible(q Question) Thought { return approveThought(q, 1) }

func approveThought(q Question, confidence float64) Thought {
	a := llm.Answer{Approved: true, Confidence: confidence, Reasoning: "Every criterion is shown."}
	quotes := q.quotes()
	for i, id := range q.Criteria {
		c := llm.Criterion{ID: id, Status: llm.StatusMet}
		if len(quotes) > 0 {
			c.Evidence = quotes[i%len(quotes)]
		}
		a.Criteria = append(a.Criteria, c)
	}
	return Thought{Answer: a}
}

// Rejecter finds that no criterion is met.
func Rejecter(q Question) Thought {
	a := llm.Answer{Confidence: 0.95, Reasoning: "Nothing is shown.", Violations: []string{"Nothing is shown."}, Suggestions: []string{"Show it."}}
	for _, id := range q.Criteria {
		a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: llm.StatusNotMet})
	}
	return Thought{Answer: a}
}

// Unsure can assess nothing.
func Unsure(q Question) Thought {
	a := llm.Answer{Confidence: 0.5, Reasoning: "It cannot be told."}
	for _, id := range q.Criteria {
		a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: llm.StatusCannotAssess})
	}
	return Thought{Answer: a}
}

// Contradicting approves what it says is not met.
func Contradicting(q Question) Thought {
	t := Rejecter(q)
	t.Answer.Approved, t.Answer.Violations = true, nil
	return t
}

// Liar approves with quotes that are nowhere.
func Liar(q Question) Thought {
	t := Approver(q)
	for i := range t.Answer.Criteria {
		t.Answer.Criteria[i].Evidence = "a quote that nobody wrote, 4711"
	}
	return t
}

// statusWords are what the statuses are called where the model also says why.
var statusWords = map[string]string{llm.StatusNotMet: llm.WordContradicted, llm.StatusCannotAssess: llm.WordNotShown}

// Says answers with a text.
func Says(text string) Brain { return func(Question) Thought { return Thought{Text: text} } }

// text writes the thought in the key order of the schema, with the words of the edition that q is
// asked with.
func (t Thought) text(q Question, nonce string) string {
	if t.Text != "" {
		return t.Text
	}
	type criterion struct {
		ID       string  `json:"id"`
		Evidence string  `json:"evidence"`
		Why      *string `json:"why,omitempty"`
		Status   string  `json:"status"`
	}
	out := struct {
		Nonce              string      `json:"nonce,omitempty"`
		Criteria           []criterion `json:"criteria"`
		InjectionSuspected bool        `json:"injection_suspected"`
		Reasoning          string      `json:"reasoning"`
		Violations         []string    `json:"violations"`
		Suggestions        []string    `json:"suggestions"`
		Approved           bool        `json:"approved"`
		Confidence         float64     `json:"confidence"`
	}{
		nonce,
		[]criterion{},
		t.Answer.InjectionSuspected, t.Answer.Reasoning,
		append([]string{}, t.Answer.Violations...), append([]string{}, t.Answer.Suggestions...), t.Answer.Approved, t.Answer.Confidence,
	}
	for _, c := range t.Answer.Criteria {
		says := criterion{ID: c.ID, Evidence: c.Evidence, Status: c.Status}
		if q.saysWhy() {
			says.Status, says.Why = cmp.Or(statusWords[c.Status], c.Status), &c.Why
		}
		out.Criteria = append(out.Criteria, says)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return "null" // a confidence that is no number
	}
	return string(raw)
}
