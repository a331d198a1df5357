package judge_test

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

var update = flag.Bool("update", false, "write the pages that tests generate")

// faultDeadline is the decision's deadline in the fault table, the default.
const faultDeadline = 20 * time.Second

// setting is one column group of the fault table.
type setting struct {
	strict, fallback, review bool
	evidence                 bool                    // its criterion needs a quote from evidence
	policy                   judge.UnavailablePolicy // "" is the default of each mode
}

func settings() []setting {
	var out []setting
	for _, strict := range []bool{true, false} {
		for _, fallback := range []bool{false, true} {
			for _, review := range []bool{false, true} {
				out = append(out, setting{strict: strict, fallback: fallback, review: review})
			}
		}
	}
	return out
}

// faultRow is the result of one fault in one setting.
type faultRow struct {
	fault llmtest.Fault
	setting
	verdict judge.Verdict
	busy    *judge.BusyError // nothing was decided
	calls   int
	took    time.Duration
}

// byHost sends requests to the provider of their host.
type byHost map[string]llm.Doer

func (b byHost) Do(req *http.Request) (*http.Response, error) { return b[req.URL.Host].Do(req) }

// decideUnder judges one good case while the first model has a fault.
func decideUnder(t *testing.T, fault llmtest.Fault, s setting) faultRow {
	t.Helper()
	row := faultRow{fault: fault, setting: s}
	synctest.Test(t, func(t *testing.T) {
		faulty := llmtest.New(fault.Personality, llmtest.Approver)
		healthy := llmtest.New(llmtest.OpenAI(), llmtest.Approver)
		cfg := llm.Config{
			Doer:   byHost{"primary.example": faulty, "fallback.example": healthy},
			Jitter: func() float64 { return 0.5 }, // the same delays in every run
			Models: []llm.Model{{Name: "primary", ID: "primary", BaseURL: "https://primary.example/v1", APIKey: "k"}},
		}
		if s.fallback {
			cfg.Models = append(cfg.Models, llm.Model{Name: "fallback", ID: "fallback", BaseURL: "https://fallback.example/v1", APIKey: "k"})
			cfg.Fallbacks = []string{"fallback"}
		}
		client, err := llm.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		model, err := judge.NewModel(judge.ModelConfig{Completer: client})
		if err != nil {
			t.Fatal(err)
		}
		gate := pipeline(t, &runner{}, model)
		began := time.Now()
		row.verdict, err = gate.Decide(t.Context(), goodReview(s))
		row.took = time.Since(began)
		if err != nil && !errors.As(err, &row.busy) {
			t.Fatalf("%s: %v", fault.Name, err)
		}
		row.calls = faulty.Count() + healthy.Count()
	})
	return row
}

// goodReview is a case that a working model approves.
func goodReview(s setting) judge.Case {
	return newCase(data(`{"comments":"Read sections 1 to 4; every figure in table 2 was compared with the source data."}`), func(c *judge.Case) {
		c.Checks.RequiredFields = []string{"comments"}
		c.Rubric.UseLLM, c.Rubric.StrictMode, c.ReviewPath = true, s.strict, s.review
		c.Rubric.OnJudgeUnavailable = s.policy
		c.Rubric.Criteria = []string{"The comments name the parts that were read"}
		if s.evidence {
			c.Rubric.Proofs = map[string]judge.Proof{c.Rubric.Criteria[0]: {Basis: judge.BasisEvidence}}
		}
	})
}

// TestFaultTable runs the pipeline with every fault of a provider, in every setting, and checks the
// properties that must hold for all of them. It writes docs/reference/model-faults.md (with -update).
func TestFaultTable(t *testing.T) {
	faults := llmtest.Faults()
	if len(faults) < 20 {
		t.Fatalf("only %d faults", len(faults))
	}
	var rows []faultRow
	for _, fault := range faults {
		for _, s := range settings() {
			row := decideUnder(t, fault, s)
			row.hold(t)
			rows = append(rows, row)
		}
	}
	var page bytes.Buffer
	renderFaults(&page, rows)
	renderReasons(t, &page, faults)
	path := filepath.Join("..", "docs", "reference", "model-faults.md")
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run: go test ./judge -run TestFaultTable -update", err)
	}
	if !bytes.Equal(want, page.Bytes()) {
		t.Errorf("%s is stale; run: go test ./judge -run TestFaultTable -update", path)
	}
}

// hold checks the properties that must hold for every fault.
func (r faultRow) hold(t *testing.T) {
	t.Helper()
	v := r.verdict
	name := fmt.Sprintf("%s %+v", r.fault.Name, r.setting)
	judged := v.Assurance == judge.AssuranceLLM
	fromCase := r.fault.Class.Traits().FromCase
	late := r.fault.Class.Traits().Busy && !r.fallback
	if hangs := r.fault.Name == "never answers" || r.fault.Name == "answers after a minute"; r.busy != nil && !late || hangs && late != (r.busy != nil) {
		t.Errorf("%s: busy %v", name, r.busy)
	}
	if r.busy != nil {
		return
	}
	switch {
	case r.took > faultDeadline:
		t.Errorf("%s: took %v", name, r.took)
	case r.strict && v.Outcome == judge.Approve && !judged:
		t.Errorf("%s: approved in strict mode without a judgement", name)
	case r.evidence && v.Outcome == judge.Approve:
		t.Errorf("%s: approved without the evidence that its criterion takes", name)
	case fromCase && v.Outcome == judge.Approve && !judged:
		t.Errorf("%s: approved although the receiver answered with status unreadable", name)
	case !judged && v.Outcome == judge.Approve && (!v.Degraded || v.DecidedBy != judge.ByFallback || v.Confidence > 0.5):
		t.Errorf("%s: approved without saying that no model judged: %+v", name, v)
	case v.Outcome == judge.Escalate && !r.review:
		t.Errorf("%s: escalated to nobody", name)
	case v.Outcome != judge.Approve && v.Applied:
		t.Errorf("%s: moved all the same", name)
	}
	if code := judge.CodeJudgeUnreadable; !judged && fromCase && v.Code != code {
		t.Errorf("%s: code %q, must be %q", name, v.Code, code)
	}
}

func renderFaults(b *bytes.Buffer, rows []faultRow) {
	b.WriteString(`<!-- Generated by: go test ./judge -run TestFaultTable -update -->

# Faults of the model

One good case is put before the gate while its model has a fault. The rows differ in three settings: whether the workflow is strict,
whether there is another model, and whether a person can resolve an escalation. The decision's deadline is 20 s. Only waiting moves the
clock, so the times are exact. Calls are HTTP requests, to both models.

A "late" answer decides and records nothing (` + "`busy`" + `): the case itself, or the principal's other questions, may take so long. It is an
outage only if a short question of the gate's own gets no answer either. The same holds for 429, 503, 529 and a spent quota if the principal
contributed to them. The only question of this page did not ([how gavel distinguishes them](../judge.md#when-it-is-unavailable)).

The test that writes this page fails unless these rules hold:

- No row approves in strict mode without a judgement.
- If the case can cause the fault ("unreadable"), only a model's judgement approves.
- Every row answers within the deadline.

Faults that end alike share a table.
`)
	var names []string // of faults, in order
	ends, kinds := map[string]string{}, map[string]string{}
	for _, r := range rows {
		if ends[r.fault.Name] == "" {
			names = append(names, r.fault.Name)
		}
		ends[r.fault.Name] += describeEnd(r)
		kinds[r.fault.Name] = kindOf(r)
	}
	for i, name := range names {
		alike := slices.DeleteFunc(slices.Clone(names), func(other string) bool { return ends[other] != ends[name] || kinds[other] != kinds[name] })
		if slices.Index(names, alike[0]) < i {
			continue
		}
		fmt.Fprintf(b, "\n`%s` (%s)\n\n| strict | other model | reviewer | outcome | confidence | assurance | decided by | degraded | calls | time |\n"+
			"|---|---|---|---|---|---|---|---|---|---|\n%s", strings.Join(alike, "`, `"), kinds[name], ends[name])
	}
}

func kindOf(r faultRow) string {
	switch traits := r.fault.Class.Traits(); {
	case traits.FromCase:
		return "unreadable"
	case traits.Busy:
		return "late"
	}
	return "unavailable"
}

// describeEnd returns the row of a fault under a setting.
func describeEnd(r faultRow) string {
	v := r.verdict
	begin := fmt.Sprintf("| %s | %s | %s", yes(r.strict), yes(r.fallback), yes(r.review))
	if r.busy != nil {
		return fmt.Sprintf("%s | error `busy` | | | | | %d | %s |\n", begin, r.calls, r.took.Round(time.Millisecond))
	}
	outcome := string(v.Outcome)
	if v.Code != "" {
		outcome += " `" + v.Code + "`"
	}
	return fmt.Sprintf("%s | %s | %.3g | %s | %s | %s | %d | %s |\n",
		begin, outcome, v.Confidence, v.Assurance, v.DecidedBy, yes(v.Degraded), r.calls, r.took.Round(time.Millisecond))
}

// renderReasons writes the text for an agent under each policy, with faults of equal text together.
// It checks that no outage is described as a problem of the data.
func renderReasons(t *testing.T, b *bytes.Buffer, faults []llmtest.Fault) {
	b.WriteString(`
## What the agent reads

The same case without another model and without a reviewer, under each policy: ` + "`onJudgeUnavailable`, with `strictMode` and without" + `, and
structural where the criterion takes ` + "`basis: evidence`" + `. Faults and policies that read alike share a row. If a judge is missing, the
answer says so and when to come back. This also holds where ` + "`strictMode` and `structural`" + ` meet: the judge is missing, not the data.

| faults | policy | outcome | come back after | the agent reads |
|---|---|---|---|---|
`)
	type alike struct{ faults, reads string }
	var order []alike
	policies := map[alike][]string{}
	for _, s := range []setting{
		{strict: true, policy: judge.UnavailableEscalate},
		{strict: true, policy: judge.UnavailableReject},
		{strict: true, policy: judge.UnavailableStructural},
		{policy: judge.UnavailableEscalate},
		{policy: judge.UnavailableReject},
		{policy: judge.UnavailableStructural},
		{policy: judge.UnavailableStructural, evidence: true},
	} {
		var readings []string
		names := map[string][]string{}
		for _, fault := range faults {
			r := decideUnder(t, fault, s)
			r.hold(t)
			reads := r.reads()
			if names[reads] == nil {
				readings = append(readings, reads)
			}
			names[reads] = append(names[reads], fault.Name)
			outage := r.busy == nil && r.verdict.Assurance != judge.AssuranceLLM && !fault.Class.Traits().FromCase
			code, after := r.verdict.Code, r.verdict.RetryAfter
			if outage && r.verdict.Outcome != judge.Approve && code != judge.CodeJudgeNotConfigured && (code != judge.CodeJudgeUnavailable || after <= 0) {
				t.Errorf("%s, %+v: %s, come back after %v", fault.Name, s, code, after)
			}
		}
		for _, reads := range readings {
			row, name := alike{"`" + strings.Join(names[reads], "`, `") + "`", reads}, string(s.policy)
			if s.strict {
				name += " (strict)"
			}
			if s.evidence {
				name += " with `basis: evidence`"
			}
			if policies[row] == nil {
				order = append(order, row)
			}
			policies[row] = append(policies[row], name)
		}
	}
	slices.SortStableFunc(order, func(a, b alike) int {
		return cmp.Compare(slices.IndexFunc(faults, func(f llmtest.Fault) bool { return strings.HasPrefix(a.faults, "`"+f.Name) }), slices.IndexFunc(faults, func(f llmtest.Fault) bool { return strings.HasPrefix(b.faults, "`"+f.Name) }))
	})
	for _, row := range order {
		all := strings.Join(policies[row], ", ")
		if len(policies[row]) == 7 {
			all = "any"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", row.faults, all, row.reads)
	}
}

// reads returns the table cells with the text for an agent.
func (r faultRow) reads() string {
	if r.busy != nil {
		return fmt.Sprintf("error `busy` | %s | %s", r.busy.RetryAfter, r.busy.Message)
	}
	v := r.verdict
	outcome, after := string(v.Outcome), "-"
	if v.Code != "" {
		outcome += " `" + v.Code + "`"
	}
	if v.Degraded {
		outcome += ", degraded"
	}
	if v.RetryAfter > 0 {
		after = v.RetryAfter.Duration().Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%s | %s | %s", outcome, after, v.Reasoning)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
