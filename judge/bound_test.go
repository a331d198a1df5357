package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

// diary is a Memory that stores lessons as an engine does.
type diary struct {
	at       []time.Time
	keys     [][2]string // identity and bound
	opinions []*Opinion
}

func (d *diary) Recall(_ context.Context, _, identity string, since time.Time) (Recollection, error) {
	for i := len(d.at) - 1; i >= 0; i-- {
		if (d.keys[i][0] == identity || d.keys[i][1] == identity) && !d.at[i].Before(since) {
			return Recollection{Opinion: d.opinions[i]}, nil
		}
	}
	return Recollection{}, nil
}

func (d *diary) learn(c Case, v Verdict) {
	if l := v.Lesson(); l.Opinion != nil {
		d.at, d.opinions = append(d.at, c.Now), append(d.opinions, l.Opinion)
		d.keys = append(d.keys, [2]string{IdentityWith(c.Identity, v.Evidence), BoundWith(c.Bound, v.Evidence)})
	}
}

// No sequence of requests by one principal gets a move approved by the structural fallback within a
// day of the model's refusal: not through superficial changes, another configuration of the judge,
// irrelevant changes of the evidence, or any failure of the model. Nor does a failure that the caller
// contributed to approve a question that was never asked.
func TestNoSequenceHasARefusedMoveApproved(t *testing.T) {
	t.Parallel()
	failures := []*llm.Error{
		{Class: llm.ClassNetwork},
		{Class: llm.ClassUpstream},
		{Class: llm.ClassBreakerOpen},
		{Class: llm.ClassAuth},
		{Class: llm.ClassConfig},
		{Class: llm.ClassRateLimited},
		{Class: llm.ClassNotBefore},
		{Class: llm.ClassQuota},
		{Class: llm.ClassOverloaded},
		{Class: llm.ClassRateLimited, CallerPart: true},
		{Class: llm.ClassNotBefore, CallerPart: true},
		{Class: llm.ClassQuota, CallerPart: true},
		{Class: llm.ClassTimeout},
		{Class: llm.ClassBusy},
		{Class: llm.ClassShareSpent},
		{Class: llm.ClassMalformed},
		{Class: llm.ClassRefusal},
	}
	contents := []string{`{"passed":false,"ms":1}`, `{"passed":false,"ms":2}`, `{"passed":true,"ms":3}`}
	rapid.Check(t, func(t *rapid.T) {
		memory := &diary{}
		var fetched string
		refusedAt := map[string]time.Time{} // by the bound digest
		review := reviewCase(func(c *Case) {
			c.Rubric.Proofs = map[string]Proof{}
			for _, text := range c.Rubric.Criteria {
				c.Rubric.Proofs[text] = Proof{MinWords: 1}
			}
		})
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		withEvidence := rapid.Bool().Draw(t, "evidence")
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			says := rapid.SampledFrom([]string{"approve", "reject", "reject", "fail", "fail", "fail", "none"}).Draw(t, "model")
			failure := rapid.SampledFrom(failures).Draw(t, "failure")
			data := rapid.SampledFrom([]string{`{"comments":"Compared it."}`, `{"comments":"compared IT"}`, `{"comments":"Read it."}`}).Draw(t, "data")
			past := rapid.SampledFrom([]string{`{}`, `{"n":1}`}).Draw(t, "context")
			config := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "config")
			fetched = rapid.SampledFrom(contents).Draw(t, "fetched")
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 11 * time.Hour, 25 * time.Hour}).Draw(t, "later"))

			c := review
			c.Data, c.MaskedData, c.Merged, c.MaskedMerged = document.ReadTrusted([]byte(data)), document.ReadTrusted([]byte(data)), document.ReadTrusted([]byte(data)), document.ReadTrusted([]byte(data))
			c.Context, c.MaskedContext = document.ReadTrusted([]byte(past)), document.ReadTrusted([]byte(past))
			c.Now, c.Guard, c.Rubric.StrictMode, c.Rubric.OnJudgeUnavailable = now, "", false, ""
			c.Identity, c.Bound = data+past+config, string(FingerprintOf(c.Data))+past
			ids := []string{"c1", "c2"}
			var layer Layer = missingModel{memory, time.Now}
			if says != "none" {
				completer := llm.CompleterFunc(func(context.Context, llm.Request) (llm.Reply, error) {
					switch says {
					case "approve":
						a := approving(ids)
						a.Criteria[0].Evidence, a.Criteria[1].Evidence = data, strings.Trim(data, "{}")[len(`"comments":`):]
						return llm.Reply{Answer: a, Calls: 1}, nil
					case "reject":
						return llm.Reply{Answer: rejecting(ids), Calls: 1}, nil
					}
					return llm.Reply{}, failure
				})
				var err error
				if layer, err = NewModel(ModelConfig{Completer: completer, Memory: memory}); err != nil {
					t.Fatal(err)
				}
			}
			ops := map[LayerName]Opinion{LayerTransition: legal()}
			key := c.Bound
			if withEvidence {
				same := json.RawMessage(fmt.Sprintf(`{"passed":%t}`, fetched == contents[2]))
				e, err := Evidence{Name: "tests", Required: true}.withContent(c, FetchResult{Content: json.RawMessage(fetched), Same: same})
				if err != nil {
					t.Fatal(err)
				}
				ops[LayerEvidence] = Opinion{Layer: LayerEvidence, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone, Evidence: []Evidence{e}}
				key += string(same)
			}
			p := bench(ops, Opinion{})
			p.withModel[len(p.withModel)-1] = []Layer{layer}
			v, err := p.Decide(context.Background(), c)
			if errors.Is(err, ErrBusy) {
				if says != "fail" || !failure.IsBusy() {
					t.Fatal(err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			at, refused := refusedAt[key]
			if v.Outcome == Approve && v.DecidedBy == ByFallback {
				if refused && now.Sub(at) <= BoundFor {
					t.Fatalf("%s: approved by fallback %v after the refusal", data, now.Sub(at))
				}
				if says == "fail" && (failure.IsBusy() || failure.Class.Traits().FromCase) {
					t.Fatalf("approved because of %s", failure.Class)
				}
			}
			if i := len(v.Opinions) - 1; v.Opinions[i].isJudgement() && v.Opinions[i].Outcome != Approve && !v.Opinions[i].isReused() {
				refusedAt[key] = now
			}
			memory.learn(c, v)
		}
	})
}
