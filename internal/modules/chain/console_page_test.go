package chain

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// TestPagesOfRuns: pages show what the operations answer, and their forms are operations of the visitor.
func TestPagesOfRuns(t *testing.T) {
	s := openService(t, &fakeServers{})
	c := &chains{}
	c.section.Store(&chainSection{Settings: &Settings{}, byName: s.config.Chains()})
	c.service.Store(s)
	auditor := engine.Principal{ID: "ann", Role: engine.RoleAuditor}
	outsider := engine.Principal{ID: "lim", Role: engine.RoleReviewer, Workflows: "other"}
	pages := c.pages()
	visit := func(p engine.Principal, id string, values url.Values) module.Visit {
		return module.Visit{Path: func(string) string { return id }, Values: values, Call: operation.Call{
			Engine: s.config.Engine, Caller: auth.Identity{Principal: p},
			Services: map[string]any{ServiceName: Source(func(context.Context, bool) (Chains, error) { return opened{s, nil}, nil })},
		}}
	}
	load := func(page int, p engine.Principal, id string, values url.Values) (any, error) {
		return pages[page].Load(t.Context(), visit(p, id, values))
	}
	act := func(action string, p engine.Principal, id string, values url.Values) error {
		_, _, err := pages[1].Actions[action](t.Context(), visit(p, id, values))
		return err
	}
	for _, doc := range []string{`{"name":"job","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`} {
		if _, err := s.config.Engine.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
	}
	job, err := s.config.Engine.Start(t.Context(), operator, engine.StartRequest{Type: "job"})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := load(2, auditor, job.ID, nil); err != nil || data != nil {
		t.Errorf("an instance without runs: %+v, %v", data, err)
	}
	run := EntryRun(job.ID, job.Revision)
	if _, err := s.config.Runs.Start(t.Context(), StartRequest{Run: run, Definition: s.config.Chains()["ask"], Input: json.RawMessage(`{"who":"x"}`), Principal: agentB}); err != nil {
		t.Fatal(err)
	}
	AwaitQuestion(t, s, operator, run)

	list, err := load(0, auditor, "", nil)
	if err != nil || len(list.(runsData).Runs) != 1 || len(list.(runsData).Chains) != 3 { //nolint:forcetypeassert // what the page loads
		t.Errorf("the list: %+v, %v", list, err)
	}
	if list, err := load(0, outsider, "", nil); err != nil || len(list.(runsData).Runs) != 0 { //nolint:forcetypeassert // what the page loads
		t.Errorf("the list for a visitor limited to other workflows: %+v, %v", list, err)
	}
	if _, err := load(0, auditor, "", url.Values{"status": {"odd"}}); engine.CodeOf(err) != engine.CodeInvalidArgument {
		t.Errorf("an unknown status: %v", err)
	}
	shown, err := c.loadRun(t.Context(), visit(auditor, run, nil))
	if err != nil || len(shown.Waiting) != 1 || len(shown.Bars) != 1 || shown.Bars[0].Class != "wait" || !strings.Contains(string(shown.Diagram), "gavel-diagram") {
		t.Errorf("the run: %+v, %v", shown, err)
	}
	if _, err := load(1, outsider, run, nil); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("the run for a visitor limited to other workflows: %v", err)
	}
	of, err := load(2, auditor, job.ID, nil)
	if err != nil || len(of.(runsOf).Runs) != 1 || of.(runsOf).Runs[0].Run != run { //nolint:forcetypeassert // what the page loads
		t.Errorf("the runs of the instance: %+v, %v", of, err)
	}

	for _, action := range []string{"signal", "cancel", "pause", "resume", "redrive"} {
		if err := act(action, auditor, run, url.Values{"name": {"go"}, "value": {"1"}}); engine.CodeOf(err) != engine.CodeForbidden {
			t.Errorf("%s by an auditor: %v", action, err)
		}
	}
	if err := act("signal", operator, run, url.Values{"name": {"go"}, "value": {"yes"}}); engine.CodeOf(err) != engine.CodeInvalidData {
		t.Errorf("a value that is not JSON: %v", err)
	}
	if err := act("pause", operator, run, url.Values{"reason": {"lunch"}}); err != nil {
		t.Error(err)
	}
	if shown, err := c.loadRun(t.Context(), visit(auditor, run, nil)); err != nil || shown.Status != StatusPaused || shown.Note.String() != "by "+operator.ID+": lunch" {
		t.Errorf("after a pause: %s %q, %v", shown.Status, shown.Note, err)
	}
	if err := act("resume", operator, run, nil); err != nil {
		t.Error(err)
	}
	if err := act("signal", operator, run, url.Values{"name": {"go"}, "value": {` {"yes": 1} `}}); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // waits for another goroutine
		if shown, err = c.loadRun(t.Context(), visit(auditor, run, nil)); err != nil || shown.HasEnded() || time.Now().After(deadline) {
			break
		}
	}
	if err != nil || shown.Status != StatusDone || len(shown.Bars) != 2 {
		t.Errorf("at the end: %+v, %v", shown, err)
	}
	if err := act("redrive", operator, run, nil); err == nil {
		t.Error("a run that did not fail was redriven")
	}
}

// TestBarsOfSteps: each step is a bar at its place within the run.
func TestBarsOfSteps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	run := RunView{Started: begin, Ended: at(10), Status: StatusFailed}
	run.Steps = []RunStep{
		{Key: "a", Status: StatusDone, Started: at(0), Ended: at(5)},
		{Key: "b", Status: StatusFailed, Started: at(5), Ended: at(10), Error: &RunError{Code: "x"}},
		{Key: "early", Status: StatusDone, Started: at(-5), Ended: at(-5)}, // the clock of another process
	}
	d := newRunData(run, at(100))
	var got []string
	for _, b := range d.Bars {
		raw, _ := json.Marshal([]any{b.Key, b.At, b.Width, b.Class, b.Took}) //nolint:errchkjson // numbers and text
		got = append(got, string(raw))
	}
	if want := `["a",0,50,"yes","5s"] ["b",50,50,"no","5s"] ["early",0,0.6,"yes","0s"]`; strings.Join(got, " ") != want || d.Took != "10s" {
		t.Errorf("%s\n%s\n%s", d.Took, strings.Join(got, " "), want)
	}
	for len(run.Steps) < maxBars+7 {
		run.Steps = append(run.Steps, run.Steps[0])
	}
	if d := newRunData(run, at(100)); len(d.Bars) != maxBars || d.MoreSteps != 7 {
		t.Errorf("%d bars, and %d more", len(d.Bars), d.MoreSteps)
	}
}
