package upstream_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// fakeEngine returns configured answers and records the requests.
type fakeEngine struct {
	definition *workflow.Definition
	foreign    bool   // the definition is not an operator's
	text       string // the definition's text; "" for gatedRelease
	answer     engine.CallResult
	settled    engine.SettleResult
	err        error

	startRefused bool
	taken        bool // the subject is taken by a concurrent call
	started      []engine.StartRequest

	mu      sync.Mutex
	begun   []engine.CallRequest
	settles []engine.SettleRequest
	// began and ended receive one value for each call.
	began, ended chan struct{}
}

func (e *fakeEngine) position(id string) engine.Position {
	return engine.Position{ID: id, Workflow: "release", Version: 3, State: "ready", Status: record.Running, NextActions: []string{"by-hand", "reset"}}
}

func (e *fakeEngine) Status(_ context.Context, _ engine.Principal, id string) (engine.StatusResult, error) {
	at := e.position(id)
	switch {
	case id == "wf-other":
		return engine.StatusResult{}, &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no such instance."}
	case id == "wf-foreign":
		at.Workflow = "mine"
	}
	return engine.StatusResult{Position: at}, nil
}

func (e *fakeEngine) FindSubject(_ context.Context, _ engine.Principal, _, subject string) (engine.Position, error) {
	if subject == "new" && len(e.started) == 0 {
		return engine.Position{}, &engine.Error{Code: engine.CodeUnknownInstance}
	}
	return e.position("wf-about-" + subject), nil
}

func (e *fakeEngine) Start(_ context.Context, _ engine.Principal, req engine.StartRequest) (engine.StartResult, error) {
	if e.startRefused {
		return engine.StartResult{Decision: engine.Decision{Violations: []string{"/owner is missing."}, Verdict: judge.Verdict{Suggestions: []string{"Send it."}}}}, nil
	}
	e.started = append(e.started, req)
	if e.taken {
		return engine.StartResult{}, &engine.Error{Code: engine.CodeSubjectTaken}
	}
	return engine.StartResult{Position: e.position("wf-about-" + req.Subject)}, nil
}

func (e *fakeEngine) Instances(context.Context, engine.Principal, engine.InstancesRequest) (engine.InstancesResult, error) {
	return engine.InstancesResult{}, nil
}

func (e *fakeEngine) LoadDefinition(_ context.Context, _ engine.Principal, _ engine.Right, _ string, _ int) (store.Definition, *workflow.Definition, error) {
	return store.Definition{Operator: !e.foreign}, e.definition, nil
}

func (e *fakeEngine) BeginCall(_ context.Context, _ engine.Principal, req engine.CallRequest) (engine.CallResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun = append(e.begun, req)
	e.began <- struct{}{}
	r := e.answer
	if r.Position.ID == "" {
		r.Position = e.position(req.ID)
	}
	if r.Answer == "" {
		r.Answer, r.CallID, r.Deadline = engine.CallGo, fmt.Sprint("call-", len(e.begun)), time.Now().Add(req.Timeout)
	}
	return r, e.err
}

func (e *fakeEngine) SettleCall(_ context.Context, _ engine.Principal, req engine.SettleRequest) (engine.SettleResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settles = append(e.settles, req)
	r := e.settled
	r.Position, r.CallID, r.Outcome = e.position(req.ID), req.CallID, req.Outcome
	e.ended <- struct{}{}
	return r, nil
}

func (e *fakeEngine) outcomes() (out []engine.CallOutcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.settles {
		out = append(out, s.Outcome)
	}
	return out
}

const gatedRelease = `{name: release, initialState: ready, states: {
  ready: {transitions: {go: {target: going, freezes: [/text]}, reset: ready}},
  going: {transitions: {done: {target: ready}, failed: {target: ready}}},
  later: {transitions: {reset: ready}}}}`

// openGated opens the fake server with gates.
func openGated(t *testing.T, e *fakeEngine, more, gates string) *upstream.Manager {
	t.Helper()
	return openGatedIn(t, e, "well", more, gates)
}

// openGatedIn opens the fake server in the given mode.
func openGatedIn(t *testing.T, e *fakeEngine, mode, more, gates string) *upstream.Manager {
	t.Helper()
	root, err := document.Parse("gates.yaml", []byte(gates), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := gate.ParseConfig(root)
	if err != nil {
		t.Fatal(err)
	}
	if e.definition, err = workflow.Parse("release.yaml", []byte(cmp.Or(e.text, gatedRelease))); err != nil {
		t.Fatal(err)
	}
	e.began, e.ended = make(chan struct{}, 100), make(chan struct{}, 100)
	return openFake(t, upstream.Options{Gates: cfg, Engine: func() upstream.Engine { return e }}, [3]string{"a", mode, more})
}

const allGated = `
- {tool: a__echo, workflow: release, states: [ready], action: go, success: done, error: failed, bind: {/text: /text}, data: {said: "{{arguments.text}}"}, result: {line: "{{result.line}}"}}
- {tool: a__fails, workflow: release, states: [ready], success: reset, error: reset, result: {why: "{{result.structuredContent.why}}"}}
- {tool: a__rpcerr, workflow: release, states: [ready], error: reset, result: {code: "{{result.error.code}}"}}
- {tool: a__task, workflow: release, states: [ready]}
- {tool: a__list, workflow: release, states: [ready], success: reset}
- {tool: a__two_ways, workflow: release, states: [ready], success: reset}
- {tool: a__exit, workflow: release, states: [ready]}
- {tool: a__hang, workflow: release, states: [ready]}
- {tool: a__progress, workflow: release, states: [ready]}
- {tool: a__question, workflow: release, states: [ready], success: reset}
- {tool: a__noise, workflow: release, states: [later]}
`

// sent returns the number of calls that the fake server received.
func sent(t *testing.T, m *upstream.Manager) string {
	t.Helper()
	r, err := call(t.Context(), m, "a", "sent", "")
	if err != nil {
		t.Fatal(err)
	}
	return readText(r.Result)
}

func readText(result json.RawMessage) string {
	return document.ReadTrusted(result).At("content", "0", "text").Text()
}

// The server receives exactly what was judged, byte for byte, without the handle and with the id of the call.
func TestGatedCall(t *testing.T) {
	e := &fakeEngine{}
	m := openGated(t, e, "", allGated)
	r, err := call(t.Context(), m, "a", "echo", `{"arguments":{"n":1.50e400,"workflowId":"wf-1","text":"a\u0062"},"_meta":{"own":1,"gavel/idempotencyKey":"k"}}`)
	if err != nil {
		t.Fatal(err)
	}
	const arguments = `{"n":1.50e400,"text":"a\u0062"}`
	line := document.ReadTrusted(r.Result).Get("line").Text()
	if !strings.Contains(line, `"arguments":`+arguments) || !strings.Contains(line, `"_meta":{"own":1,"gavel/idempotencyKey":"k","io.github.gavel-mcp/callId":"call-1","progressToken":`) || strings.Contains(line, "wf-1") {
		t.Errorf("sent: %s", line)
	}
	if got, want := string(document.ReadTrusted(r.Result).At("_meta", "io.github.gavel-mcp/workflow").Raw()), `{"id":"wf-1","workflow":"release","state":"ready","nextActions":["by-hand"],"nextTools":["a__echo","a__fails","a__rpcerr","a__task","a__list","a__two_ways","a__exit","a__hang","a__progress","a__question"],"callId":"call-1"}`; got != want {
		t.Errorf("told: %s", got)
	}
	b := e.begun[0]
	if string(b.Arguments) != arguments || b.Key != "k" || string(b.Data) != `{"said":"a\u0062"}` || b.Gate != "a__echo" || b.Upstream != "a" || b.Tool != "echo" || !strings.HasPrefix(b.Pin, "sha256:") ||
		b.ID != "wf-1" || b.Action != "go" || b.Success != "done" || b.Error != "failed" || !slices.Equal(b.Bound, []engine.Binding{{Argument: "/text", Field: "/text"}}) || b.Timeout <= upstream.DefaultCallTimeout {
		t.Errorf("begun: %+v", b)
	}
	if s := e.settles[0]; s.ID != "wf-1" || s.CallID != "call-1" || s.Outcome != engine.CallOK || document.ReadTrusted(s.Data).Get("line").Text() != line {
		t.Errorf("settled: %+v", s)
	}

	e.settled = engine.SettleResult{Action: "done", Decision: engine.Decision{Violations: []string{"No line."}}}
	r, err = call(t.Context(), m, "a", "echo", `{"arguments":{"workflowId":"wf-1"}}`)
	const note = `The tool was called, but the action done that follows was refused: No line. The workflow wf-1 stays in "ready". Do not call the tool again for it.`
	if err != nil || readText(r.Result) != note {
		t.Errorf("a refused end: %s %v", r.Result, err)
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		tool, more string
		want       engine.CallOutcome
		code       upstream.Code // "" if there is an answer
		data       string
	}{
		{"fails", "", engine.CallError, "", `{"why":"full"}`},
		{"rpcerr", "", engine.CallError, "", `{"code":-32042}`},
		{"task", "", engine.CallUnknown, upstream.CodeProtocol, ""},
		{"list", "", engine.CallUnknown, upstream.CodeProtocol, ""},
		{"two ways", "", engine.CallUnknown, upstream.CodeProtocol, ""},
		{"question", "", engine.CallUnknown, upstream.CodeProtocol, ""},
		{"exit", "", engine.CallUnknown, upstream.CodeLost, ""},
		{"hang", ", callTimeout: 50ms", engine.CallUnknown, upstream.CodeTimeout, ""},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			e := &fakeEngine{}
			m := openGated(t, e, c.more, allGated)
			_, err := call(t.Context(), m, "a", c.tool, `{"arguments":{"workflowId":"wf-1"}}`)
			if c.code != "" {
				wantCode(t, err, c.code, true)
			} else if err != nil {
				t.Error(err)
			}
			if got := e.outcomes(); !slices.Equal(got, []engine.CallOutcome{c.want}) || string(e.settles[0].Data) != c.data {
				t.Errorf("settled as %s with %s", got, e.settles[0].Data)
			}
		})
	}
}

// A refused call is neither sent nor settled.
func TestNothingIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		tool, params string
		engine       *fakeEngine
		code         upstream.Code
		want         string // message and hint
		begun        int
	}{
		"no handle":                   {tool: "fails", code: upstream.CodeInvalid, want: "The argument workflowId is missing: The id of the workflow release that the call belongs to, as workflow.start returned it. Start one with workflow.start, or find yours with workflow.instances."},
		"a handle twice":              {tool: "fails", params: `{"arguments":{"workflowId":"wf-1","workflowId":"wf-2"}}`, code: upstream.CodeInvalid, want: `The params are ambiguous: duplicate key "workflowId"; keep one. Correct the arguments.`},
		"a handle in another case":    {tool: "fails", params: `{"arguments":{"workflowid":"wf-1"}}`, code: upstream.CodeInvalid, want: `the key "workflowid" must be written "workflowId". Correct the arguments.`},
		"an argument in another case": {tool: "echo", params: `{"arguments":{"workflowId":"wf-1","Text":"b"}}`, code: upstream.CodeInvalid, want: `the key "Text" must be written "text". Correct the arguments.`},
		"duplicate keys":              {tool: "echo", params: `{"arguments":{"workflowId":"wf-1","text":"a","text":"b"}}`, code: upstream.CodeInvalid, want: `The params are ambiguous: duplicate key "text"; keep one. Correct the arguments.`},
		"invalid UTF-8":               {tool: "echo", params: "{\"arguments\":{\"workflowId\":\"wf-1\",\"text\":\"\xff\"}}", code: upstream.CodeInvalid, want: "The params are not JSON in valid UTF-8, or too long: /arguments/text: these bytes are not valid UTF-8 (line 1, column 43). Correct the arguments."},
		"somebody else's handle":      {tool: "fails", params: `{"arguments":{"workflowId":"wf-other"}}`, code: upstream.Code(engine.CodeUnknownInstance), want: "There is no such instance. "},
		"another workflow's handle":   {tool: "fails", params: `{"arguments":{"workflowId":"wf-foreign"}}`, code: upstream.CodeGateClosed, want: "a__fails belongs to the workflow release, and wf-foreign is of the workflow mine. Send the id of a workflow release that an operator defined."},
		"a definition of an agent":    {tool: "fails", engine: &fakeEngine{foreign: true}, params: `{"arguments":{"workflowId":"wf-1"}}`, code: upstream.CodeGateClosed, want: "a__fails belongs to the workflow release, and wf-1 is of the workflow release. Send the id of a workflow release that an operator defined."},
		"an older version":            {tool: "fails", engine: &fakeEngine{text: "{name: release, initialState: ready, states: {ready: {transitions: {go: ready}}}}"}, params: `{"arguments":{"workflowId":"wf-1"}}`, code: upstream.CodeGateClosed, want: "The gate of a__fails does not fit version 3 of the workflow release, which wf-1 follows. Ask an operator to migrate it, or begin another one."},
		"a call id of one's own":      {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"},"_meta":{"io.github.gavel-mcp/callId":"x"}}`, code: upstream.CodeInvalid, want: "The member io.github.gavel-mcp/callId of _meta is gavel's own. Correct the arguments."},
		"a key that is no text":       {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"},"_meta":{"gavel/idempotencyKey":7}}`, code: upstream.CodeInvalid, want: "The idempotency key, gavel/idempotencyKey of _meta, is a number. Correct the arguments."},
		"a requestState of one's own": {tool: "question", params: `{"arguments":{"workflowId":"wf-1"},"requestState":"eyJ4Ijox"}`, code: upstream.CodeInvalid, want: "The requestState is not one that gavel issued for these arguments, or gavel was restarted and had its store in memory. Ask again without it."},
		"another state":               {tool: "noise", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{answer: engine.CallResult{Answer: engine.CallRefused}}, begun: 1, code: upstream.CodeGateClosed, want: `a__noise needs the state "later"; the workflow release (wf-1) is in "ready". No action leads there from here: cancel it and start another one, or ask an operator.`},
		"judged":                      {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{answer: engine.CallResult{Answer: engine.CallRefused, Decision: engine.Decision{Violations: []string{"/text is not the approved one."}, Verdict: judge.Verdict{Suggestions: []string{"Send it."}}}}}, begun: 1, code: upstream.CodeCallRefused, want: "a__fails was not called: /text is not the approved one. Send it."},
		"used up":                     {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{answer: engine.CallResult{Answer: engine.CallRefused, Position: engine.Position{State: "ready"}, Decision: engine.Decision{Verdict: judge.Verdict{Code: workflow.CodeCallLimit}, Violations: []string{"It was called."}}}}, begun: 1, code: upstream.CodeCallRefused, want: "a__fails was not called: It was called. Fix the call, or continue with a possible action."},
		"parked":                      {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{answer: engine.CallResult{Answer: engine.CallParked, Review: &engine.ReviewSummary{}}}, begun: 1, code: upstream.CodeCallParked, want: "a__fails was not called: a person has to decide first. Make the same call again once the review is approved; workflow.status shows it."},
		"known":                       {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{answer: engine.CallResult{Answer: engine.CallKnown}}, begun: 1, code: upstream.CodeCallRepeated, want: "a__fails was not called again: the same call has not been answered yet. Wait for its answer; workflow.status shows until when."},
		"known to end":                {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{answer: engine.CallResult{Answer: engine.CallKnown, Outcome: engine.CallUnknown}}, begun: 1, code: upstream.CodeCallRepeated, want: "a__fails was not called again: it is unknown whether the same call happened. A person has to decide first; workflow.status shows the review."},
		"undecided":                   {tool: "fails", params: `{"arguments":{"workflowId":"wf-1"}}`, engine: &fakeEngine{err: &engine.Error{Code: engine.CodeCallOpen, Message: "A call is open.", Hint: "Wait."}}, begun: 1, code: upstream.Code(engine.CodeCallOpen), want: "A call is open. Wait."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := cmp.Or(c.engine, &fakeEngine{})
			m := openGated(t, e, "", allGated)
			_, err := call(t.Context(), m, "a", c.tool, c.params)
			wantCode(t, err, c.code, false)
			if failed, ok := errors.AsType[*upstream.Error](err); ok && failed.Message+" "+failed.Hint != c.want {
				t.Errorf("got  %s %s\nwant %s", failed.Message, failed.Hint, c.want)
			}
			if name == "judged" || name == "used up" {
				if failed, _ := errors.AsType[*upstream.Error](err); slices.Contains(failed.Standing.NextTools, "a__fails") != (name == "judged") {
					t.Errorf("possible now: %q", failed.Standing.NextTools)
				}
			}
			if n := sent(t, m); n != "0" || len(e.begun) != c.begun || len(e.settles) != 0 {
				t.Errorf("sent %s, begun %d, settled %d", n, len(e.begun), len(e.settles))
			}
		})
	}
	t.Run("without an engine", func(t *testing.T) {
		t.Parallel()
		m := openFake(t, upstream.Options{Gates: gate.Config{Gates: []gate.Gate{{Tool: "a__fails", Workflow: "release", States: []string{"ready"}}}}}, [3]string{"a", "well", ""})
		_, err := call(t.Context(), m, "a", "fails", `{"arguments":{"workflowId":"wf-1"}}`)
		wantCode(t, err, upstream.CodeUnavailable, false)
	})
}

// If the client of a call leaves, the server is asked to stop, and its answer is still recorded.
func TestGatedCallOutlivesItsClient(t *testing.T) {
	for tool, c := range map[string]struct {
		want engine.CallOutcome
		more string
	}{
		"progress": {engine.CallOK, ""},
		"hang":     {engine.CallUnknown, ", callTimeout: 300ms"},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			e := &fakeEngine{}
			m := openGated(t, e, c.more, allGated)
			sent(t, m) // starts the server
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			if _, err := call(ctx, m, "a", tool, `{"arguments":{"workflowId":"wf-1"}}`); !errors.Is(err, context.Canceled) {
				t.Errorf("the client got %v", err)
			}
			<-e.ended
			if got := e.outcomes(); !slices.Equal(got, []engine.CallOutcome{c.want}) {
				t.Errorf("settled as %s", got)
			}
			if r, err := call(t.Context(), m, "a", "cancelled", ""); err != nil || readText(r.Result) == "" {
				t.Errorf("the server was not asked to stop: %s %v", r.Result, err)
			}
		})
	}
	t.Run("the end of gavel", func(t *testing.T) {
		t.Parallel()
		e := &fakeEngine{}
		m := openGated(t, e, "", allGated)
		sent(t, m)
		done := make(chan error, 1)
		go func() {
			_, err := call(context.WithoutCancel(t.Context()), m, "a", "hang", `{"arguments":{"workflowId":"wf-1"}}`)
			done <- err
		}()
		<-e.began
		m.Close()
		<-done
		if got := e.outcomes(); len(got) != 1 || got[0] == engine.CallOK || got[0] == engine.CallError {
			t.Errorf("settled as %s", got)
		}
	})
}

// A call in which a server asks for input is a single call: it is begun and settled once, and its state can be used
// once.
func TestGatedQuestion(t *testing.T) {
	e := &fakeEngine{}
	m := openGated(t, e, "", allGated)
	ask := func(params string) (upstream.Reply, error) {
		return m.Call(t.Context(), agent, upstream.Request{Upstream: "a", Method: "tools/call", Kind: upstream.KindTool, Name: "question", Params: json.RawMessage(params), Capabilities: json.RawMessage(`{}`)})
	}
	r, err := ask(`{"arguments":{"workflowId":"wf-1"}}`)
	state := document.ReadTrusted(r.Result).Get("requestState").Text()
	if err != nil || state == "" || strings.Contains(state, "own") || len(e.settles) != 0 {
		t.Fatalf("%s, settled %d: %v", r.Result, len(e.settles), err)
	}
	for name, c := range map[string]struct {
		principal       engine.Principal
		tool, arguments string
	}{
		"another workflow":  {agent, "question", `{"workflowId":"wf-2"}`},
		"other arguments":   {agent, "question", `{"workflowId":"wf-1","more":1}`},
		"another principal": {engine.Principal{ID: "other", Role: engine.RoleAgent}, "question", `{"workflowId":"wf-1"}`},
		"another tool":      {agent, "fails", `{"workflowId":"wf-1"}`},
	} {
		_, err = m.Call(t.Context(), c.principal, upstream.Request{
			Upstream: "a", Method: "tools/call", Kind: upstream.KindTool, Name: c.tool,
			Params: json.RawMessage(`{"arguments":` + c.arguments + `,"requestState":"` + state + `"}`), Capabilities: json.RawMessage(`{}`),
		})
		if !errors.Is(err, clientstate.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := sent(t, m); n != "1" {
		t.Errorf("sent %s", n)
	}
	r, err = ask(`{"arguments":{"workflowId":"wf-1"},"inputResponses":{},"requestState":"` + state + `"}`)
	if line := document.ReadTrusted(r.Result).Get("line").Text(); err != nil || !strings.Contains(line, `"requestState":"own \u0041"`) || !strings.Contains(line, `"io.github.gavel-mcp/callId":"call-1"`) {
		t.Errorf("went on with %s: %v", line, err)
	}
	if len(e.begun) != 1 || !slices.Equal(e.outcomes(), []engine.CallOutcome{engine.CallOK}) {
		t.Errorf("begun %d, settled as %s", len(e.begun), e.outcomes())
	}
	_, err = ask(`{"arguments":{"workflowId":"wf-1"},"requestState":"` + state + `"}`)
	wantCode(t, err, upstream.CodeInvalid, false)
	if failed, _ := errors.AsType[*upstream.Error](err); failed == nil || failed.Message != "The requestState was used before, or the call is no longer open." {
		t.Errorf("a state that comes again: %v", err)
	}
}

// A call of an unreachable server that was made before, or may not be made, is refused for that reason; otherwise it
// is worth a retry. Nothing is recorded.
func TestGateBeforeAvailability(t *testing.T) {
	for name, c := range map[string]struct {
		answer engine.CallResult
		err    error
		want   upstream.Code
	}{
		"known":   {engine.CallResult{Answer: engine.CallKnown, Outcome: engine.CallUnknown}, nil, upstream.CodeCallRepeated},
		"closed":  {engine.CallResult{Answer: engine.CallRefused}, nil, upstream.CodeCallRefused},
		"open":    {engine.CallResult{}, &engine.Error{Code: engine.CodeCallOpen}, upstream.Code(engine.CodeCallOpen)},
		"allowed": {engine.CallResult{}, nil, upstream.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &fakeEngine{answer: c.answer, err: c.err}
			m := openGatedIn(t, e, "crash", "", allGated)
			for range 4 { // opens the breaker
				_, err := call(t.Context(), m, "a", "fails", `{"arguments":{"workflowId":"wf-1"}}`)
				wantCode(t, err, c.want, false)
			}
			if len(e.settles) != 0 || slices.ContainsFunc(e.begun, func(r engine.CallRequest) bool { return !r.CheckOnly }) {
				t.Errorf("begun %+v, settled %d", e.begun, len(e.settles))
			}
		})
	}
}

// The workflow of a call is found by its subject, or started. A call that continues keeps its workflow.
func TestGatedSubject(t *testing.T) {
	const gates = `
- {tool: a__fails, workflow: release, states: [ready], subject: "{{arguments.about}}"}
- {tool: a__question, workflow: release, states: [ready], subject: "{{arguments.about}}", start: true}`
	e := &fakeEngine{}
	m := openGated(t, e, "", gates)
	ask := func(tool, params string) (upstream.Reply, error) {
		return m.Call(t.Context(), agent, upstream.Request{Upstream: "a", Method: "tools/call", Kind: upstream.KindTool, Name: tool, Params: json.RawMessage(params), Capabilities: json.RawMessage(`{}`)})
	}
	for _, c := range []struct {
		tool, params string
		refuses      bool // the engine refuses to start
		code         upstream.Code
		want         string
	}{
		{"fails", `{"arguments":{"about":"new"}}`, false, upstream.CodeGateClosed, `a__fails needs a workflow release for "new", but there is none. Start it first with workflow.start: type "release", subject "new".`},
		{"fails", `{"arguments":{"about":{}}}`, false, upstream.CodeInvalid, "The arguments must say which release the call belongs to: arguments.about must be a string or a number. Correct the arguments."},
		{"fails", `{"arguments":{"About":"new"}}`, false, upstream.CodeInvalid, "The arguments must say which release the call belongs to: arguments.about must be a string or a number. Correct the arguments."},
		{"question", `{"arguments":{"about":"new"}}`, true, upstream.CodeCallRefused, "a__question was not called: the workflow release could not begin: /owner is missing. Send it."},
	} {
		e.startRefused = c.refuses
		_, err := ask(c.tool, c.params)
		wantCode(t, err, c.code, false)
		if failed, ok := errors.AsType[*upstream.Error](err); ok && failed.Message+" "+failed.Hint != c.want {
			t.Errorf("got  %s %s\nwant %s", failed.Message, failed.Hint, c.want)
		}
	}
	e.startRefused = false
	if n := sent(t, m); n != "0" || len(e.begun)+len(e.started) != 0 {
		t.Errorf("sent %s, begun %d, started %d", n, len(e.begun), len(e.started))
	}
	const about = `{"arguments":{"about":"new","workflowId":"own"}`
	r, err := ask("question", about+`}`)
	state := document.ReadTrusted(r.Result).Get("requestState").Text()
	if err != nil || state == "" || len(e.started) != 1 || e.started[0].Type != "release" || e.started[0].Subject != "new" {
		t.Fatalf("%s, started %+v: %v", r.Result, e.started, err)
	}
	e.started = nil // an operator released the instance
	r, err = ask("question", about+`,"requestState":"`+state+`"}`)
	line := document.ReadTrusted(r.Result).Get("line").Text()
	if err != nil || !strings.Contains(line, `"arguments":{"about":"new","workflowId":"own"}`) {
		t.Errorf("went on with %s: %v", line, err)
	}
	if len(e.begun) != 1 || e.begun[0].ID != "wf-about-new" || len(e.settles) != 1 || e.settles[0].ID != "wf-about-new" || len(e.started) != 0 {
		t.Errorf("begun %+v, settled %+v, started %d", e.begun, e.settles, len(e.started))
	}
	e.taken = true
	if r, err = ask("question", about+`}`); err != nil || len(e.begun) != 2 || e.begun[1].ID != "wf-about-new" {
		t.Errorf("of two that begin at once: %s, begun %+v: %v", r.Result, e.begun, err)
	}
}

// For a server that is pinned on first use, gavel cannot check the name in a gate.
func TestGatesWarn(t *testing.T) {
	m := openGated(t, &fakeEngine{}, ", pinning: first-use", "- {tool: a__ehco, workflow: release, states: [ready]}")
	const want = `whether the upstream "a" has the gated tool "a__ehco" is not known before its first session; if the gate has a typo in the name, the tool runs without a gate`
	if got := m.Warnings(); !slices.Contains(got, want) {
		t.Errorf("warned of %q", got)
	}
}
