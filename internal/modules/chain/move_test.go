package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const reviewed = `{"name":"paper","initialState":"draft","inputSchema":{"type":"object","properties":{"title":{"type":"string"}}},"states":{
	"draft":{"transitions":{"submit":{"target":"submitted","requiredFields":["title"]},"ask":{"target":"submitted","requireAssurance":"human"}}},
	"submitted":{"transitions":{"publish":"done"}},
	"done":{"final":true,"outcome":"success"}}}`

var (
	ann  = engine.Principal{ID: "ann", Role: engine.RoleAgent}
	rita = engine.Principal{ID: "rita", Role: engine.RoleReviewer}
	olga = engine.Principal{ID: "olga", Role: engine.RoleOperator}
)

func newWorkflows(t *testing.T) *engine.Engine {
	t.Helper()
	e := enginetest.New(t, judge.Config{Clock: enginetest.FixedTime}, func(c *engine.Config) { c.ReviewPath = true })
	if _, err := e.Define(t.Context(), olga, engine.DefineRequest{Document: []byte(reviewed)}); err != nil {
		t.Fatal(err)
	}
	return e
}

func said(t *testing.T, o chain.Outcome) string {
	t.Helper()
	if o.Err != nil {
		return fmt.Sprintf("%s %s final=%v", o.Err.Code, o.Err.Message, o.Err.Final)
	}
	raw, err := document.Marshal(o.Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// move returns a move of one of ann's runs.
func move(key, action, instance, target string, data any) chain.Command {
	return chain.Command{Op: chain.OpMove, Kind: chain.KindWorkflow, Run: "run-1", Principal: ann, Key: key, Action: action, Name: "paper", Instance: instance, Target: target, Arguments: data}
}

// TestMoves moves a workflow as a run does: a key moves it once, and a rejection is final.
func TestMoves(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	d := chain.Executor{Workflows: e}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	begun := d.Do(ctx, move("start", "start", "", "", nil))
	id, _ := begun.Value.(map[string]any)["id"].(string)
	if id == "" {
		t.Fatal(said(t, begun))
	}
	title := map[string]any{"title": "On chains"}
	for _, row := range []struct {
		name string
		c    chain.Command
		want string
	}{
		{"the same start", move("start", "start", "", "", nil), `"id":"` + id + `"`},
		{"a second attempt is the same start", move("start~2", "start", "", "", nil), `"id":"` + id + `"`},
		{"a refused start", move("no", "start", "", "", map[string]any{"title": 1}), "refused refused by"},
		{"a refusal", move("bad", "advance", id, "submit", nil), "final=true"},
		{"an unknown instance", move("gone", "advance", "wf-gone", "submit", nil), "unknown_instance"},
		{"a state that is there", move("w", "wait", id, "draft", nil), `"state":"draft"`},
		{"a move", move("submit", "advance", id, "submit", title), `"state":"submitted"`},
		{"the same move", move("submit", "advance", id, "submit", title), `"state":"submitted"`},
		{"the end", move("publish", "advance", id, "publish", nil), `"complete":true`},
		{"a state that will not come", move("w2", "wait", id, "draft", nil), `refused the instance ` + id + ` will not reach the state "draft": it is complete in the state "done" final=true`},
	} {
		if got := said(t, d.Do(ctx, row.c)); !strings.Contains(got, row.want) {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
	all, err := e.Instances(ctx, olga, engine.InstancesRequest{})
	if err != nil || len(all.Instances) != 1 {
		t.Errorf("there are %d instances, %v; want the one", len(all.Instances), err)
	}
}

// TestMoveWaitsForPerson: the step of a parked move ends when a person has decided it.
func TestMoveWaitsForPerson(t *testing.T) {
	t.Parallel()
	for decision, want := range map[judge.Outcome]string{judge.Approve: `"state":"submitted"`, judge.Reject: "refused rita rejected it: too soon final=true"} {
		e := newWorkflows(t)
		d := chain.Executor{Workflows: e}
		begun, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "paper"})
		if err != nil {
			t.Fatal(err)
		}
		// Use the run's key here first, so that the review is known; the step finds it.
		parked, err := e.Advance(t.Context(), ann, engine.AdvanceRequest{ID: begun.ID, Action: "ask", Key: "run-1/ask"})
		if err != nil || parked.Review == nil {
			t.Fatalf("not parked: %+v, %v", parked, err)
		}
		done := make(chan chain.Outcome, 1)
		go func() { done <- d.Do(t.Context(), move("ask", "advance", begun.ID, "ask", nil)) }()
		if _, err := e.Resolve(t.Context(), rita, engine.ResolveRequest{ID: parked.Review.ID, Decision: decision, Reason: "too soon"}); err != nil {
			t.Fatal(err)
		}
		if got := said(t, <-done); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", decision, got, want)
		}
		if got := said(t, d.Do(t.Context(), move("r", "review", parked.Review.ID, "", nil))); !strings.Contains(got, `"by":"rita"`) {
			t.Errorf("a wait for the review gives %s", got)
		}
	}
}

// TestRightsAreAskedAtEveryStep: a principal that has lost its rights can do nothing more.
func TestRightsAreAskedAtEveryStep(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	var revoked error
	d := chain.Executor{Workflows: e, Rights: func(_ context.Context, c chain.Command) (engine.Principal, error) { return c.Principal, revoked }}
	if o := d.Do(t.Context(), move("a", "start", "", "", nil)); o.Err != nil {
		t.Fatal(said(t, o))
	}
	revoked = errors.New("its token was revoked")
	if got := said(t, d.Do(t.Context(), move("b", "start", "", "", nil))); got != "not_allowed ann, the principal of the run, no longer has the rights to continue: its token was revoked final=true" {
		t.Error(got)
	}
}

// TestRightsAreCheckedAfterWaits: a principal that loses its rights while a step waits can do nothing more,
// and gets no answer. The reviews are approved; only the first check of the rights succeeds.
func TestRightsAreCheckedAfterWaits(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	begun, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "paper"})
	if err != nil {
		t.Fatal(err)
	}
	gate := func(code upstream.Code) *upstream.Error {
		return &upstream.Error{Code: code, Message: "No.", Standing: &upstream.Standing{ID: "wf-1", CallID: "call-1", ReviewID: "rv-1"}}
	}
	call := chain.Command{Op: chain.OpCall, Kind: chain.KindTool, Server: "s", Name: "n", Run: "run-1", Key: "a", Principal: ann}
	for name, row := range map[string]struct {
		gate *upstream.Error
		c    chain.Command
	}{
		"an approval":                  {gate(upstream.CodeCallParked), call},
		"a call that is under way":     {gate(upstream.CodeCallRepeated), call},
		"a move that a person decides": {nil, move("ask", "advance", begun.ID, "ask", nil)},
		"a state":                      {nil, move("state", "wait", begun.ID, "draft", nil)},
		"a review":                     {nil, move("review", "review", "rv-1", "", nil)},
	} {
		server, asked := &answers{say: []error{row.gate, nil}}, 0
		d := chain.Executor{Upstreams: server, Workflows: reviews{Workflows: e, decision: judge.Approve}, Rights: func(_ context.Context, c chain.Command) (engine.Principal, error) {
			if asked++; asked > 1 {
				return engine.Principal{}, errors.New("its token was revoked")
			}
			return c.Principal, nil
		}}
		if name == "a state" {
			d.Workflows = e
		}
		want := "not_allowed "
		if name == "a move that a person decides" {
			want += "the move ask of the instance " + begun.ID + " was made when rita approved it, but the run stops here: "
		}
		if got := said(t, d.Do(t.Context(), row.c)); got != want+"ann, the principal of the run, no longer has the rights to continue: its token was revoked final=true" || len(server.keys) > 1 {
			t.Errorf("%s: %s; the server was called %d times", name, got, len(server.keys))
		}
	}
}

// TestRevokedRunStillShowsItsMove: if a run loses its rights while its move waits for approval, the record and
// the steps still show that the approved move was made.
func TestRevokedRunStillShowsItsMove(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	var revoked atomic.Bool
	door := chain.Executor{Workflows: e, Rights: func(_ context.Context, c chain.Command) (engine.Principal, error) {
		if revoked.Load() {
			return engine.Principal{}, errors.New("its token was revoked")
		}
		return c.Principal, nil
	}}
	runs, err := chain.Open(t.Context(), chain.Config{Path: filepath.Join(t.TempDir(), "chains.db"), Effects: door, Ledger: chain.NewLedger(e)})
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	d, err := chain.Parse("chain.yaml", []byte("name: c\nvariables: {input: {id: x}}\nsteps: [{id: ask, type: workflow, action: advance, instance: \"{{variables.input.id}}\", perform: ask}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: e, Chains: func() map[string]*chain.Definition { return map[string]*chain.Definition{"c": d} }})
	begun, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "paper"})
	if err != nil {
		t.Fatal(err)
	}
	started, err := s.StartRun(t.Context(), ann, chain.StartRun{Chain: "c", Input: json.RawMessage(`{"id":"` + begun.ID + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	review := chain.AwaitQuestion(t, s, ann, started.Run).Review
	revoked.Store(true)
	if _, err := e.Resolve(t.Context(), rita, engine.ResolveRequest{ID: review, Decision: judge.Approve, Reason: "fine"}); err != nil {
		t.Fatal(err)
	}
	ended, err := s.WaitRun(t.Context(), ann, started.Run)
	if err != nil {
		t.Fatal(err)
	}
	want := "the move ask of the instance " + begun.ID + " was made when rita approved it, but the run stops here: ann, the principal of the run, no longer has the rights to continue: its token was revoked"
	if ended.Error == nil || ended.Error.Code != chain.CodeNotAllowed || ended.Error.Message != want {
		t.Errorf("the run ends with %+v", ended.Error)
	}
	if n := len(ended.Steps); n != 1 || ended.Steps[0].Error == nil || ended.Steps[0].Error.Message != want {
		t.Errorf("its steps are %+v", ended.Steps)
	}
	kept, err := e.Status(t.Context(), olga, ended.Instance)
	if err != nil || !strings.Contains(string(kept.Context), want) {
		t.Errorf("the record says %s, %v", kept.Context, err)
	}
	if at, err := e.Status(t.Context(), ann, begun.ID); err != nil || at.State != "submitted" {
		t.Errorf("the instance is in %s, %v", at.State, err)
	}
}

// TestPeopleWakeRuns: a run that waits for a person's decision or the state of an instance is suspended,
// and continues once it arrives.
func TestPeopleWakeRuns(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	runs, err := chain.Open(t.Context(), chain.Config{Path: filepath.Join(t.TempDir(), "chains.db"), Effects: chain.Executor{Workflows: e}, Ledger: chain.NewLedger(e), Unload: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	chains := map[string]*chain.Definition{}
	for name, step := range map[string]string{"ask": "action: advance, perform: ask", "see": "action: wait, state: submitted"} {
		d, err := chain.Parse("chain.yaml", []byte("name: "+name+"\nvariables: {input: {id: x}}\nsteps: [{id: s, type: workflow, instance: \"{{variables.input.id}}\", save_output_to: variables.output.s, "+step+"}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		chains[name] = d
	}
	s := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: e, Chains: func() map[string]*chain.Definition { return chains }})
	begun, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "paper"})
	if err != nil {
		t.Fatal(err)
	}
	started := map[string]string{}
	for _, name := range []string{"see", "ask"} {
		v, err := s.StartRun(t.Context(), ann, chain.StartRun{Chain: name, Input: json.RawMessage(`{"id":"` + begun.ID + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
		started[name] = v.Run
	}
	runs.AwaitSuspended(t, 2)
	if q := chain.AwaitQuestion(t, s, ann, started["see"]); q.Kind != chain.QuestionState || q.Instance != begun.ID || q.State != "submitted" {
		t.Errorf("it waits for %+v", q)
	}
	review := chain.AwaitQuestion(t, s, ann, started["ask"]).Review
	if _, err := e.Resolve(t.Context(), rita, engine.ResolveRequest{ID: review, Decision: judge.Approve, Reason: "fine"}); err != nil {
		t.Fatal(err)
	}
	for name, run := range started {
		ended, err := s.WaitRun(t.Context(), ann, run)
		if err != nil || ended.Status != chain.StatusDone || !strings.Contains(string(ended.Output), `"state":"submitted"`) {
			t.Errorf("%s ends with %+v, %v", name, ended, err)
		}
		if n := len(ended.Steps); n != 1 || ended.Steps[0].Ended.Sub(ended.Steps[0].Started) < 0 {
			t.Errorf("the steps of %s are %+v", name, ended.Steps)
		}
	}
}

// TestRightsThatCannotBeRead: while rights cannot be read, a step waits and is not rejected.
func TestRightsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	asked := 0
	d := chain.Executor{Upstreams: &answers{say: []error{nil}}, Rights: func(_ context.Context, c chain.Command) (engine.Principal, error) {
		if asked++; asked == 1 {
			return engine.Principal{}, fmt.Errorf("%w: the store is away", chain.ErrRightsUnknown)
		}
		return c.Principal, nil
	}}
	call := chain.Command{Op: chain.OpCall, Kind: chain.KindTool, Server: "s", Name: "n", Run: "run-1", Key: "a", Principal: ann}
	if o := d.Do(t.Context(), call); o.Err != nil || asked != 2 {
		t.Errorf("it gives %+v, asked %d times", o.Err, asked)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	asked = 0
	if got := said(t, d.Do(ended, call)); got != "timeout the rights of ann could not be read: the rights cannot be read: the store is away final=false" {
		t.Error(got)
	}
}

// awayFirst is a store that is unreachable for the first status request.
type awayFirst struct {
	chain.Workflows
	looks int
}

func (w *awayFirst) Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error) {
	if w.looks++; w.looks == 1 {
		return engine.StatusResult{}, &engine.Error{Code: engine.CodeUnavailable, Message: "The store is away."}
	}
	return w.Workflows.Status(ctx, p, id)
}

// TestWaitsThroughTrouble: a failed poll does not end a wait.
func TestWaitsThroughTrouble(t *testing.T) {
	t.Parallel()
	e := newWorkflows(t)
	begun, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "paper"})
	if err != nil {
		t.Fatal(err)
	}
	w := &awayFirst{Workflows: e}
	if o := (chain.Executor{Workflows: w}).Do(t.Context(), move("w", "wait", begun.ID, "draft", nil)); o.Err != nil || w.looks != 2 {
		t.Errorf("it gives %+v after %d looks", o.Err, w.looks)
	}
}

// completer echoes its request.
type completer struct{}

func (completer) CompletePrompt(_ context.Context, p engine.Principal, model string, messages []chain.Message) (string, error) {
	if model == "down" {
		return "", errors.New("the model does not answer")
	}
	return fmt.Sprint(p.ID, " ", model, " ", messages), nil
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	text := []any{map[string]any{"role": "user", "content": map[string]any{"type": "text", "text": "hi"}}}
	image := []any{map[string]any{"role": "user", "content": map[string]any{"type": "image", "data": "x"}}}
	for _, row := range []struct {
		name, model string
		messages    any
		models      chain.Completer
		want        string
	}{
		{"a text", "m", text, completer{}, `"ann m [{user hi}]"`},
		{"an image", "m", image, completer{}, "not_allowed the prompt cannot be completed: message 1 is not text from the user or the assistant final=true"},
		{"no messages", "m", nil, completer{}, "not_allowed the prompt cannot be completed: it has no messages final=true"},
		{"a model that is down may be asked again", "down", text, completer{}, "model_error the model does not answer final=false"},
		{"no model", "m", text, nil, "not_allowed no model is available to complete the prompt final=true"},
	} {
		o := chain.Executor{Models: row.models}.Do(t.Context(), chain.Command{Op: chain.OpComplete, Name: row.model, Arguments: row.messages, Principal: ann})
		if got := strings.TrimSpace(said(t, o)); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
}

// answers returns the answers of a gate in order; keys records the idempotency keys of the requests.
type answers struct {
	say  []error
	keys []string
}

func (*answers) List(engine.Principal, upstream.Kind) []upstream.Item { return nil }

func (a *answers) Call(_ context.Context, _ engine.Principal, req upstream.Request) (upstream.Reply, error) {
	var params struct {
		Meta map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal(req.Params, &params); err != nil {
		return upstream.Reply{}, err
	}
	a.keys = append(a.keys, fmt.Sprint(params.Meta["gavel/idempotencyKey"]))
	said := a.say[0]
	a.say = a.say[1:]
	return upstream.Reply{Result: json.RawMessage(`{"content":[{"type":"text","text":"written"}]}`)}, said
}

// reviews has only decided reviews, and no open calls.
type reviews struct {
	chain.Workflows
	decision judge.Outcome
}

func (r reviews) Review(context.Context, engine.Principal, string) (engine.ReviewView, error) {
	return engine.ReviewView{ReviewSummary: engine.ReviewSummary{ID: "rv-1", Status: "resolved", Decision: r.decision, By: "rita", Reason: "no"}}, nil
}

func (reviews) Status(context.Context, engine.Principal, string) (engine.StatusResult, error) {
	return engine.StatusResult{}, nil
}

// TestGatedCalls: a parked call is made once it is approved. A call that the gate has on record is not made
// again; the gate is asked for its outcome.
func TestGatedCalls(t *testing.T) {
	t.Parallel()
	at := &upstream.Standing{ID: "wf-1", CallID: "call-1", ReviewID: "rv-1"}
	parked := &upstream.Error{Code: upstream.CodeCallParked, Message: "Parked.", Standing: at}
	known := func(outcome engine.CallOutcome) error {
		return &upstream.Error{Code: upstream.CodeCallRepeated, Message: "It was made before.", Standing: at, Outcome: outcome}
	}
	for _, row := range []struct {
		name     string
		say      []error
		decision judge.Outcome
		want     string
		keys     string
	}{
		{"approved", []error{parked, nil}, judge.Approve, `"written"`, "[run-1/w run-1/w+rv-1]"},
		{"rejected", []error{parked}, judge.Reject, "refused rita rejected it: no final=true", "[run-1/w]"},
		{"refused", []error{&upstream.Error{Code: upstream.CodeCallRefused, Message: "Refused."}}, "", "call_refused Refused. final=true", "[run-1/w]"},
		{"done before gavel was killed", []error{known(engine.CallOK)}, "", "null", "[run-1/w]"},
		{"failed before gavel was killed", []error{known(engine.CallError)}, "", "tool_error It was made before. final=false", "[run-1/w]"},
		{"unknown, until a person said that it happened", []error{known(engine.CallUnknown), known(engine.CallOK)}, "", "null", "[run-1/w run-1/w]"},
	} {
		gate := &answers{say: row.say}
		d := chain.Executor{Upstreams: gate, Workflows: reviews{decision: row.decision}}
		o := d.Do(t.Context(), chain.Command{Op: chain.OpCall, Kind: chain.KindTool, Server: "s", Name: "write", Run: "run-1", Key: "w", Step: "w", Principal: ann})
		if got := strings.TrimSpace(said(t, o)); got != row.want || fmt.Sprint(gate.keys) != row.keys {
			t.Errorf("%s: got %s with %v, want %s with %s", row.name, got, gate.keys, row.want, row.keys)
		}
	}
}
