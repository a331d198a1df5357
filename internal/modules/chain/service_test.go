package chain

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
)

// The principals of the tests.
var (
	agentA   = engine.Principal{ID: "a", Role: engine.RoleAgent, Workflows: "chain.ask chain.pay*"}
	agentB   = engine.Principal{ID: "b", Role: engine.RoleAgent}
	reviewer = engine.Principal{ID: "rita", Role: engine.RoleReviewer}
)

func openService(t *testing.T, e Effects) *Service {
	t.Helper()
	r := openRuns(t, t.TempDir(), e)
	t.Cleanup(r.Close)
	chains := map[string]*Definition{}
	for _, name := range []string{"ask", "pay", "other"} {
		d, err := Parse("chain.yaml", []byte("name: "+name+"\nvariables: {input: {who: x}}\nsteps:\n"+
			"  - {id: w, type: wait, signal: go, save_output_to: variables.output.said}\n  - {id: s, type: tool, server: s, action: look, save_output_to: variables.output.seen}\n"))
		if err != nil {
			t.Fatal(err)
		}
		chains[name] = d
	}
	return NewService(ServiceConfig{Runs: r, Engine: NewTestEngine(t), Chains: func() map[string]*Definition { return chains }})
}

func TestService(t *testing.T) {
	s := openService(t, &fakeServers{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	list, err := s.ListChains(ctx, agentA)
	if err != nil || len(list) != 2 || list[0].Name != "ask" || list[0].Steps != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	v, err := s.StartRun(ctx, agentA, StartRun{Chain: "ask", Run: "one"})
	if err != nil || v.Run != "one" || v.Principal != "a" || v.Status != StatusRunning {
		t.Fatalf("%+v, %v", v, err)
	}
	if again, err := s.StartRun(ctx, agentA, StartRun{Chain: "ask", Run: "one"}); err != nil || !again.Started.Equal(v.Started) {
		t.Errorf("started again: %+v, %v", again, err)
	}
	for len(v.Waiting) == 0 {
		if v, err = s.ReadRun(ctx, operator, "one"); err != nil {
			t.Fatal(err)
		}
	}
	if q := v.Waiting[0]; q.Kind != QuestionSignal || q.Key != "go" || q.Step != "w" {
		t.Errorf("it waits for %+v", q)
	}
	if v, err = s.PauseRun(ctx, operator, "one", "lunch"); err != nil || v.Status != StatusPaused || v.Note.By == "" || v.Note.Why != "lunch" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err = s.ResumeRun(ctx, operator, "one", ""); err != nil || v.Status != StatusRunning {
		t.Errorf("%+v, %v", v, err)
	}
	const hint = `The chain waits for "go".`
	if known, ok := errors.AsType[*engine.Error](func() error { _, err := s.SignalRun(ctx, agentA, "one", "g0", nil); return err }()); !ok || known.Code != engine.CodeInvalidArgument || known.Hint != hint || !strings.Contains(known.Message, `"g0"`) {
		t.Errorf("a signal that nothing waits for: %+v", known)
	}
	if _, err = s.SignalRun(ctx, agentA, "one", "go", json.RawMessage(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	v, err = s.WaitRun(ctx, agentA, "one")
	if err != nil || v.Status != StatusDone || marshal(v.Output) != `{"said":{"n":1},"seen":"ok"}` || len(v.Waiting) != 0 || len(v.Steps) != 2 || v.Steps[1].Key != "s" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err = s.StartRun(ctx, agentB, StartRun{Chain: "pay"}); err != nil {
		t.Fatal(err)
	}
	if v, err = s.CancelRun(ctx, agentB, v.Run, "no"); err != nil || v.Status != StatusCancelled {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err = s.WaitRun(ctx, agentB, v.Run); err != nil || v.Status != StatusCancelled {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestOpenRunsHaveQuota: the number of open runs per principal is limited. Repeated requests for an
// existing run are answered; ended runs and runs of others do not count.
func TestOpenRunsHaveQuota(t *testing.T) {
	s, ctx := openService(t, &fakeServers{}), context.Background()
	s.config.OpenRuns = func() int { return 2 }
	start := func(p engine.Principal, chain, run string) engine.Code {
		_, err := s.StartRun(ctx, p, StartRun{Chain: chain, Run: run})
		return engine.CodeOf(err)
	}
	want := func(what string, got, want engine.Code) {
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("the first", start(agentA, "ask", "a1"), "")
	want("the second, of another chain", start(agentA, "pay", "a2"), "")
	want("a third", start(agentA, "ask", "a3"), engine.CodeTooManyInstances)
	want("a third without an id", start(agentA, "ask", ""), engine.CodeTooManyInstances)
	want("the first again", start(agentA, "ask", "a1"), "")
	want("that of another principal", start(agentB, "ask", "b1"), "")
	if _, err := s.CancelRun(ctx, agentA, "a1", ""); err != nil {
		t.Fatal(err)
	}
	want("after one has ended", start(agentA, "ask", "a3"), "")
}

// TestQuotaHoldsAtOnce: of many concurrent starts by one principal, only as many succeed as the quota
// allows.
func TestQuotaHoldsAtOnce(t *testing.T) {
	s, ctx := openService(t, &fakeServers{}), context.Background()
	s.config.OpenRuns = func() int { return 2 }
	var starting sync.WaitGroup
	var began, refused atomic.Int32
	for range 20 {
		starting.Go(func() {
			switch _, err := s.StartRun(ctx, agentA, StartRun{Chain: "ask"}); engine.CodeOf(err) {
			case "":
				began.Add(1)
			case engine.CodeTooManyInstances:
				refused.Add(1)
			}
		})
	}
	starting.Wait()
	if began.Load() != 2 || refused.Load() != 18 {
		t.Errorf("%d began and %d were refused", began.Load(), refused.Load())
	}
}

// TestRunIDsAreOfPrincipals: two principals that choose the same id have separate runs, and neither learns
// of the other. Principals that see all runs can distinguish them.
func TestRunIDsAreOfPrincipals(t *testing.T) {
	s, ctx := openService(t, &fakeServers{}), context.Background()
	code := func(_ RunView, err error) engine.Code { return engine.CodeOf(err) }
	if got := code(s.ReadRun(ctx, agentB, "one")); got != engine.CodeUnknownInstance {
		t.Fatalf("before anybody has it: %q", got)
	}
	if _, err := s.StartRun(ctx, agentA, StartRun{Chain: "pay", Run: "one"}); err != nil {
		t.Fatal(err)
	}
	if v, err := s.ReadRun(ctx, operator, "one"); err != nil || v.Principal != "a" || v.Run == "one" {
		t.Errorf("an operator sees %+v, %v", v, err)
	}
	for _, run := range []string{"one", ScopeRun("a", "one")} {
		if got := code(s.ReadRun(ctx, agentB, run)); got != engine.CodeUnknownInstance {
			t.Errorf("another reads %s: %q", run, got)
		}
		if got := code(s.CancelRun(ctx, agentB, run, "")); got != engine.CodeUnknownInstance {
			t.Errorf("another cancels %s: %q", run, got)
		}
	}
	for range 2 {
		v, err := s.StartRun(ctx, agentB, StartRun{Chain: "ask", Run: "one", Input: json.RawMessage(`{"who":"y"}`)})
		if err != nil || v.Run != "one" || v.Principal != "b" || v.Chain != "ask" {
			t.Fatalf("the same id of another principal: %+v, %v", v, err)
		}
	}
	if got := code(s.ReadRun(ctx, operator, "one")); got != engine.CodeConflict {
		t.Errorf("an operator by an id that two have: %q", got)
	}
	for owner, chain := range map[string]string{"a": "pay", "b": "ask"} {
		if v, err := s.ReadRun(ctx, operator, ScopeRun(owner, "one")); err != nil || v.Principal != owner || v.Chain != chain {
			t.Errorf("an operator by the whole id of %s: %+v, %v", owner, v, err)
		}
	}
	if v, err := s.CancelRun(ctx, agentB, "one", ""); err != nil || v.Run != "one" || v.Principal != "b" {
		t.Errorf("cancelled is %+v, %v", v, err)
	}
	if v, err := s.ReadRun(ctx, agentA, "one"); err != nil || v.HasEnded() {
		t.Errorf("the other run is %+v, %v", v, err)
	}
}

// TestRunOfEarlierVersion: a run that an earlier version stored under the chosen id itself can still be
// used by its principal.
func TestRunOfEarlierVersion(t *testing.T) {
	s, ctx := openService(t, &fakeServers{}), context.Background()
	if _, err := s.config.Runs.Start(ctx, StartRequest{Run: "old", Definition: s.config.Chains()["ask"], Principal: agentA}); err != nil {
		t.Fatal(err)
	}
	if v, err := s.StartRun(ctx, agentA, StartRun{Chain: "ask", Run: "old"}); err != nil || v.Run != "old" {
		t.Errorf("started again it is %+v, %v", v, err)
	}
	if list, err := s.ListRuns(ctx, agentA, ListRuns{}); err != nil || list.Count != 1 {
		t.Errorf("the runs are %+v, %v", list, err)
	}
	if v, err := s.StartRun(ctx, agentB, StartRun{Chain: "pay", Run: "old"}); err != nil || v.Principal != "b" {
		t.Errorf("of another principal it is %+v, %v", v, err)
	}
}

// TestServiceRefuses checks the rights and arguments of every call.
func TestServiceRefuses(t *testing.T) {
	s := openService(t, &fakeServers{})
	ctx := context.Background()
	for _, run := range []StartRun{{Chain: "ask", Run: "mine"}, {Chain: "pay", Run: "ended"}} {
		if _, err := s.StartRun(ctx, agentA, run); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CancelRun(ctx, agentA, "ended", ""); err != nil {
		t.Fatal(err)
	}
	house := engine.Principal{ID: "house", Role: engine.RoleReviewer}
	if _, err := s.config.Runs.Start(ctx, StartRequest{Run: "acting", Definition: s.config.Chains()["ask"], Principal: agentA, ActsFor: &house}); err != nil {
		t.Fatal(err)
	}
	auditor := engine.Principal{ID: "au", Role: engine.RoleAuditor}
	start := func(p engine.Principal, req StartRun) func() error {
		return func() error { _, err := s.StartRun(ctx, p, req); return err }
	}
	act := func(do func(context.Context, engine.Principal, string, string) (RunView, error), p engine.Principal, run string) func() error {
		return func() error { _, err := do(ctx, p, run, "why"); return err }
	}
	explain := func(do func(context.Context, engine.Principal, string, string) (RunView, error)) func() error {
		return func() error { _, err := do(ctx, operator, "mine", strings.Repeat("x", 5000)); return err }
	}
	answer := func(p engine.Principal, key, answer string) func() error {
		return func() error { _, err := s.AnswerRun(ctx, p, "mine", key, answer, nil); return err }
	}
	for name, tc := range map[string]struct {
		do   func() error
		want engine.Code
	}{
		"out of scope":          {start(agentA, StartRun{Chain: "other"}), engine.CodeUnknownWorkflow},
		"no such chain":         {start(operator, StartRun{Chain: "x"}), engine.CodeUnknownWorkflow},
		"no chain":              {start(operator, StartRun{}), engine.CodeInvalidArgument},
		"reviewer starts":       {start(reviewer, StartRun{Chain: "ask"}), engine.CodeForbidden},
		"nobody":                {start(engine.Principal{}, StartRun{Chain: "ask"}), engine.CodeForbidden},
		"whole id of another":   {act(s.CancelRun, agentB, ScopeRun("a", "mine")), engine.CodeUnknownInstance},
		"id of another chain":   {start(agentA, StartRun{Chain: "pay", Run: "mine"}), engine.CodeKeyReused},
		"id of a tick":          {start(operator, StartRun{Chain: "ask", Run: TickRun("ask", time.Unix(1_800_000_000, 0))}), engine.CodeInvalidArgument},
		"id of an entry":        {start(operator, StartRun{Chain: "ask", Run: EntryRun("wf-1", 2)}), engine.CodeInvalidArgument},
		"id with a slash":       {start(agentA, StartRun{Chain: "ask", Run: "a/b"}), engine.CodeInvalidArgument},
		"unknown input":         {start(agentA, StartRun{Chain: "ask", Input: json.RawMessage(`{"whom":1}`)}), engine.CodeInvalidData},
		"another's run":         {act(s.CancelRun, agentB, "mine"), engine.CodeUnknownInstance},
		"no such run":           {act(s.CancelRun, operator, "x"), engine.CodeUnknownInstance},
		"auditor cancels":       {act(s.CancelRun, auditor, "mine"), engine.CodeForbidden},
		"agent pauses":          {act(s.PauseRun, agentA, "mine"), engine.CodeForbidden},
		"agent resumes":         {act(s.ResumeRun, agentA, "mine"), engine.CodeForbidden},
		"agent redrives":        {act(s.RedriveRun, agentA, "mine"), engine.CodeForbidden},
		"redrive of no failure": {act(s.RedriveRun, operator, "mine"), engine.CodeConflict},
		"long reason, cancel":   {explain(s.CancelRun), engine.CodeTooLarge},
		"long reason, pause":    {explain(s.PauseRun), engine.CodeTooLarge},
		"long reason, resume":   {explain(s.ResumeRun), engine.CodeTooLarge},
		"long reason, redrive":  {explain(s.RedriveRun), engine.CodeTooLarge},
		"ended":                 {act(s.CancelRun, agentA, "ended"), engine.CodeInstanceEnded},
		"own doubt":             {answer(engine.Principal{ID: "a", Role: engine.RoleReviewer}, "s!", AnswerHappened), engine.CodeForbidden},
		"doubt of own rights":   {func() error { _, err := s.AnswerRun(ctx, house, "acting", "s!", AnswerHappened, nil); return err }, engine.CodeForbidden},
		"agent answers":         {answer(agentA, "s!", AnswerHappened), engine.CodeForbidden},
		"no such answer":        {answer(reviewer, "s!", "yes"), engine.CodeInvalidArgument},
		"no such question":      {answer(reviewer, "s!", AnswerHappened), engine.CodeReviewClosed},
		"signal without name":   {func() error { _, err := s.SignalRun(ctx, agentA, "mine", "", nil); return err }, engine.CodeInvalidArgument},
		"signal of no JSON":     {func() error { _, err := s.SignalRun(ctx, agentA, "mine", "go", json.RawMessage("x")); return err }, engine.CodeInvalidData},
		"limit":                 {func() error { _, err := s.ListRuns(ctx, agentA, ListRuns{Limit: 501}); return err }, engine.CodeInvalidArgument},
		"cursor":                {func() error { _, err := s.ListRuns(ctx, agentA, ListRuns{Cursor: "1.x"}); return err }, engine.CodeInvalidArgument},
	} {
		if err := tc.do(); engine.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if v, err := s.StartTick(ctx, agentA, StartRun{Chain: "ask", Run: TickRun("ask", time.Unix(1_800_000_000, 0))}); err != nil || v.HasEnded() {
		t.Errorf("the scheduler starts %+v, %v", v, err)
	}
	if list, err := s.ListRuns(ctx, agentB, ListRuns{}); err != nil || len(list.Runs) != 0 {
		t.Errorf("another sees %+v, %v", list, err)
	}
}

func TestListRuns(t *testing.T) {
	s := openService(t, &fakeServers{})
	ctx := context.Background()
	for _, run := range []string{"r1", "r2", "r3"} {
		if _, err := s.StartRun(ctx, agentA, StartRun{Chain: "ask", Run: run}); err != nil {
			t.Fatal(err)
		}
		for at := time.Now().UnixMilli(); time.Now().UnixMilli() == at; { // lists are ordered by the clock in milliseconds
			runtime.Gosched()
		}
	}
	if _, err := s.StartRun(ctx, agentB, StartRun{Chain: "pay", Run: "r4"}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		by   engine.Principal
		req  ListRuns
		want []string
	}{
		"an agent's":  {agentA, ListRuns{Limit: 2}, []string{"r3", "r2", "|", "r1"}},
		"everybody's": {operator, ListRuns{Limit: 3}, []string{"r4", "r3", "r2", "|", "r1"}},
		"of a chain":  {reviewer, ListRuns{Chain: "ask"}, []string{"r3", "r2", "r1"}},
		"of a status": {reviewer, ListRuns{Status: StatusDone}, nil},
	} {
		var got []string
		for {
			page, err := s.ListRuns(ctx, tc.by, tc.req)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range page.Runs {
				run, _, _ := strings.Cut(v.Run, "@")
				got = append(got, run)
			}
			if page.NextCursor == "" {
				break
			}
			got, tc.req.Cursor = append(got, "|"), page.NextCursor
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
