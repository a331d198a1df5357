package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// source answers with the result of its function.
type source func(r judge.EvidenceRequest, readOnly bool) (judge.FetchResult, error)

func (s source) Fetch(_ context.Context, r judge.EvidenceRequest, readOnly bool) (judge.FetchResult, error) {
	return s(r, readOnly)
}

func content(text string) judge.FetchResult { return judge.FetchResult{Content: json.RawMessage(text)} }

// testedFlow relies on the tests, not on the agent's claims.
const testedFlow = `{"name":"tested","initialState":"a","sensitive":["/evidence/tests/token"],"states":{
	"a":{"transitions":{"merge":{"target":"b","requiredFields":["claim"],
		"evidence":[{"name":"tests","source":"tests","arguments":{"sha":"{{data.sha}}"}}],
		"validator":"(data, context, evidence) => ({valid: evidence.tests.exitCode === 0, confidence: 1, reason: 'the tests fail: ' + evidence.tests.output})"}}},
	"b":{"final":true}}}`

// An agent's keys may have the names of fields that the gate adds: they are treated as ordinary data.
func TestNoKeyIsReserved(t *testing.T) {
	t.Parallel()
	found := `{"exitCode":1,"output":"FAIL TestPay","token":"t-123"}`
	b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) { return content(found), nil }), func(*engine.Config) {})
	b.define(operator, testedFlow)
	const claims = `{"claim":"green","sha":"abc","evidence":{"tests":{"exitCode":0,"token":"mine"}},"review":{"status":"approved"},"gavel":{"by":"me"}}`
	id := b.start(agent, "tested", `{"evidence":"of the start","review":[1],"gavel":null}`).ID
	b.refused(agent, id, "merge", claims, judge.CodeValidatorRejected)
	found = `{"exitCode":0,"output":"ok","token":"t-123"}`
	b.moved(agent, id, "merge", claims, "b")
	if got := string(b.opened(id).Context); got != `{"evidence":{"tests":{"exitCode":0,"token":"mine"}},"review":{"status":"approved"},"claim":"green","sha":"abc","gavel":{"by":"me"}}` {
		t.Errorf("context %s", got)
	}
	h, err := b.History(t.Context(), operator, engine.HistoryRequest{ID: id})
	if err != nil || h.Count != 3 {
		t.Fatal(h, err)
	}
	refused, moved := h.Decisions[1], h.Decisions[2]
	if got := string(refused.Evidence[0].Content); got != `{"exitCode":1,"output":"FAIL TestPay","token":"[masked]"}` {
		t.Errorf("fetched: %s", got)
	}
	// Values that the definition marks as sensitive in the evidence are masked wherever they appear.
	for _, d := range []engine.HistoryEntry{refused, moved} {
		if data := string(d.Data); strings.Contains(data, `"mine"`) || !strings.Contains(data, `"review":{"status":"approved"}`) {
			t.Errorf("data: %s", data)
		}
	}
	b.verify(id)
}

func TestEvidenceDefeatsALyingAgent(t *testing.T) {
	t.Parallel()
	found := `{"exitCode":1,"output":"FAIL TestPay"}`
	var asked []string
	b := newBenchWith(t, memory.New(), source(func(r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
		asked = append(asked, r.Source+string(r.Arguments))
		return content(found), nil
	}), func(*engine.Config) {})
	b.define(operator, testedFlow)
	id := b.start(agent, "tested", `{}`).ID
	r := b.refused(agent, id, "merge", `{"claim":"all tests pass","sha":"abc"}`, judge.CodeValidatorRejected)
	if !strings.Contains(r.Decision.Reasoning, "FAIL TestPay") {
		t.Errorf("it does not say what was found: %s", r.Decision.Reasoning)
	}
	if ev := r.Decision.Evidence; len(ev) != 1 || ev[0].Name != "tests" || ev[0].Content != nil || ev[0].Size == 0 || ev[0].At.IsZero() {
		t.Errorf("the agent is told of %+v", ev)
	}
	found = `{"exitCode":0,"output":"ok"}`
	b.moved(agent, id, "merge", `{"claim":"all tests pass","sha":"abc"}`, "b")
	if strings.Join(asked, " ") != `tests{"sha":"abc"} tests{"sha":"abc"}` {
		t.Errorf("asked for %v", asked)
	}
	h, err := b.History(t.Context(), operator, engine.HistoryRequest{ID: id})
	if err != nil || string(h.Decisions[1].Evidence[0].Content) != `{"exitCode":1,"output":"FAIL TestPay"}` || string(h.Decisions[1].Evidence[0].Arguments) != `{"sha":"abc"}` {
		t.Errorf("the operator sees %+v, %v", h.Decisions[1].Evidence, err)
	}
	b.verify(id)
}

// Nothing is approved on missing evidence, whatever the reason.
func TestMissingEvidence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, data, policy string
		fetched            judge.FetchResult
		err                error
		code               string
		parked             bool
	}{
		{name: "timeout", fetched: judge.FetchResult{Failure: judge.FailureTimeout, Detail: "It took longer than 1s."}, code: judge.CodeEvidenceMissing},
		{name: "not configured", fetched: judge.FetchResult{Failure: judge.FailureNotConfigured}, code: judge.CodeEvidenceMissing},
		{name: "stopped, a person may decide", policy: "escalate", fetched: judge.FetchResult{Failure: judge.FailureStopped}, code: judge.CodeEvidenceMissing, parked: true},
		{name: "no JSON", policy: "escalate", fetched: judge.FetchResult{Content: json.RawMessage(`{"exitCode":0`)}, code: judge.CodeEvidenceMissing, parked: true},
		{name: "no UTF-8", fetched: judge.FetchResult{Content: json.RawMessage("{\"exitCode\":0,\"output\":\"\xff\"}")}, code: judge.CodeEvidenceMissing},
		{name: "nothing", fetched: judge.FetchResult{}, code: judge.CodeEvidenceMissing},
		{name: "an argument that may not be passed on, whatever the policy", policy: "escalate", fetched: judge.FetchResult{Failure: judge.FailureArgument}, code: judge.CodeEvidenceArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) { return c.fetched, c.err }),
				func(cfg *engine.Config) { cfg.ReviewPath = true })
			doc := testedFlow
			if c.policy != "" {
				doc = strings.Replace(doc, `"requiredFields"`, `"onEvidenceMissing":"`+c.policy+`","requiredFields"`, 1)
			}
			b.define(operator, doc)
			id := b.start(agent, "tested", `{}`).ID
			const data = `{"claim":"all tests pass","sha":"abc"}`
			if !c.parked {
				r := b.refused(agent, id, "merge", data, c.code)
				if r.Decision.DecidedBy != judge.LayerEvidence || !strings.Contains(r.Decision.Reasoning, "tests") {
					t.Errorf("%+v", r.Decision)
				}
				return
			}
			parked := b.parked(agent, id, "merge", data)
			// The script that reads the evidence cannot run, so the rules decide even then.
			r, err := b.resolve(rita, parked.ID, judge.Approve)
			if err != nil || r.Applied || r.Review.Status != record.ReviewStale {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	t.Run("cannot be asked for now", func(t *testing.T) {
		t.Parallel()
		b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
			return judge.FetchResult{}, fmt.Errorf("full: %w", judge.ErrBusy)
		}), func(*engine.Config) {})
		b.define(operator, testedFlow)
		id := b.start(agent, "tested", `{}`).ID
		_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "merge", Data: document.ReadTrusted([]byte(`{"claim":"x","sha":"y"}`))})
		if wantCode(t, err, engine.CodeBusy); !errors.Is(err, judge.ErrBusy) || b.load(id).Seq != 1 {
			t.Errorf("%v", err)
		}
	})
	t.Run("without a source at all", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.define(operator, testedFlow)
		b.refused(agent, b.start(agent, "tested", `{}`).ID, "merge", `{"claim":"x","sha":"y"}`, judge.CodeEvidenceMissing)
	})
	t.Run("for a definition of an agent", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(testedFlow)})
		if e := wantCode(t, err, engine.CodeInvalidDefinition); e.Issues[0].Rule != "evidence-not-operator" {
			t.Errorf("%+v", e.Issues)
		}
	})
}

// A pre-check queries only read-only sources, and reports it if that was not enough.
func TestPrecheckAsksReadOnlySources(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, memory.New(), source(func(r judge.EvidenceRequest, readOnly bool) (judge.FetchResult, error) {
		if readOnly && r.Source == "tests" {
			return judge.FetchResult{Failure: judge.FailureNotReadOnly}, nil
		}
		return content(`{"exitCode":0}`), nil
	}), func(*engine.Config) {})
	b.define(operator, testedFlow)
	b.define(operator, strings.Replace(named(testedFlow, "ticketed"), `"source":"tests"`, `"source":"ticket"`, 1))
	for flow, want := range map[string]string{"tested": judge.CodeEvidenceNotChecked, "ticketed": ""} {
		id := b.start(agent, flow, `{}`).ID
		v, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "merge", Data: document.ReadTrusted([]byte(`{"claim":"x","sha":"y"}`))})
		if err != nil || v.Decision.Code != want || v.Approved != (want == "") {
			t.Errorf("%s: %+v, %v", flow, v.Decision, err)
		}
		b.moved(agent, id, "merge", `{"claim":"x","sha":"y"}`, "b")
	}
}

// Only an operator's rules see sensitive values in evidence.
func TestEvidenceIsMasked(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return content(`{"exitCode":0,"token":"tok-123456"}`), nil
	}), func(cfg *engine.Config) { cfg.ReviewPath = true })
	b.define(operator, strings.Replace(strings.Replace(testedFlow, `"requiredFields"`, `"requireAssurance":"human","requiredFields"`, 1),
		`evidence.tests.exitCode === 0`, `evidence.tests.token === 'tok-123456'`, 1))
	id := b.start(agent, "tested", `{}`).ID
	parked := b.parked(agent, id, "merge", `{"claim":"x","sha":"y"}`)
	v, err := b.Review(t.Context(), operator, parked.ID)
	if err != nil || string(v.Escalation.Evidence[0].Content) != `{"exitCode":0,"token":"[masked]"}` || !strings.HasPrefix(v.Escalation.Evidence[0].Digest, "hmac-sha256-v2:") {
		t.Errorf("%s, %v", v.Escalation.Evidence[0].Content, err)
	}
	for _, ev := range b.events(id) {
		if strings.Contains(string(ev.Body()), "tok-123456") {
			t.Errorf("event %d holds it", ev.Seq)
		}
	}
	if row, _ := json.Marshal(b.review(parked.ID)); strings.Contains(string(row), "tok-123456") {
		t.Error("the review holds it")
	}
	// It was stored masked, so it has to be fetched again; it is unchanged.
	if r, err := b.resolve(rita, parked.ID, judge.Approve); err != nil || !r.Applied {
		t.Errorf("%+v, %v", r, err)
	}
}

// On resolution, old evidence is fetched again, and a change voids the review.
func TestReviewLooksAtTheWorldAgain(t *testing.T) {
	t.Parallel()
	now := `{"v":1,"at":"noon","ok":true}`
	for _, c := range []struct {
		name          string
		after         time.Duration
		then          string
		applied       bool
		calls         int
		says          string
		sameIsAllOfIt bool
		trees         [2]string // the trees that the evidence is about, before and after
	}{
		{name: "young", after: time.Minute, then: `{"v":2}`, applied: true, calls: 1},
		{name: "old and the same", after: time.Hour, then: now, applied: true, calls: 2},
		{name: "old and the same in what counts", after: time.Hour, then: `{"v":1,"at":"night","ok":true}`, applied: true, calls: 2},
		{name: "old and another in all that counts", after: time.Hour, then: `{"v":1,"at":"night","ok":true}`, calls: 2, says: "has changed", sameIsAllOfIt: true},
		{name: "old and changed", after: time.Hour, then: `{"v":2,"at":"noon","ok":true}`, calls: 2, says: "has changed"},
		{name: "old, the same, and not allowed", after: time.Hour, then: `{"v":1,"at":"noon","ok":false}`, calls: 2, says: "rules"},
		{name: "young, of the same files", after: time.Minute, then: now, applied: true, calls: 2, trees: [2]string{"sha256:a", "sha256:a"}},
		{name: "young and the same, of other files", after: time.Minute, then: now, calls: 2, says: "has changed", trees: [2]string{"sha256:a", "sha256:b"}},
		{name: "under a clock that went back", after: -time.Hour, then: `{"v":2}`, calls: 2, says: "has changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			calls, found := 0, now
			b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
				f := content(found)
				f.Tree = c.trees[min(calls, 1)]
				calls++
				var v struct{ V json.RawMessage }
				if json.Unmarshal([]byte(found), &v) == nil && !c.sameIsAllOfIt {
					f.Same = v.V
				}
				return f, nil
			}), func(cfg *engine.Config) { cfg.ReviewPath = true })
			b.define(operator, strings.Replace(watchedFlow, `"go":{`, `"go":{"validator":"(d, c, e) => e.e.ok !== false",`, 1))
			id := b.start(agent, "watched", `{}`).ID
			parked := b.parked(agent, id, "go", `{}`)
			b.mu.Lock()
			b.now = b.now.Add(c.after)
			b.mu.Unlock()
			if c.after >= time.Hour { // the review itself must not expire
				row := b.review(parked.ID)
				row.ExpiresAt = time.Time{}
				b.tamper(row)
			}
			found = c.then
			r, err := b.resolve(rita, parked.ID, judge.Approve)
			if err != nil || r.Applied != c.applied || calls != c.calls || !strings.Contains(r.Message, c.says) {
				t.Errorf("applied %v after %d calls: %s (%v)", r.Applied, calls, r.Message, err)
			}
			if !c.applied && (r.Review.Status != record.ReviewStale || b.load(id).State != "a") {
				t.Errorf("%+v", r)
			}
			b.verify(id)
		})
	}
}

// A process that cannot reach a source must not void the review: it stays open for one that can.
func TestReviewWhoseEvidenceCannotBeHadNow(t *testing.T) {
	t.Parallel()
	w := &world{content: `{"v":1}`}
	b := newBenchWith(t, memory.New(), w, func(c *engine.Config) { c.ReviewPath = true })
	b.define(operator, strings.Replace(watchedFlow, `,"maxAge":"10m"`, "", 1))
	id := b.start(agent, "watched", `{}`).ID
	parked := b.parked(agent, id, "go", `{}`)
	w.failure = judge.FailureNotConfigured
	_, err := b.resolve(rita, parked.ID, judge.Approve)
	if e := wantCode(t, err, engine.CodeUnavailable); !strings.Contains(e.Error(), "stays open") || b.review(parked.ID).Status != record.ReviewOpen {
		t.Errorf("%v, %+v", err, b.review(parked.ID))
	}
	w.failure = ""
	if r, err := b.resolve(rita, parked.ID, judge.Approve); err != nil || !r.Applied {
		t.Errorf("%+v, %v", r, err)
	}
}

// The requesting principal is part of the reviewed question.
func TestAnotherRequesterGetsANewReview(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	first := b.parked(agent, id, "release", `{"why":"a"}`)
	second := b.parked(operator, id, "release", `{"why":"a"}`)
	if first.ID == second.ID || second.RequestedBy != operator.ID || b.review(first.ID).Status != record.ReviewSuperseded {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// If the definition allows it, a person may decide without unavailable evidence.
func TestAPersonMayDecideWithoutEvidence(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return judge.FetchResult{Failure: judge.FailureUnavailable}, nil
	}), func(cfg *engine.Config) { cfg.ReviewPath = true })
	b.define(operator, strings.Replace(watchedFlow, `"requireAssurance":"human","review"`, `"onEvidenceMissing":"escalate","review"`, 1))
	id := b.start(agent, "watched", `{}`).ID
	parked := b.parked(agent, id, "go", `{}`)
	r, err := b.resolve(rita, parked.ID, judge.Approve)
	if err != nil || !r.Applied || r.Decision.Evidence[0].Failure != judge.FailureUnavailable {
		t.Errorf("%+v, %v", r, err)
	}
}

// A person also approves the target of an action.
func TestReviewOfAnotherTarget(t *testing.T) {
	t.Parallel()
	found := `{"v":1,"big":false}`
	b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return judge.FetchResult{Content: json.RawMessage(found), Same: json.RawMessage(`1`)}, nil
	}), func(cfg *engine.Config) { cfg.ReviewPath = true })
	b.define(operator, `{"name":"routed","initialState":"a","states":{
		"a":{"transitions":{"go":{"requireAssurance":"human","evidence":[{"name":"e","source":"s"}],
			"target":[{"condition":"evidence.e.big","target":"b"},{"condition":"true","target":"c"}]}}},
		"b":{"final":true},"c":{"final":true}}}`)
	for _, big := range []bool{false, true} {
		found = `{"v":1,"big":false}`
		id := b.start(agent, "routed", `{}`).ID
		parked := b.parked(agent, id, "go", `{}`)
		if parked.Target != "c" {
			t.Fatalf("%+v", parked)
		}
		found = fmt.Sprintf(`{"v":1,"big":%v}`, big)
		r, err := b.resolve(rita, parked.ID, judge.Approve)
		if err != nil || r.Applied == big || big && !strings.Contains(r.Message, `leads to "b" now`) {
			t.Errorf("big %v: %+v, %v", big, r, err)
		}
	}
}

// Sensitive values are masked however a source writes them. If an operator's validator repeats one, it
// does not reach the agent.
func TestEvidenceIsMaskedHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, want string }{
		"as it is":            {`{"note":"the token is secret-token-77"}`, `{"note":"the token is [masked]"}`},
		"escaped":             {`{"note":"\u0073ecret-token-77"}`, `{"note":"[masked]"}`},
		"as a key":            {`{"s\u0065cret-token-77":1}`, `{"[masked]":1}`},
		"with HTML escapes":   {`{"note":"a\u003cb\u003esecret"}`, `{"note":"[masked]"}`},
		"in ASCII":            {`{"note":"Frau M\u00fcller-Q"}`, `{"note":"Frau [masked]"}`},
		"a number":            {`{"n":123456789,"m":12}`, `{"n":"[masked]","m":12}`},
		"where it is pointed": {`{"who":"whistleblower-ann","x":true,"y":null,"z":[1.50,{}]}`, `{"who":"[masked]","x":true,"y":null,"z":[1.50,{}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) { return content(c.content), nil }), func(*engine.Config) {})
			b.define(operator, `{"name":"masked","initialState":"a","sensitive":["/secrets","/evidence/e/who"],"states":{
				"a":{"transitions":{"go":{"target":"b","evidence":[{"name":"e","source":"s"}],
					"validator":"(d, c, e) => ({valid: false, confidence: 1, reason: 'it is ' + (e.e.who || e.e.note || 'odd')})"}}},
				"b":{"final":true}}}`)
			id := b.start(agent, "masked", `{"secrets":["secret-token-77","a<b>secret","Müller-Q",123456789]}`).ID
			r := b.refused(agent, id, "go", `{}`, judge.CodeValidatorRejected)
			events := b.events(id)
			last := events[len(events)-1]
			if got := string(last.Decision.Evidence[0].Content); got != c.want {
				t.Errorf("recorded as %s, want %s", got, c.want)
			}
			for _, secret := range []string{"secret-token-77", "a<b>secret", "whistleblower", "Müller-Q", "123456789"} {
				if strings.Contains(r.Decision.Reasoning+strings.Join(r.Decision.Violations, ""), secret) {
					t.Errorf("the agent reads %q", r.Decision.Reasoning)
				}
				for _, ev := range events[1:] {
					if strings.Contains(string(ev.Body()), secret) {
						t.Errorf("event %d holds %s", ev.Seq, secret)
					}
				}
			}
		})
	}
}

// If evidence is missing for another reason, the review is void.
func TestReviewOfAnotherFailure(t *testing.T) {
	t.Parallel()
	w := &world{failure: judge.FailureUnavailable}
	b := newBenchWith(t, memory.New(), w, func(cfg *engine.Config) { cfg.ReviewPath = true })
	b.define(operator, strings.Replace(watchedFlow, `"requireAssurance":"human","review"`, `"onEvidenceMissing":"escalate","review"`, 1))
	id := b.start(agent, "watched", `{}`).ID
	parked := b.parked(agent, id, "go", `{}`)
	w.failure = judge.FailureRefused
	if r, err := b.resolve(rita, parked.ID, judge.Approve); err != nil || r.Applied || r.Review.Status != record.ReviewStale {
		t.Errorf("%+v, %v", r, err)
	}
}

// A review that has ended keeps nothing large.
func TestClosedReviewsAreSmall(t *testing.T) {
	t.Parallel()
	w := &world{content: `{"log":"` + strings.Repeat("x", 100<<10) + `"}`}
	b := newBenchWith(t, memory.New(), w, func(cfg *engine.Config) { cfg.ReviewPath = true })
	b.define(operator, watchedFlow)
	id := b.start(agent, "watched", `{}`).ID
	parked := b.parked(agent, id, "go", `{}`)
	if n := len(b.review(parked.ID).Evidence[0].Content); n < 100<<10 {
		t.Errorf("an open one holds %d bytes", n)
	}
	b.parked(agent, id, "go", `{"x":1}`)
	if ev := b.review(parked.ID).Evidence; len(ev) != 1 || ev[0].Content != nil || ev[0].Digest == "" {
		t.Errorf("%+v", ev)
	}
}
