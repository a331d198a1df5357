package llmtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Thought is a model's result: an Answer, or Text that is sent verbatim instead.
type Thought struct {
	Answer llm.Answer
	Text   string
}

// Brain is a scripted model.
type Brain func(Question) Thought

// Approver approves honestly: it quotes the documents for every criterion, and answers "cannot assess" if
// there is nothing to quote.
func Approver(q Question) Thought { return approveThought(q, 0.97) }

// Gullible approves everything with full confidence and quotes real text of the documents for every criterion,
// whatever they contain. It is the model that attackers hope for.
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

// Obedient answers exactly in the schema that it receives; for an unknown member, it answers with a text
// that fails the test. When it approves, it quotes a whole member for each criterion in turn, first from
// the data, then from the context. If its approval is not accepted, no model's would be.
func Obedient(approves bool, reasoning string, suggestions ...string) Brain {
	return func(q Question) Thought {
		answer := map[string]any{}
		members := q.members()
		for name, schema := range q.schema() {
			switch name {
			case "approved":
				answer[name] = approves
			case "confidence":
				answer[name] = 0.95
			case "reasoning":
				answer[name] = reasoning
			case "nonce":
				answer[name] = q.Nonce
			case "injection_suspected":
				answer[name] = false
			case "suggestions":
				answer[name] = append([]string{}, suggestions...)
			case "violations":
				answer[name] = []string{}
				if !approves {
					answer[name] = []string{reasoning}
				}
			case "criteria":
				answer[name] = obedientCriteria(schema, approves, members)
			default:
				return Thought{Text: "the schema asks for " + name + ", which the obedient model does not know"}
			}
		}
		raw, err := json.Marshal(answer)
		if err != nil {
			return Thought{Text: err.Error()}
		}
		return Thought{Text: string(raw)}
	}
}

func obedientCriteria(schema any, approves bool, members []string) map[string]any {
	object, _ := schema.(map[string]any)
	ids, _ := object["required"].([]any)
	out := map[string]any{}
	for i, id := range ids {
		one := map[string]any{"evidence": "", "status": llm.WordNotShown, "why": "Nothing says so."}
		if approves && i < len(members) {
			one = map[string]any{"evidence": members[i], "status": llm.StatusMet, "why": ""}
		}
		out[fmt.Sprint(id)] = one
	}
	return out
}

// Rejecter answers that no criterion is met.
func Rejecter(q Question) Thought {
	a := llm.Answer{Confidence: 0.95, Reasoning: "Nothing is shown.", Violations: []string{"Nothing is shown."}, Suggestions: []string{"Show it."}}
	for _, id := range q.Criteria {
		a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: llm.StatusNotMet})
	}
	return Thought{Answer: a}
}

// Unsure answers that it cannot assess any criterion.
func Unsure(q Question) Thought {
	a := llm.Answer{Confidence: 0.5, Reasoning: "It cannot be told."}
	for _, id := range q.Criteria {
		a.Criteria = append(a.Criteria, llm.Criterion{ID: id, Status: llm.StatusCannotAssess})
	}
	return Thought{Answer: a}
}

// Contradicting approves although it reports that no criterion is met.
func Contradicting(q Question) Thought {
	t := Rejecter(q)
	t.Answer.Approved, t.Answer.Violations = true, nil
	return t
}

// Liar approves with quotes that appear in no document.
func Liar(q Question) Thought {
	t := Approver(q)
	for i := range t.Answer.Criteria {
		t.Answer.Criteria[i].Evidence = "a quote that nobody wrote, 4711"
	}
	return t
}

// statusWords maps statuses to the words of the prompt edition that also asks for a reason (why).
var statusWords = map[string]string{llm.StatusNotMet: llm.WordContradicted, llm.StatusCannotAssess: llm.WordNotShown}

// overallText formats the answer to the overall question, in which a suspected injection is a violation.
func (t Thought) overallText(nonce string) string {
	a := t.Answer
	if a.InjectionSuspected {
		a.Approved, a.Violations = false, append([]string{"The data tries to instruct the judge."}, a.Violations...)
	}
	raw, err := json.Marshal(struct {
		Nonce       string   `json:"nonce,omitempty"`
		Reasoning   string   `json:"reasoning"`
		Violations  []string `json:"violations"`
		Suggestions []string `json:"suggestions"`
		Approved    bool     `json:"approved"`
		Confidence  float64  `json:"confidence"`
	}{nonce, a.Reasoning, append([]string{}, a.Violations...), append([]string{}, a.Suggestions...), a.Approved, a.Confidence})
	if err != nil {
		return "null" // the confidence is NaN or infinite
	}
	return string(raw)
}

// LeavesOut answers like a brain, without its answer to the last criterion.
func LeavesOut(b Brain) Brain {
	return func(q Question) Thought {
		t := b(q)
		t.Answer.Criteria = t.Answer.Criteria[:max(0, len(t.Answer.Criteria)-1)]
		return t
	}
}

// Backwards answers like a brain, the last criterion first.
func Backwards(b Brain) Brain {
	return func(q Question) Thought {
		t := b(q)
		t.Answer.Criteria = slices.Clone(t.Answer.Criteria)
		slices.Reverse(t.Answer.Criteria)
		return t
	}
}

// Shortest is a model that writes only what a grammar forces it to: lists and texts stay empty, and of words it takes
// the first. It approves where it is asked for that.
func Shortest(q Question) Thought {
	raw, err := json.Marshal(shortestOf(q, "", map[string]any{"properties": q.schema()}))
	if err != nil {
		return Thought{Text: err.Error()}
	}
	return Thought{Text: string(raw)}
}

// shortestOf returns the shortest value of the member that a schema allows.
func shortestOf(q Question, name string, schema map[string]any) any {
	if words, _ := schema["enum"].([]any); len(words) > 0 {
		return words[0]
	}
	switch {
	case name == "nonce":
		return q.Nonce
	case schema["type"] == "array":
		return []any{}
	case schema["type"] == "boolean":
		return name == "approved"
	case schema["type"] == "number":
		return 0.9
	case schema["type"] == "string":
		return ""
	}
	members := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, of := range properties {
		of, _ := of.(map[string]any)
		members[name] = shortestOf(q, name, of)
	}
	return members
}

// Says always answers with text.
func Says(text string) Brain { return func(Question) Thought { return Thought{Text: text} } }

// keyedText formats the answer with a member for each criterion. Approved has no place in it.
func (t Thought) keyedText(nonce string) string {
	raw, err := json.Marshal(struct {
		Nonce              string       `json:"nonce,omitempty"`
		Criteria           keyedAnswers `json:"criteria"`
		InjectionSuspected bool         `json:"injection_suspected"`
		Suggestions        []string     `json:"suggestions"`
		Confidence         float64      `json:"confidence"`
	}{nonce, t.Answer.Criteria, t.Answer.InjectionSuspected, append([]string{}, t.Answer.Suggestions...), t.Answer.Confidence})
	if err != nil {
		return "null" // the confidence is NaN or infinite
	}
	return string(raw)
}

// keyedAnswers are written as an object in their order, with duplicates.
type keyedAnswers []llm.Criterion

func (all keyedAnswers) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, c := range all {
		one := map[string]any{"evidence": c.Evidence, "why": c.Why}
		if c.Status == llm.StatusGraded {
			one["grade"] = c.Grade
		} else {
			one["status"] = cmp.Or(statusWords[c.Status], c.Status)
		}
		raw, err := json.Marshal(one)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s%q:%s", []string{"", ","}[min(i, 1)], c.ID, raw)
	}
	return fmt.Appendf(nil, "{%s}", b.Bytes()), nil
}

// text formats the thought in the form of q's edition.
func (t Thought) text(q Question, nonce string) string {
	if t.Text != "" {
		return t.Text
	}
	if len(q.Criteria) == 0 {
		return t.overallText(nonce)
	}
	if q.isKeyed() {
		return t.keyedText(nonce)
	}
	type criterion struct {
		ID       string `json:"id"`
		Evidence string `json:"evidence"`
		Why      string `json:"why"`
		Status   string `json:"status"`
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
		out.Criteria = append(out.Criteria, criterion{c.ID, c.Evidence, c.Why, cmp.Or(statusWords[c.Status], c.Status)})
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return "null" // the confidence is NaN or infinite
	}
	return string(raw)
}
