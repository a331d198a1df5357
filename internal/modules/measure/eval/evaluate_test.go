package eval

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// golden returns a case of the split test.
func golden(id string, expect judge.Outcome) Case {
	return Case{ID: id, Workflow: json.RawMessage(`{"ref":"flows.yaml#review"}`), State: "reviewing", Action: "approve", Expect: Expect{Outcome: expect}, Label: Label{Source: "human"}, Split: Test}
}

// answer returns a result of a model.
func answer(id string, got judge.Outcome, confidence float64) Result {
	p := confidence
	if got != judge.Approve {
		p = 1 - confidence
	}
	return Result{Case: id, Outcome: got, Confidence: confidence, Approval: &p, Stated: &confidence, DecidedBy: judge.LayerModel, Model: "m", PromptDigest: "p", CriteriaDigest: "c", Calls: 1}
}

// hand returns a set whose figures are worked by hand. Expected approve got 6 approve, 1 reject, 1 escalate; expected
// reject got 1, 4, 1; expected escalate got 1, 2, 3.
func hand() (cases []Case, results []Result) {
	for _, of := range []struct {
		expect judge.Outcome
		counts [3]int
	}{{judge.Approve, [3]int{6, 1, 1}}, {judge.Reject, [3]int{1, 4, 1}}, {judge.Escalate, [3]int{1, 2, 3}}} {
		for i, n := range of.counts {
			for j := range n {
				id := fmt.Sprintf("%s-%s-%d", of.expect, outcomes[i], j)
				cases = append(cases, golden(id, of.expect))
				results = append(results, answer(id, outcomes[i], 0.9))
			}
		}
	}
	return cases, results
}

func checkRate(t *testing.T, what string, r Rate, k, n int) {
	t.Helper()
	if r.K != k || r.N != n {
		t.Errorf("%s: %d of %d, want %d of %d", what, r.K, r.N, k, n)
	}
}

func TestEvaluateByHand(t *testing.T) {
	cases, results := hand()
	r := Evaluate(cases, results, Options{})
	if !r.Evaluated || r.Counts.Scored != 20 || r.Counts.Groups != 20 {
		t.Fatalf("counts: %+v %s", r.Counts, r.NotEvaluated)
	}
	checkRate(t, "false approve", r.FalseApprove, 2, 12)
	checkRate(t, "wrong approvals", r.WrongApprovals, 2, 8)
	checkRate(t, "false refuse", r.FalseRefuse, 2, 8)
	checkRate(t, "false reject", r.FalseReject, 1, 8)
	checkRate(t, "escalation", r.Escalation, 5, 20)
	checkRate(t, "accuracy", r.Accuracy, 13, 20)
	checkRate(t, "gate accuracy", r.GateAccuracy, 16, 20)
	if r.Confusion.ExpectNotApprove != (OutcomeCounts{2, 6, 4}) || r.Confusion.ExpectApprove != (OutcomeCounts{6, 1, 1}) {
		t.Errorf("confusion: %+v", r.Confusion)
	}
	// po = 16/20, pe = (8*8 + 12*12)/400 = 0.52.
	near(t, "kappa", *r.Kappa.Value, (0.8-0.52)/(1-0.52), 1e-12)
	// po = 13/20, pe = (8*8 + 6*7 + 6*5)/400 = 0.34.
	near(t, "outcome kappa", *r.OutcomeKappa.Value, (0.65-0.34)/(1-0.34), 1e-12)
	near(t, "Brier", *r.Probability.Brier.Value, (16*0.01+4*0.81)/20, 1e-12)
	checkRate(t, "always approve", r.Baselines[0].FalseApprove, 12, 12)
	checkRate(t, "always reject is right", r.Baselines[1].Accuracy, 6, 20)
	near(t, "a constant has kappa 0", *r.Baselines[0].Kappa, 0, 1e-12)
	if got := r.Worst[0]; len(r.Worst) != 7 || got.Got != judge.Approve || got.Expected == judge.Approve {
		t.Errorf("worst: %+v", r.Worst)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestUnreadablePolicies(t *testing.T) {
	cases, results := hand()
	for _, id := range []string{"approve-approve-0", "reject-escalate-0"} {
		i := slices.IndexFunc(results, func(r Result) bool { return r.Case == id })
		results[i].Unreadable, results[i].Outcome, results[i].Approval = true, judge.Escalate, nil
	}
	for _, c := range []struct {
		policy       Policy
		falseApprove [2]int
		escalation   [2]int
		accuracy     [2]int
	}{
		{AsDecided, [2]int{2, 12}, [2]int{6, 20}, [2]int{12, 20}},
		{AsWrong, [2]int{3, 12}, [2]int{4, 20}, [2]int{12, 20}},
		{Excluded, [2]int{2, 11}, [2]int{4, 18}, [2]int{12, 18}},
	} {
		r := Evaluate(cases, results, Options{Unreadable: c.policy})
		checkRate(t, string(c.policy)+" false approve", r.FalseApprove, c.falseApprove[0], c.falseApprove[1])
		checkRate(t, string(c.policy)+" escalation", r.Escalation, c.escalation[0], c.escalation[1])
		checkRate(t, string(c.policy)+" accuracy", r.Accuracy, c.accuracy[0], c.accuracy[1])
		checkRate(t, string(c.policy)+" unreadable", r.Unreadable, 2, 20)
		if r.Probability.N != 18 {
			t.Errorf("%s: %d probabilities, want 18", c.policy, r.Probability.N)
		}
		if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, "2 unreadable answers: ") }) {
			t.Errorf("%s: not said: %q", c.policy, r.Notes)
		}
	}
}

func TestFailuresAreNoAnswers(t *testing.T) {
	cases, results := hand()
	results[0].Failure, results[0].Outcome = "cassette", ""
	results = results[:19]
	r := Evaluate(cases, results, Options{})
	if r.Evaluated || r.Counts.Failed != 1 || r.Counts.Missing != 1 || r.Counts.Scored != 18 {
		t.Errorf("%+v", r.Counts)
	}
	if diff := cmp.Diff([]Tally{{"cassette", 1}}, r.Counts.Failures); diff != "" {
		t.Error(diff)
	}
	if r := Evaluate(cases, results, Options{MaxFailures: new(0.1)}); !r.Evaluated {
		t.Errorf("2 of 20 are within 10 %%: %s", r.NotEvaluated)
	}
	if r := Evaluate(nil, results, Options{}); r.Evaluated || r.Counts.UnknownResults != 19 {
		t.Errorf("no cases: %+v", r.Counts)
	}
	if r := Evaluate(cases, results, Options{Splits: []Split{Cal}}); r.Evaluated || r.Counts.Cases != 0 || r.Counts.UnknownResults != 0 {
		t.Errorf("other split: %+v", r.Counts)
	}
}

func TestRepeatsAndFlips(t *testing.T) {
	cases, results := hand()
	for i, r := range slices.Clone(results) {
		r.Repeat = 1
		switch i {
		case 0:
			r.Outcome = judge.Reject // approved before
		case 6:
			r.Outcome = judge.Escalate // rejected before
		case 7:
			r.Failure = "timeout"
		}
		results = append(results, r)
	}
	r := Evaluate(cases, results, Options{})
	checkRate(t, "flips", r.Flips.Rate, 2, 19)
	checkRate(t, "accuracy of the first", r.Accuracy, 13, 20)
	results[0].Failure = "timeout"
	checkRate(t, "the second stands in", Evaluate(cases, results, Options{}).Accuracy, 12, 20)
}

func TestSlicesCriteriaReasonsCost(t *testing.T) {
	a, b := golden("a", judge.Reject), golden("b", judge.Approve)
	a.Tags, a.Risk, a.Expect.ViolationsAny = []string{"injection", "injection"}, "high", []string{"missing"}
	a.Expect.Criteria = map[string]string{"c1": "not_met", "c9": "met"}
	b.Expect.Criteria = map[string]string{"Names the reviewer": "met"}
	ra, rb := answer("a", judge.Reject, 0.8), answer("b", judge.Approve, 0.7)
	ra.Codes, ra.Criteria = []string{"missing"}, []judge.CriterionVerdict{{ID: "C1", Status: "met"}}
	rb.Criteria = []judge.CriterionVerdict{{ID: "c1", Text: "names the reviewer", Status: "met"}}
	const second = document.Milliseconds(time.Second)
	ra.PromptTokens, ra.CostUSD, ra.Took, rb.Took = new(100), new(0.5), second, 3*second
	ra.Rung = "json_schema"
	r := Evaluate([]Case{a, b}, []Result{ra, rb}, Options{})
	tag := r.Slices[slices.IndexFunc(r.Slices, func(s Slice) bool { return s.Kind == SliceTag })]
	if tag.Name != "injection" || tag.N != 1 {
		t.Errorf("a tag given twice counts once: %+v", tag)
	}
	if at := slices.IndexFunc(r.Slices, func(s Slice) bool { return s.Kind == SliceWorkflow && s.Name == "review" && s.N == 2 }); at < 0 {
		t.Errorf("no slice of the workflow: %+v", r.Slices)
	}
	checkRate(t, "reasons", r.Reasons, 1, 1)
	if len(r.Criteria) != 3 || r.Criteria[1].Name != "c1" || r.Criteria[2].Unanswered != 1 {
		t.Fatalf("criteria: %+v", r.Criteria)
	}
	checkRate(t, "false met", r.Criteria[1].FalseMet, 1, 1)
	checkRate(t, "by text", r.Criteria[0].Accuracy, 1, 1)
	if c := r.Cost; c.PromptTokens != (Sum{100, 1, 1}) || c.CostUSD != (Sum{0.5, 1, 1}) || c.CompletionTokens != (Sum{0, 0, 2}) {
		t.Errorf("unknown is not 0: %+v", c)
	}
	if c := r.Cost; c.Latency != (Latency{2, second, 3 * second, 3 * second}) || c.Deterministic.N != 0 {
		t.Errorf("latency: %+v %+v", c.Latency, c.Deterministic)
	}
}

func TestStructuralBaseline(t *testing.T) {
	cases, results := hand()
	var plain []Result
	for _, c := range cases {
		plain = append(plain, Result{Case: c.ID, Outcome: judge.Approve})
	}
	plain[0].Failure = "no pool"
	r := Evaluate(cases, results, Options{Structural: plain})
	b := r.Baselines[len(r.Baselines)-1]
	if b.Name != BaselineStructural || b.N != 19 {
		t.Errorf("%+v", b)
	}
	checkRate(t, "structural", b.FalseApprove, 12, 12)
}

func genSet(t *rapid.T) (cases []Case, results []Result) {
	outcome := rapid.SampledFrom(outcomes[:])
	for i := range rapid.IntRange(1, 40).Draw(t, "n") {
		c := golden(fmt.Sprint("c", i), outcome.Draw(t, "expect"))
		c.Group = rapid.SampledFrom([]string{"", "g1", "g2", "g3"}).Draw(t, "group")
		c.Tags = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), 0, 2).Draw(t, "tags")
		cases = append(cases, c)
		for j := range rapid.IntRange(0, 3).Draw(t, "repeats") {
			r := answer(c.ID, outcome.Draw(t, "got"), float64(rapid.IntRange(0, 10).Draw(t, "confidence"))/10)
			r.Repeat = j
			r.Unreadable = rapid.IntRange(0, 9).Draw(t, "unreadable") == 0
			if rapid.IntRange(0, 9).Draw(t, "failed") == 0 {
				r.Outcome, r.Failure = "", "down"
			}
			results = append(results, r)
		}
	}
	return cases, results
}

// The report does not depend on the order of cases and results, byte for byte.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cases, results := genSet(t)
		o := Options{Resamples: 50, Unreadable: rapid.SampledFrom([]Policy{AsDecided, AsWrong, Excluded}).Draw(t, "policy")}
		one, err := json.Marshal(Evaluate(cases, results, o))
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
		random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		random.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
		other, err := json.Marshal(Evaluate(cases, results, o))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(one), string(other)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReportAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cases, results := genSet(t)
		policy := rapid.SampledFrom([]Policy{AsDecided, AsWrong, Excluded}).Draw(t, "policy")
		r := Evaluate(cases, results, Options{Resamples: 50, Unreadable: policy})
		c := r.Counts
		if c.Scored+c.Excluded+c.Missing+c.Failed != c.Cases || c.ExpectApprove+c.ExpectReject+c.ExpectEscalate != c.Scored || c.Groups > c.Scored {
			t.Fatalf("counts: %+v", c)
		}
		if r.FalseApprove.N+r.FalseRefuse.N != c.Scored || r.Accuracy.N != c.Scored || r.Accuracy.K > r.GateAccuracy.K {
			t.Fatalf("rates: %+v %+v %+v", r.FalseApprove, r.FalseRefuse, r.Accuracy)
		}
		if r.FalseApprove.K != r.WrongApprovals.K {
			t.Fatalf("false approvals: %+v %+v", r.FalseApprove, r.WrongApprovals)
		}
		for _, e := range []Estimate{r.Kappa, r.OutcomeKappa} {
			if e.Value != nil && (*e.Value < -1-1e-12 || *e.Value > 1+1e-12) {
				t.Fatalf("kappa %v", *e.Value)
			}
			if e.Interval != nil && e.Interval.Low > e.Interval.High {
				t.Fatalf("interval %+v", e.Interval)
			}
		}
		wrong := c.Scored - r.Accuracy.K
		if len(r.Worst) != min(wrong, 20) {
			t.Fatalf("%d wrong, %d listed", wrong, len(r.Worst))
		}
	})
}

// Twins in the group of their case add no information: the bounds and the bootstrap over groups stay equally wide,
// although those over rows would shrink.
func TestBootstrapRespectsGroups(t *testing.T) {
	cases, results := hand()
	single := Evaluate(cases, results, Options{})
	for i := range slices.Clone(cases) {
		cases[i].Group = cases[i].ID
		twin, r := cases[i], results[i]
		twin.ID += "-twin"
		r.Case = twin.ID
		cases, results = append(cases, twin), append(results, r)
	}
	twins := Evaluate(cases, results, Options{})
	if diff := cmp.Diff(single.Kappa.Interval, twins.Kappa.Interval); diff != "" {
		t.Error(diff)
	}
	for _, of := range []func(Report) Rate{
		func(r Report) Rate { return r.FalseApprove },
		func(r Report) Rate { return r.WrongApprovals }, func(r Report) Rate { return r.FalseRefuse },
		func(r Report) Rate { return r.FalseReject }, func(r Report) Rate { return r.Escalation },
		func(r Report) Rate { return r.Unreadable }, func(r Report) Rate { return r.Accuracy },
		func(r Report) Rate { return r.Reasons }, func(r Report) Rate { return r.GateAccuracy },
		func(r Report) Rate { return r.Slices[0].FalseApprove },
		func(r Report) Rate { return r.Baselines[0].Accuracy }, func(r Report) Rate { return r.Flips.Rate },
	} {
		one, two := of(single), of(twins)
		if two.Draws != one.Draws || two.Low != one.Low || two.High != one.High || two.Upper != one.Upper {
			t.Errorf("bounds: %+v %+v", one, two)
		}
	}
}

// The percentile interval of a share agrees with the normal one where that is accurate.
func TestBootstrapAgainstTheory(t *testing.T) {
	var cases []Case
	var results []Result
	for i := range 1000 {
		id := fmt.Sprint(i)
		got := judge.Reject
		if i < 200 {
			got = judge.Approve
		}
		cases = append(cases, golden(id, judge.Reject))
		results = append(results, Result{Case: id, Outcome: got})
	}
	r := Evaluate(cases, results, Options{Seed: 3})
	half := 1.959964 * math.Sqrt(0.2*0.8/1000)
	resample := func(seed uint64) *Interval {
		var s Sample
		o := Options{Seed: seed}.WithDefaults()
		ResampleTables(Join(cases, results, o).Rows, nil, o, func(drawn, _ *Table) { s.Add(TableFigures[0].Of(drawn)) })
		return s.interval(o.Confidence)
	}
	low, high := resample(3).Low, resample(3).High
	near(t, "low", low, 0.2-half, 0.003)
	near(t, "high", high, 0.2+half, 0.003)
	if *resample(4) == *resample(3) {
		t.Error("another seed gives the same resamples")
	}
	if r.Kappa.Value == nil || *r.Kappa.Value != 0 || r.Probability != nil || r.Approvals != nil {
		t.Errorf("kappa %+v without a case to approve, probability %+v without a model", r.Kappa, r.Probability)
	}
}

func TestQuantile(t *testing.T) {
	// R: quantile(c(1, 2, 4, 8), c(0, .1, .5, .9, 1)), type 7.
	for p, want := range map[float64]float64{0: 1, 0.1: 1.3, 0.5: 3, 0.9: 6.8, 1: 8} {
		near(t, fmt.Sprint(p), interpolateQuantile([]float64{1, 2, 4, 8}, p), want, 1e-12)
	}
}

// With many cases, including answers of a model, the allocations in addition to the input stay far below one copy for
// each resample.
func TestManyCases(t *testing.T) {
	const n = 25_000
	random := rand.New(rand.NewPCG(1, 2))
	cases, results := make([]Case, n), make([]Result, n)
	for i := range cases {
		cases[i] = golden(fmt.Sprint("case-", i), outcomes[random.IntN(3)])
		cases[i].Group = fmt.Sprint("group-", i/2)
		cases[i].Tags = []string{fmt.Sprint("tag-", i%300)}
		results[i] = answer(cases[i].ID, outcomes[random.IntN(3)], 0.5+random.Float64()/2)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	r := Evaluate(cases, results, Options{Resamples: 200})
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if r.Counts.Scored != n || r.Counts.Groups != n/2 || r.SlicesLeftOut == 0 {
		t.Errorf("%+v", r.Counts)
	}
	if all := (after.TotalAlloc - before.TotalAlloc) >> 20; all > 256 {
		t.Errorf("allocated %d MiB", all)
	}
	t.Logf("%v, %d MiB", took, (after.TotalAlloc-before.TotalAlloc)>>20)
}
