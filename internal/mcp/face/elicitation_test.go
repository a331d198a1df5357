package face_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
)

// modern returns the members of params in the protocol era without initialize.
func modern(capabilities string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
}

// asking is an answer that asks for a form.
type asking struct {
	ResultType    string
	RequestState  string
	InputRequests map[string]struct {
		Method string
		Params struct {
			Message         string
			RequestedSchema json.RawMessage
		}
	}
	result
}

// advance calls the tool in the protocol era without initialize; more are members of params.
func (w *session) advance(arguments, more string) asking {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"ship","method":"tools/call","params":{"name":"workflow.advance","arguments":` + arguments + `,` + modern(shows) + more + `}}`)
	var m struct {
		Result asking
		Error  any
	}
	line := w.nextLine()
	if err := json.Unmarshal(line, &m); err != nil || m.Error != nil {
		w.t.Fatalf("advance: %s", line)
	}
	if m.Result.ResultType != "input_required" {
		conforms(w.t, "workflow.advance", &m.Result.result)
	}
	return m.Result
}

// answered returns the members of params that repeat a call with an answer.
func answered(state, answer string) string {
	return `,"requestState":` + quoted(state) + `,"inputResponses":{"review":` + answer + `}`
}

func quoted(s string) string {
	doc, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(doc)
}

func shipData(id string) string { return `{"id":"` + id + `","action":"ship","data":{"to":"all"}}` }

func (a asking) asks(t *testing.T) string {
	t.Helper()
	f, ok := a.InputRequests["review"]
	if a.ResultType != "input_required" || !ok || f.Method != "elicitation/create" || !strings.Contains(f.Params.Message, "release") || a.RequestState == "" || a.IsError {
		t.Fatalf("no form is asked for: %+v", a)
	}
	return a.RequestState
}

func TestFormsOfTheEraWithoutInitialize(t *testing.T) {
	for name, c := range formAnswers {
		if name == "a key twice" { // the whole line is rejected
			continue
		}
		w := serve(t, newEngine(t, withReviews), withForms)
		id := w.started(release, "release")
		state := w.advance(shipData(id), "").asks(t)
		checkShipped(t, name, w.advance(shipData(id), answered(state, c.answer)).result, c)
		w.end()
	}
}

// Clients state in each request what they can show.
func TestModernClientWithoutForms(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms)
	id := w.started(release, "release")
	w.send(`{"jsonrpc":"2.0","id":"ship","method":"tools/call","params":{"name":"workflow.advance","arguments":` + shipData(id) + `,` + modern(`{}`) + `}}`)
	if r := w.shipped(); r.review()["status"] != "open" {
		t.Errorf("got %s", r.text())
	}
	risky := strings.NewReplacer(`"requireAssurance":"human"`, `"risk":"high"`, `"name":"release"`, `"name":"risky"`).Replace(release)
	if a := w.advance(shipData(w.started(risky, "risky")), ""); a.outcome() != "escalate" {
		t.Errorf("high risk: %+v", a)
	}
}

// endingCounters are counters that all expire together.
type endingCounters struct {
	store.Counters
	later atomic.Int64 // how often they have expired
}

func (c *endingCounters) Count(ctx context.Context, all ...store.Addition) ([]store.Count, error) {
	for i := range all {
		all[i].Name += fmt.Sprint(c.later.Load())
	}
	return c.Counters.Count(ctx, all...)
}

var theAgent = engine.Principal{ID: "local:agent", Role: engine.RoleAgent}

// newReplica returns a face over an engine that other faces may share.
func newReplica(t *testing.T, e *engine.Engine, states *clientstate.States, who engine.Principal) *face.Face {
	t.Helper()
	face, err := face.New(face.Config{
		Engine: e, Principal: who, Logger: slog.New(slog.DiscardHandler), Reviews: true, Elicit: true, States: states,
	})
	if err != nil {
		t.Fatal(err)
	}
	return face
}

// The state that comes back with an answer approves only if it was issued for this call, is in time, and is used for
// the first time.
func TestForgedStates(t *testing.T) {
	counters := &endingCounters{Counters: memory.New()}
	states := clientstate.New()
	states.Share(make([]byte, 32), counters)
	e := newEngine(t, withReviews)
	face := newReplica(t, e, states, theAgent)
	other := serve(t, newEngine(t, withReviews), withForms)
	foreign := other.advance(shipData(other.started(release, "release")), "").asks(t)
	other.end()

	w := serveFace(t, face)
	if r := w.call("workflow.define", release); r.IsError {
		t.Fatal(r.text())
	}
	decoyID := w.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	decoy := w.advance(shipData(decoyID), "").asks(t)
	for name, tamper := range map[string]func(state string) (string, string){
		"none":            func(string) (string, string) { return "", "" },
		"cut short":       func(s string) (string, string) { return s[:len(s)-1], "" },
		"longer":          func(s string) (string, string) { return s + "A", "" },
		"another letter":  func(s string) (string, string) { return s[:len(s)-1] + string(s[len(s)-1]^1), "" },
		"lower case":      func(s string) (string, string) { return strings.ToLower(s), "" },
		"another review":  func(string) (string, string) { return decoy, "" },
		"another process": func(string) (string, string) { return foreign, "" },
		"garbage":         func(string) (string, string) { return "garbage", "" },
		"expired":         func(s string) (string, string) { counters.later.Add(1); return s, "" },
		"other data":      func(s string) (string, string) { return s, `{"to":"nobody"}` },
	} {
		id := w.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
		state, data := tamper(w.advance(shipData(id), "").asks(t))
		arguments := shipData(id)
		if data != "" {
			arguments = strings.Replace(arguments, `{"to":"all"}`, data, 1)
		}
		if a := w.advance(arguments, answered(state, approves("x"))); a.outcome() != "escalate" || a.review()["status"] != "open" || a.StructuredContent["state"] != "built" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if s := w.call("workflow.status", `{"id":"`+decoyID+`"}`); s.StructuredContent["state"] != "built" {
		t.Errorf("a person's answer approved what was not shown: %s", s.text())
	}
}

// A state can be used once, even for an answer that decided nothing, and not for another instance.
func TestReplayedStates(t *testing.T) {
	for first, answer := range map[string]string{"cancelled": `{"action":"cancel"}`, "unusable": `{"action":"accept","content":{"decision":"maybe","reason":"x"}}`} {
		w := serve(t, newEngine(t, withReviews), withForms)
		id := w.started(release, "release")
		state := w.advance(shipData(id), "").asks(t)
		if a := w.advance(shipData(id), answered(state, answer)); a.review()["status"] != "open" {
			t.Errorf("%s: %+v", first, a)
		}
		if a := w.advance(shipData(id), answered(state, approves("x"))); a.review()["status"] != "open" || !a.IsError {
			t.Errorf("%s, then replayed: %+v", first, a)
		}
		w.end()
	}
	loop := strings.Replace(release, `"shipped":{"final":true}`, `"shipped":{"transitions":{"recall":"built"}}`, 1)
	w := serve(t, newEngine(t, withReviews), withForms)
	id := w.started(loop, "release")
	state := w.advance(shipData(id), "").asks(t)
	if a := w.advance(shipData(id), answered(state, approves("x"))); a.StructuredContent["state"] != "shipped" {
		t.Fatalf("approve: %+v", a)
	}
	w.call("workflow.advance", `{"id":"`+id+`","action":"recall"}`)
	if a := w.advance(shipData(id), answered(state, approves("x"))); a.StructuredContent["state"] != "built" || a.review()["status"] != "open" {
		t.Errorf("the same state, back in the same place: %+v", a)
	}
	second := w.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	third := w.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	state = w.advance(shipData(second), "").asks(t)
	if a := w.advance(shipData(third), answered(state, approves("x"))); a.StructuredContent["state"] != "built" {
		t.Errorf("another instance: %+v", a)
	}
}

// A review that ended while the person looked at the form is reported as it is.
func TestReviewEndsWhileAFormIsOpen(t *testing.T) {
	e := newEngine(t, withReviews)
	w := serve(t, e, withForms)
	id := w.started(release, "release")
	a := w.advance(shipData(id), "")
	state := a.asks(t)
	w.call("workflow.advance", `{"id":"`+id+`","action":"fix"}`)
	if got := w.advance(shipData(id), answered(state, approves("x"))); !got.IsError || got.review()["status"] != "stale" || got.StructuredContent["state"] != "built" {
		t.Errorf("stale: %+v", got)
	}
	state = w.advance(shipData(id), "").asks(t)
	open, err := e.Reviews(t.Context(), engine.Principal{ID: "ann", Role: engine.RoleReviewer}, engine.ReviewsRequest{})
	if err != nil || open.Count != 1 {
		t.Fatal(open, err)
	}
	if _, err := e.Resolve(t.Context(), engine.Principal{ID: "ann", Role: engine.RoleReviewer}, engine.ResolveRequest{ID: open.Reviews[0].ID, Decision: "reject", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	if got := w.advance(shipData(id), answered(state, approves("x"))); got.review()["decision"] != "reject" || got.review()["by"] != "ann" || got.review()["reason"] != "no" {
		t.Errorf("decided otherwise: %+v", got)
	}
}

// A person is asked three times about an action, whatever data an agent sends, until the instance moves.
func TestPersonIsAskedThreeTimes(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withForms)
	id := w.started(release, "release")
	ask := func(to int) bool {
		a := w.advance(fmt.Sprintf(`{"id":%q,"action":"ship","data":{"to":"all %d"}}`, id, to), "")
		if a.ResultType != "input_required" && a.outcome() != "escalate" {
			t.Fatalf("got %+v", a)
		}
		return a.ResultType == "input_required"
	}
	asked := 0
	for to := range 9 {
		if ask(to) {
			asked++
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	w.call("workflow.advance", `{"id":"`+id+`","action":"fix"}`)
	if !ask(10) {
		t.Error("not asked about the instance as it is now")
	}
}

// A form that one replica showed can be answered at another, once at all of them. A person is not asked more often
// because there are several replicas.
func TestFormsAcrossReplicas(t *testing.T) {
	e, counters := newEngine(t, withReviews), memory.New()
	var replicas []*session
	for _, who := range []engine.Principal{theAgent, theAgent, theAgent, {ID: "local:operator", Role: engine.RoleOperator}} {
		states := clientstate.New()
		states.Share(make([]byte, 32), counters)
		replicas = append(replicas, serveFace(t, newReplica(t, e, states, who)))
	}
	other := replicas[3]
	replicas = replicas[:3]
	id := replicas[0].started(release, "release")
	state := replicas[0].advance(shipData(id), "").asks(t)
	if a := replicas[1].advance(shipData(id), answered(state, `{"action":"cancel"}`)); a.review()["status"] != "open" || a.StructuredContent["note"] != "The person asked through the client did not decide it." {
		t.Errorf("answered at another replica: %+v", a)
	}
	for i, w := range replicas {
		if a := w.advance(shipData(id), answered(state, approves("x"))); a.review()["status"] != "open" {
			t.Errorf("replayed at replica %d: %+v", i, a)
		}
	}
	replicas[2].advance(shipData(id), "").asks(t)
	state = replicas[1].advance(shipData(id), "").asks(t)
	for i, w := range replicas {
		if a := w.advance(shipData(id), ""); a.ResultType == "input_required" {
			t.Errorf("replica %d asks a fourth time", i)
		}
	}
	if a := replicas[0].advance(shipData(id), answered(state, approves("x"))); a.StructuredContent["state"] != "shipped" {
		t.Errorf("approved at another replica: %+v", a)
	}
	id = replicas[0].call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	state = replicas[0].advance(shipData(id), "").asks(t)
	if a := other.advance(shipData(id), answered(state, approves("x"))); a.StructuredContent["state"] != "built" {
		t.Errorf("another principal answers: %+v", a)
	}
}
