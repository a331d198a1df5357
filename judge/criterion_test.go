package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// termed returns a case with two criteria, the second with terms, about data.
func termed(data string, terms Terms) Case {
	return reviewCase(func(c *Case) {
		c.Data = document.ReadTrusted([]byte(data))
		c.MaskedData, c.Merged, c.MaskedMerged = c.Data, c.Data, c.Data
		c.Rubric.Terms = map[string]Terms{c.Rubric.Criteria[1]: terms}
	})
}

// askedIDs returns the ids that a question asks about.
func askedIDs(t *testing.T, c Case) []string {
	t.Helper()
	q, err := askQuestion(c, prompts.TransitionV4, "MARKER", "NONCE")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, one := range q.criteria {
		ids = append(ids, one.id)
	}
	if got := strings.Count(q.prompt.User, "\n- c"); got != len(ids) {
		t.Errorf("%d criteria in the prompt, %d asked", got, len(ids))
	}
	return ids
}

const comments = `"comments":"Compared table 1 with its sources, and read sections 1 to 3"`

// An advisory criterion is recorded and reported, and does not change the outcome, even if the model leaves it out.
func TestAdvisory(t *testing.T) {
	t.Parallel()
	c := termed(`{`+comments+`}`, Terms{Advisory: true})
	for name, change := range map[string]func(*llm.Answer){
		"met":           func(*llm.Answer) {},
		"not met":       func(a *llm.Answer) { a.Criteria[1].Status, a.Approved = llm.StatusNotMet, false },
		"cannot assess": func(a *llm.Answer) { a.Criteria[1].Status, a.Approved = llm.StatusCannotAssess, false },
		"no such quote": func(a *llm.Answer) { a.Criteria[1].Evidence = "a quote that is not there" },
		"left out":      func(a *llm.Answer) { a.Criteria = a.Criteria[:1] },
	} {
		a := approving([]string{"c1", "c2"})
		change(&a)
		op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
		if op.Outcome != Approve || op.Confidence != 0.82 || !op.Model.Criteria[1].Advisory || (len(op.Flags) == 0) != (name == "met") {
			t.Errorf("%s: %s with %v, %q, %+v", name, op.Outcome, op.Confidence, op.Flags, op.Model.Criteria)
		}
	}
	a := rejecting([]string{"c1", "c2"})
	if op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c); op.Outcome != Reject {
		t.Errorf("the other criterion is not met: %s", op.Outcome)
	}
}

// Advice alone shows nothing: a move does not reach the assurance of a model by it, however the model answers.
func TestAdviceAloneGivesNoAssurance(t *testing.T) {
	t.Parallel()
	for name, samples := range map[string]int{"one answer": 1, "samples": 3} {
		c := termed(`{`+comments+`}`, Terms{Advisory: true})
		c.Rubric.Criteria, c.Rubric.Samples = c.Rubric.Criteria[1:], samples
		for _, status := range []string{llm.StatusMet, llm.StatusNotMet} {
			a := approving([]string{"c1"})
			a.Criteria[0].Status = status
			op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
			if op.Outcome != Approve || op.Assurance != AssuranceNone || op.Reasoning != "The model was asked for advice only." || findModelFlaw(op) != "" {
				t.Errorf("%s, %s: %s with the assurance %s: %s", name, status, op.Outcome, op.Assurance, op.Reasoning)
			}
		}
	}
}

// Code compares the grade. What is no grade of the scale is unreadable, and a grade needs a quote.
func TestScale(t *testing.T) {
	t.Parallel()
	c := termed(`{`+comments+`}`, Terms{Scale: &Scale{Of: 5, AtLeast: 3, Grades: []string{"none", "few", "half", "most", "all"}}})
	prompt, err := Show(c)
	if err != nil || !strings.Contains(prompt.User, "[grade 1 to 5; 1: none, 2: few, 3: half, 4: most, 5: all]") || strings.Contains(prompt.User+prompt.System, "atLeast") {
		t.Errorf("%v\n%s", err, prompt.User)
	}
	for _, tt := range []struct {
		grade  int
		quote  string
		want   Outcome
		status string
	}{
		{5, quotes[1], Approve, llm.StatusMet},
		{3, quotes[1], Approve, llm.StatusMet},
		{2, quotes[1], Reject, llm.StatusNotMet},
		{1, "", Reject, llm.StatusNotMet},
		{0, "", Escalate, llm.StatusCannotAssess},
		{4, "a quote that is not there", Escalate, llm.StatusCannotAssess},
		{6, quotes[1], Escalate, ""},
	} {
		a := approving([]string{"c1", "c2"})
		a.Criteria[1] = llm.Criterion{ID: "c2", Status: llm.StatusGraded, Grade: tt.grade, Evidence: tt.quote, Why: "Only two of them."}
		op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c)
		if op.Outcome != tt.want || tt.status == "" && op.Model.Failure != string(llm.ClassIncomplete) {
			t.Errorf("grade %d: %s %+v", tt.grade, op.Outcome, op.Model)
		}
		if tt.status != "" && (op.Model.Criteria[1].Status != tt.status || op.Model.Criteria[1].Grade != tt.grade) {
			t.Errorf("grade %d: %+v", tt.grade, op.Model.Criteria[1])
		}
		if tt.want == Reject && (op.Confidence != 0.82 || len(op.Findings) != 1 || !strings.Contains(op.Findings[0].Message, "Only two of them.")) {
			t.Errorf("grade %d: %v %+v", tt.grade, op.Confidence, op.Findings)
		}
	}
	for name, answer := range map[string]llm.Criterion{"a status": {ID: "c2", Status: llm.StatusMet, Evidence: quotes[1]}, "a grade without a scale": {ID: "c1", Status: llm.StatusGraded, Grade: 5, Evidence: quotes[0]}} {
		a := approving([]string{"c1", "c2"})
		a.Criteria = slices.DeleteFunc(a.Criteria, func(c llm.Criterion) bool { return c.ID == answer.ID })
		a.Criteria = append(a.Criteria, answer)
		if op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c); op.Outcome != Escalate || op.Model.Failure != string(llm.ClassIncomplete) {
			t.Errorf("%s: %s %+v", name, op.Outcome, op.Model)
		}
	}
	other := c
	other.Rubric.Terms = map[string]Terms{c.Rubric.Criteria[1]: {Scale: &Scale{Of: 5, AtLeast: 4, Grades: []string{"none", "few", "half", "most", "all"}}}}
	if CriteriaDigest(c.Rubric) == CriteriaDigest(other.Rubric) {
		t.Error("a calibration does not notice another threshold")
	}
}

// A criterion is asked of each item, all must hold, and each needs a quote from its own item.
func TestEach(t *testing.T) {
	t.Parallel()
	const items = `"symptoms":["a headache since last Monday","a cough for two weeks now"]`
	c := termed(`{`+comments+`,`+items+`}`, Terms{Each: "/data/symptoms"})
	if got := askedIDs(t, c); !slices.Equal(got, []string{"c1", "c2_1", "c2_2"}) {
		t.Fatal(got)
	}
	answer := func(first, second string) llm.Answer {
		a := approving([]string{"c1", "c2_1", "c2_2"})
		a.Criteria[1].Evidence, a.Criteria[2].Evidence = first, second
		return a
	}
	for name, tt := range map[string]struct {
		a    llm.Answer
		want Outcome
	}{
		"all hold":              {answer("a headache since last Monday", "a cough for two weeks"), Approve},
		"a quote of another":    {answer("a headache since last Monday", "headache since last Monday"), Escalate},
		"a quote of other data": {answer("read sections 1 to 3", "a cough for two weeks"), Escalate},
		"one item was left out": {func() llm.Answer { a := answer("", ""); a.Criteria = a.Criteria[:2]; return a }(), Escalate},
		"one item does not hold": {func() llm.Answer {
			a := answer("a headache since last Monday", "")
			a.Criteria[2].Status = llm.StatusNotMet
			return a
		}(), Reject},
	} {
		if op := opine(t, newModel(t, ModelConfig{Completer: tells(tt.a)}), c); op.Outcome != tt.want {
			t.Errorf("%s: %s %+v", name, op.Outcome, op.Model.Criteria)
		}
	}
	heard := termed(`{`+comments+`}`, Terms{Each: usersWords.From})
	heard.Rubric.Proofs = map[string]Proof{heard.Rubric.Criteria[1]: usersWords}
	heard.Fetched = []Evidence{{Name: "said", Content: json.RawMessage(`{"messages":["a headache since last Monday","a cough for two weeks now"]}`)}}
	for second, want := range map[string]Outcome{"a cough for two weeks": Approve, "headache since last Monday": Reject} {
		if op := opine(t, newModel(t, ModelConfig{Completer: tells(answer("a headache since last Monday", second))}), heard); op.Outcome != want {
			t.Errorf("from the evidence, %q: %s %+v", second, op.Outcome, op.Model.Criteria)
		}
	}
	list := func(n int) string {
		return `{` + comments + `,"symptoms":[` + strings.TrimSuffix(strings.Repeat(`"x",`, n), ",") + `]}`
	}
	for data, want := range map[string]string{
		`{` + comments + `}`:                       "/data/symptoms is not a list",
		`{` + comments + `,"symptoms":"headache"}`: "/data/symptoms is not a list",
		list(40): "/data/symptoms has 40 items; send at most 20",
		list(20): "",
		list(0):  "",
	} {
		found := termed(data, Terms{Each: "/data/symptoms"}).findBadLists()
		if (len(found) == 0) != (want == "") || len(found) > 0 && (!strings.Contains(found[0].Message, want) || found[0].Path != "/symptoms") {
			t.Errorf("%.40s: %+v", data, found)
		}
	}
	if got := askedIDs(t, termed(list(0), Terms{Each: "/data/symptoms"})); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("an empty list: %v", got)
	}
}

// A list that cannot be asked of rejects the move before the model is asked, even if nothing else is asked.
func TestBadListRejects(t *testing.T) {
	t.Parallel()
	c := termed(`{`+comments+`}`, Terms{Each: "/data/symptoms"})
	c.Rubric.Criteria = c.Rubric.Criteria[1:]
	if blank, err := hasNothingToJudge(c); blank || err != nil {
		t.Fatalf("%v, %v", blank, err)
	}
	op, err := contentLayer{}.Weigh(t.Context(), c)
	if err != nil || op.Outcome != Reject || op.Confidence != 1 || op.Findings[0].Code != CodeCriterionNotMet {
		t.Errorf("%+v, %v", op, err)
	}
}

// A criterion whose condition does not hold is not asked; the others keep their ids. Without any, the other layers
// decide.
func TestWhen(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) { c.Rubric.Terms = map[string]Terms{c.Rubric.Criteria[0]: {When: "data.amount > 100"}} })
	if got := c.Rubric.Conditions(); !slices.Equal(got, []string{"data.amount > 100"}) {
		t.Fatal(got)
	}
	if got := c.Rubric.listUnasked([]bool{true}); got != nil {
		t.Errorf("it holds: %v", got)
	}
	c.unasked = c.Rubric.listUnasked([]bool{false})
	if got := askedIDs(t, c); !slices.Equal(got, []string{"c2"}) {
		t.Fatalf("asked %v", got)
	}
	if op := opine(t, newModel(t, ModelConfig{Completer: tells(approving([]string{"c2"}))}), c); op.Outcome != Approve {
		t.Errorf("%s", op.Outcome)
	}
	if op := opine(t, newModel(t, ModelConfig{Completer: tells(approving([]string{"c1", "c2"}))}), c); op.Outcome != Escalate || op.Model.Failure != string(llm.ClassIncomplete) {
		t.Errorf("an answer that was not asked for: %s", op.Outcome)
	}
	c.Rubric.Criteria = c.Rubric.Criteria[:1]
	if blank, err := hasNothingToJudge(c); !blank || err != nil {
		t.Errorf("nothing applies: %v, %v", blank, err)
	}
}

func TestTermsThatMeanNothing(t *testing.T) {
	t.Parallel()
	for _, terms := range []Terms{
		{Each: "symptoms"},
		{Each: "/gate/states"},
		{Each: "/data/"[:5]},
		{Scale: &Scale{Of: 1, AtLeast: 1}},
		{Scale: &Scale{Of: 11, AtLeast: 1}},
		{Scale: &Scale{Of: 5}},
		{Scale: &Scale{Of: 5, AtLeast: 6}},
		{Scale: &Scale{Of: 3, AtLeast: 2, Grades: []string{"a", "b"}}},
	} {
		if terms.Validate() == nil {
			t.Errorf("%+v is accepted", terms)
		}
		c := termed(`{`+comments+`}`, terms)
		if err := c.validate(); !errors.Is(err, ErrCase) {
			t.Errorf("%+v: %v", terms, err)
		}
	}
	if err := (Terms{Each: "/evidence/bank/rows", Scale: &Scale{Of: 2, AtLeast: 1}}).Validate(); err != nil {
		t.Error(err)
	}
}

// The record names what was asked and what it came to, so that it can be checked later.
func TestTermsAreRecorded(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(termed(`{}`, Terms{When: "true", Advisory: true, Each: "/data/a", Scale: &Scale{Of: 5, AtLeast: 3}}).Rubric)
	if err != nil || !strings.Contains(string(raw), fmt.Sprintf(`"terms":{%q:{"when":"true","advisory":true,"each":"/data/a","scale":{"of":5,"atLeast":3}}}`, "The comments say what was compared")) {
		t.Errorf("%v: %s", err, raw)
	}
}

// userSaid is a source of the messages of an agent's user; without any, it fails.
type userSaid []string

func (h userSaid) Fetch(context.Context, EvidenceRequest, bool) (FetchResult, error) {
	if len(h) == 0 {
		return FetchResult{Failure: FailureUnavailable}, nil
	}
	content, err := json.Marshal(map[string]any{"messages": h, "omitted": 0})
	return FetchResult{Content: content}, err
}

var usersWords = Proof{Basis: BasisEvidence, From: "/evidence/said/messages"}

// Only the user's own words prove a criterion that demands them, however sure a model is.
func TestUsersWordsProve(t *testing.T) {
	t.Parallel()
	user := userSaid{"please refund order 7", "today, for me", "ok"}
	for _, tt := range []struct {
		name, quote string
		user        userSaid
		want        Outcome
	}{
		{"a message", "please refund order 7", user, Approve},
		{"a short message as a whole", "ok", user, Approve},
		{"part of a message", "refund order 7", user, Reject}, // three words
		{"words of two messages", "refund order 7 today, for me", user, Reject},
		{"the agent's words", quote, user, Reject},
		{"the agent's account of the user's words", "please refund order 7", userSaid{"hello"}, Reject},
		{"no message", "please refund order 7", nil, Reject},
		{"the reason why there is none", "unavailable", nil, Reject},
	} {
		c := termed(`{"comments":"The user said: please refund order 7. `+quote+`"}`, Terms{})
		c.Rubric.Criteria = c.Rubric.Criteria[1:]
		c.Rubric.Proofs = map[string]Proof{c.Rubric.Criteria[0]: usersWords}
		found, err := tt.user.Fetch(t.Context(), EvidenceRequest{}, true)
		if err != nil {
			t.Fatal(err)
		}
		c.Fetched = []Evidence{{Name: "said", Failure: found.Failure, Content: found.Content}}
		a := approving([]string{"c1"})
		a.Criteria[0].Evidence = tt.quote
		if op := opine(t, newModel(t, ModelConfig{Completer: tells(a)}), c); op.Outcome != tt.want {
			t.Errorf("%s: %s, want %s: %+v", tt.name, op.Outcome, tt.want, op.Model.Criteria)
		}
	}
}

// With any terms, any transcript and any answer, the outcome is never more permissive than without the model, and only
// the user's own words prove a criterion that demands them.
func TestTermsOnlyRestrict(t *testing.T) {
	t.Parallel()
	messages := []string{"please refund order 7 today", "yes, go ahead and refund it", "ok"}
	rapid.Check(t, func(t *rapid.T) {
		c, ops := drawBench(t)
		if rapid.IntRange(0, 3).Draw(t, "rules object") > 0 { // they do so often that few models would be asked
			c.Rubric.Enabled, c.Rubric.UseLLM = true, true
			for _, layer := range []LayerName{LayerFields, LayerSchema, LayerScript, LayerState} {
				if op := ops[layer]; op.Outcome != Approve {
					delete(ops, layer)
				}
			}
		}
		review := reviewCase()
		data := document.ReadTrusted(fmt.Appendf(nil, `{%s,"items":[%s],"messages":["the user asked for it"]}`, comments, strings.TrimSuffix(strings.Repeat(`"read sections 1 to 3",`, rapid.IntRange(0, 22).Draw(t, "items")), ",")))
		c.Data, c.Merged, c.MaskedData, c.MaskedMerged, c.Rubric.Criteria = data, data, data, data, review.Rubric.Criteria
		c.Rubric.Terms, c.Rubric.Proofs = map[string]Terms{}, map[string]Proof{}
		for _, text := range c.Rubric.Criteria {
			terms := Terms{Advisory: rapid.Bool().Draw(t, "advisory"), Each: rapid.SampledFrom([]string{"", "", "", "/data/items", usersWords.From, usersWords.From, "/data/comments", "/context/none"}).Draw(t, "each")}
			if rapid.Bool().Draw(t, "scaled") {
				terms.Scale = &Scale{Of: 5, AtLeast: rapid.IntRange(1, 5).Draw(t, "at least")}
			}
			c.Rubric.Terms[text] = terms
			if rapid.Bool().Draw(t, "demands the user's words") {
				c.Rubric.Proofs[text] = usersWords
			}
		}
		user := userSaid(messages[:rapid.IntRange(0, len(messages)).Draw(t, "messages")])
		c.Owner.Trusted = rapid.IntRange(0, 9).Draw(t, "trusted") > 0
		c.Evidence = []EvidenceRequest{{Name: "said", Source: "user", Arguments: json.RawMessage(`{}`), Required: rapid.Bool().Draw(t, "required")}}
		if op := ops[LayerScript]; op.Outcome != "" {
			op.NotAsked = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"c1", "c2"}), rapid.ID).Draw(t, "not asked")
			ops[LayerScript] = op
		}
		asked := c
		asked.unasked = ops[LayerScript].NotAsked
		if found, err := user.Fetch(t.Context(), EvidenceRequest{}, true); err != nil {
			t.Fatal(err)
		} else {
			asked.Fetched = []Evidence{{Name: "said", Failure: found.Failure, Content: found.Content}}
		}
		a := llm.Answer{Keyed: true, Confidence: rapid.SampledFrom([]float64{0, 0.9, 1}).Draw(t, "confidence"), InjectionSuspected: rapid.IntRange(0, 9).Draw(t, "injection") == 0}
		all := slices.Concat(quotes, user, []string{"made up", "", "the user asked for it", `order 7 today","yes, go ahead`, "refund order 7 today yes, go ahead", "unavailable"})
		fooled, proofs := rapid.Bool().Draw(t, "fooled"), map[string]Proof{}
		for i, one := range asked.criteria() {
			answer := llm.Criterion{ID: one.id, Status: rapid.SampledFrom([]string{llm.StatusMet, llm.StatusMet, llm.StatusNotMet, llm.StatusCannotAssess}).Draw(t, "status"), Evidence: rapid.SampledFrom(all).Draw(t, "quote")}
			if fooled {
				answer.Status, answer.Evidence = llm.StatusMet, slices.Concat(user, quotes)[i%(len(user)+len(quotes))]
			}
			if one.terms.Scale != nil {
				answer.Status, answer.Grade = llm.StatusGraded, rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 5, 5, 6}).Draw(t, "grade")
			}
			if fooled || rapid.IntRange(0, 9).Draw(t, "answered") > 0 {
				a.Criteria = append(a.Criteria, answer)
			}
			proofs[one.id] = one.proof
		}
		layer, err := NewModel(ModelConfig{Completer: tells(a)})
		if err != nil {
			t.Fatal(err)
		}
		p := bench(ops, Opinion{})
		p.withoutModel = slices.Insert(p.withoutModel, 2, []Layer{evidence{user, time.Now}})
		p.withModel = [][]Layer{{contentLayer{}}, {layer}}
		v := decide(t, p, c)
		checkCoherent(t, v)
		checkAgainstWithout(t, p, c, v)
		for _, op := range v.Opinions {
			if op.Layer != LayerModel || op.Model == nil {
				continue
			}
			for _, one := range op.Model.Criteria {
				if op.Outcome == Approve && !one.Advisory && one.Status != llm.StatusMet {
					t.Fatalf("approved with %+v", one)
				}
				if one.Status == llm.StatusMet && proofs[one.ID] == usersWords && !strings.Contains(sameQuote(strings.Join(user, "")), sameQuote(one.Evidence)) {
					t.Fatalf("the user never said this: %+v", one)
				}
			}
		}
	})
}
