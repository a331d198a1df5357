package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// talkativeFlow repeats its input and the fetched evidence in its texts.
const talkativeFlow = `{"name":"talkative","initialState":"a","states":{
	"a":{"transitions":{"note":"a","tell":{"target":"b",
		"evidence":[{"name":"file","source":"file","arguments":{"who":"{{data.who}}"}}],
		"validator":"(data, context) => ({valid: false, confidence: 1, reason: 'not for ' + context.ssn + ', says ' + data.pass, suggestions: ['ask ' + context.ssn]})"}}},
	"b":{"final":true}}}`

// If a later definition marks a value as sensitive, no reader finds it in earlier records: not in data,
// not in texts of a script or a caller, and not after the value is gone.
func TestThePastKeepsLaterSecrets(t *testing.T) {
	t.Parallel()
	const ssn, pass, token = "078-05-1120", "hunter-22", "tok-55512345"
	b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return content(`{"holder":"` + ssn + `"}`), nil
	}), func(*engine.Config) {})
	b.define(operator, talkativeFlow)
	id := b.start(agent, "talkative", `{"ssn":"`+ssn+`"}`).ID
	b.moved(agent, id, "note", `{"token":"`+token+`"}`, "a")
	b.refused(agent, id, "tell", `{"who":"ada","pass":"`+pass+`"}`, judge.CodeValidatorRejected)
	b.refused(agent, id, "phone "+ssn, `{"pass":"`+pass+`"}`, "illegal_action")
	b.moved(agent, id, "note", `{"ssn":null,"token":null}`, "a")

	before := showsJudge(t, b, id)
	for _, secret := range []string{ssn, pass, token} {
		if !strings.Contains(before["history"], secret) {
			t.Fatalf("nobody said %s before:\n%s", secret, before["history"])
		}
	}
	b.define(operator, strings.Replace(talkativeFlow, `"states"`, `"sensitive":["/ssn","/pass","/token"],"states"`, 1))
	if r, err := b.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "talkative"}); err != nil || r.Migrated != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.moved(agent, id, "note", `{"n":1}`, "a")
	for who, text := range showsJudge(t, b, id) {
		for _, secret := range []string{ssn, pass, token} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("the %s tells %s: ...%s", who, secret, text[max(0, at-120):min(len(text), at+40)])
			}
		}
		if !strings.Contains(text, "[masked]") {
			t.Errorf("the %s has no text left: %s", who, text)
		}
	}
}

// An export masks sensitive values in the detail of evidence that could not be fetched, because the
// source's message may repeat them.
func TestExportMasksEvidenceDetail(t *testing.T) {
	t.Parallel()
	const ssn = "078-05-1120"
	b := newBench(t)
	b.define(operator, strings.Replace(talkativeFlow, `"states"`, `"sensitive":["/ssn"],"states"`, 1))
	_, d, err := b.LoadDefinition(t.Context(), operator, engine.RightExport, "talkative", 0)
	if err != nil {
		t.Fatal(err)
	}
	mask := b.NewExportMask(engine.ExportMaskConfig{
		Owner: agent.ID, Workflow: d.Name, Definitions: []*workflow.Definition{d}, Documents: []json.RawMessage{json.RawMessage(`{"ssn":"` + ssn + `"}`)},
	})
	recorded := record.Decision{Verdict: judge.Verdict{Evidence: []judge.Evidence{{
		Name: "file", Failure: judge.FailureUnavailable, Detail: "no file for " + ssn, Content: json.RawMessage(`{"of":1}`),
	}}}}
	shown := mask.Decision(recorded).Evidence
	if len(shown) != 1 || shown[0].Detail != "no file for [masked]" || shown[0].Content != nil {
		t.Errorf("got %+v", shown)
	}
	if got := recorded.Evidence[0].Detail; got != "no file for "+ssn {
		t.Errorf("the record was changed: %s", got)
	}
}

// showsJudge returns everything that the operations on the past return about an instance, except its
// present context.
func showsJudge(t *testing.T, b *bench, id string) map[string]string {
	t.Helper()
	out := map[string]string{}
	tell := func(who string, answer any, err error) {
		t.Helper()
		text, failed := json.Marshal(answer)
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		out[who] = string(text)
	}
	h, err := b.History(t.Context(), operator, engine.HistoryRequest{ID: id})
	tell("history", h.Decisions, err)
	h, err = b.History(t.Context(), agent, engine.HistoryRequest{ID: id, AfterSeq: 2})
	tell("owner's page of the history", h.Decisions, err)
	found, err := b.Decisions(t.Context(), operator, engine.DecisionsRequest{})
	tell("search", found.Decisions, err)
	tail, err := b.Tail(t.Context(), operator, engine.TailRequest{Instance: id})
	tell("stream of events", tail.Events, err)
	timeline, err := b.Timeline(t.Context(), operator, engine.HistoryRequest{ID: id})
	tell("timeline", timeline.Events, err)
	if exportInstances != nil {
		all, err := exportInstances(t.Context(), b, operator, id, "")
		tell("export", all, err)
	}
	return out
}

// With BareEvidence, callers of every role get only the parts of evidence that agents see.
func TestBareEvidence(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, memory.New(), source(func(judge.EvidenceRequest, bool) (judge.FetchResult, error) {
		return content(`{"exitCode":1,"output":"FAIL TestPay"}`), nil
	}), func(*engine.Config) {})
	b.define(operator, testedFlow)
	id := b.start(agent, "tested", `{}`).ID
	b.refused(agent, id, "merge", `{"claim":"all tests pass","sha":"abc"}`, judge.CodeValidatorRejected)
	for _, asks := range []bool{false, true} {
		got := b.find(operator, engine.DecisionsRequest{BareEvidence: asks}).Decisions[0].Evidence
		if len(got) != 1 || got[0].Digest == "" || (got[0].Content == nil) != asks || (got[0].Arguments == nil) != asks {
			t.Errorf("bare %v: %+v", asks, got)
		}
	}
}
