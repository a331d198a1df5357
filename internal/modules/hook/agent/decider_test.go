package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

var (
	coder    = engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "local:cli", Role: engine.RoleOperator}
	reviewer = engine.Principal{ID: "ann", Role: engine.RoleReviewer}
)

// releaseFlow tests, pushes, and deletes if a person allows it.
const releaseFlow = `
name: release
initialState: open
states:
  open: {transitions: {test: testing, remove: {target: removing, requireAssurance: human}}}
  testing: {transitions: {pass: tested, fail: open}}
  removing: {transitions: {removed: open}}
  tested: {transitions: {push: pushing, edit: open}}
  pushing: {transitions: {pushed: done, failed: {target: tested, requiredFields: [code]}}}
  done: {final: true, outcome: success}
`

const releaseRules = `
hooks: {finish: {workflow: release, states: [done], attempts: 2, start: true}}
gates:
  - {tool: "builtin:shell", name: test, when: [{program: make, args: [test]}], workflow: release, states: open, action: test, success: pass, error: fail, start: true}
  - {tool: "builtin:shell", name: push, when: [{program: git, args: [push]}], workflow: release, states: tested, action: push, success: pushed, error: failed}
  - {tool: "builtin:shell", name: rm, when: [{program: rm}], workflow: release, states: open, action: remove, success: removed, error: removed, start: true}
  - {tool: "builtin:edit", when: [{path: "src/**"}], workflow: release, states: open, start: true}
`

func readRules(t testing.TB, text string) (r agent.Rules) {
	t.Helper()
	root, err := document.Parse("gavel.yaml", []byte(text), document.Limits{})
	if err == nil {
		r.Gates, err = gate.ParseConfig(root.Get("gates"))
	}
	if err == nil {
		r.Hooks, err = gate.ParseHooks(root.Get("hooks"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deciderBench is a decider to a real engine, with a project.
type deciderBench struct {
	t      testing.TB
	engine *engine.Engine
	folder string
	rules  agent.Rules
	opened atomic.Int64
	ahead  atomic.Int64 // offset of the engine's clock
	counts sync.Map
	// asked is the Engine that the decider uses: the engine, unless a test replaces it.
	asked agent.Engine
	fault error // the error of opening the engine
	// lexical leaves the names in events unresolved, as on a server.
	lexical bool
	log     strings.Builder
	decider *agent.Decider
}

func newDeciderBench(t testing.TB, rules string) *deciderBench {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &deciderBench{t: t, folder: folder, rules: readRules(t, rules)}
	b.engine = enginetest.New(t, judge.Config{}, func(c *engine.Config) {
		c.ReviewPath, c.Gated = true, b.rules.Gates.PerformedBy
		c.Now = func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	})
	if _, err := b.engine.Define(t.Context(), operator, engine.DefineRequest{Source: "release.yaml", Document: []byte(releaseFlow)}); err != nil {
		t.Fatal(err)
	}
	b.asked = b.engine
	b.decider = agent.NewDecider(agent.DeciderConfig{
		Rules: func() agent.Rules { return b.rules }, Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
		Engine: func(context.Context) (agent.Engine, error) {
			b.opened.Add(1)
			return b.asked, b.fault
		},
		OnAnswer: func(client string, v agent.Verdict) {
			n, _ := b.counts.LoadOrStore(client+" "+string(v), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		},
	})
	return b
}

func (b *deciderBench) event(phase agent.Phase) agent.Event {
	return agent.Event{Client: "claude-code", Phase: phase, Session: "s1", Folder: b.folder}
}

func (b *deciderBench) shell(phase agent.Phase, call, command string) agent.Event {
	e := b.event(phase)
	e.Tool, e.Builtin, e.CallID, e.Command = "Bash", gate.BuiltinShell, call, command
	e.Input = document.ReadTrusted(document.AppendQuote(nil, call)) // differs each time, as descriptions do
	return e
}

func (b *deciderBench) ended(call, command string, how agent.Ended) agent.Event {
	e := b.shell(agent.PhaseAfter, call, command)
	e.Ended = how
	return e
}

func (b *deciderBench) edit(path string) agent.Event {
	e := b.event(agent.PhaseBefore)
	e.Tool, e.Builtin, e.Paths = "Edit", gate.BuiltinEdit, []string{path}
	return e
}

// answer passes an event to the decider, and compares the verdict and parts of the text.
func (b *deciderBench) answer(e agent.Event, want agent.Verdict, parts ...string) agent.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !b.lexical {
		e.Places = agent.FindPlaces(e)
	}
	return b.compare(b.decider.Decide(ctx, coder, e), want, parts...)
}

func (b *deciderBench) compare(a agent.Answer, want agent.Verdict, parts ...string) agent.Answer {
	b.t.Helper()
	if a.Verdict != want {
		b.t.Errorf("%s, want %s: %s %s", a.Verdict, want, a.Reason, a.Context)
	}
	for _, part := range parts {
		if !strings.Contains(a.Reason+a.Context, part) {
			b.t.Errorf("%q is not in: %s %s", part, a.Reason, a.Context)
		}
	}
	return a
}

func (b *deciderBench) at() engine.StatusResult {
	b.t.Helper()
	at, err := b.engine.FindSubject(b.t.Context(), operator, "release", "folder:"+b.folder)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := b.engine.Status(b.t.Context(), operator, at.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

const (
	before = agent.PhaseBefore
	after  = agent.PhaseAfter
)

func TestSession(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStart), agent.Neutral, `is in "open"`, "run `make test`", "edit `src/**`")
	b.answer(b.shell(before, "1", "ls -l"), agent.Neutral)
	b.answer(b.edit("src/a.go"), agent.Neutral)
	b.answer(b.edit("README.md"), agent.Neutral)
	b.answer(b.shell(before, "2", "git push"), agent.Deny, "`git push` needs the state \"tested\"", b.at().ID, "Next: run `make test`.")
	b.answer(b.shell(before, "3", "make test && git push"), agent.Deny, "run `make test`; run `git push`", "one at a time")
	b.answer(b.shell(before, "4", `eval "$X"`), agent.Ask, "It is unclear whether this line involves `make test`")
	b.answer(b.shell(before, "5", "make test"), agent.Neutral)
	b.answer(b.ended("5", "make test", agent.EndedFailed), agent.Neutral, `is in "open"`)
	b.answer(b.shell(before, "6", "make test"), agent.Neutral)
	b.answer(b.ended("6", "make test", agent.EndedOK), agent.Neutral, `is in "tested"`, "run `git push`")
	b.answer(b.ended("6", "make test", agent.EndedFailed), agent.Neutral) // reported twice, with a different result
	b.answer(b.edit("src/a.go"), agent.Deny, "`src/a.go` needs the state \"open\"", "Next: perform the action edit.", "workflow.advance (id "+b.at().ID+"): edit")
	b.answer(b.event(agent.PhaseStop), agent.Continue, `in "tested"`, "Next: run `git push`.")
	b.answer(b.shell(before, "7", "git push"), agent.Neutral)
	b.answer(b.ended("7", "git push", agent.EndedFailed), agent.Neutral, "the action failed that follows was refused", "code")
	if at := b.at(); at.State != "pushing" {
		t.Errorf("after a move that was refused: %+v", at.Position)
	}
	if n, ok := b.counts.Load("claude-code deny"); !ok || n.(*atomic.Int64).Load() != 3 {
		t.Errorf("counted %v", n)
	}
}

// TestNeutralOpensNothing: decisions that need only the configuration do not open the engine.
func TestNeutralOpensNothing(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	unknown := b.event(before)
	unknown.Tool, unknown.Unknown = "Teleport", true
	mcp := b.event(before)
	mcp.Tool = "mcp__gavel__workflow_advance"
	subagent := b.event(agent.PhaseStop)
	subagent.Subagent = true
	for name, e := range map[string]agent.Event{
		"a command of no gate": b.shell(before, "1", "git status"), "its end": b.shell(after, "1", "git status"),
		"a file of no gate": b.edit("README.md"), "a plain use's end": {Client: "x", Phase: after, Folder: b.folder, Tool: "Edit", Builtin: gate.BuiltinEdit, Paths: []string{"src/a"}},
		"another server's tool": mcp, "anything else": b.event(agent.PhaseOther), "a part of the work": subagent,
	} {
		t.Run(name, func(t *testing.T) { b.answer(e, agent.Neutral) })
	}
	b.answer(unknown, agent.Ask, `does not know the tool "Teleport"`, "hooks.unknownTools")
	b.rules.Hooks.UnknownTools = gate.UnknownDeny
	b.answer(unknown, agent.Deny)
	b.rules.Hooks.UnknownTools = gate.UnknownNeutral
	b.answer(unknown, agent.Neutral)
	b.rules = agent.Rules{}
	b.rules.Hooks.UnknownTools = gate.UnknownDeny
	for _, e := range []agent.Event{unknown, b.event(agent.PhaseStart), b.event(agent.PhaseStop), b.shell(before, "1", "git push")} {
		b.answer(e, agent.Neutral) // no gate on a builtin tool, and no finish
	}
	if n := b.opened.Load(); n != 0 {
		t.Errorf("the engine was opened %d times", n)
	}
}

// brokenEngine fails in the functions that a test sets.
type brokenEngine struct {
	agent.Engine
	begin  func(context.Context, engine.CallRequest) (engine.CallResult, error)
	status func(context.Context) error
}

func (e brokenEngine) BeginCall(ctx context.Context, p engine.Principal, req engine.CallRequest) (engine.CallResult, error) {
	if e.begin != nil {
		return e.begin(ctx, req)
	}
	return e.Engine.BeginCall(ctx, p, req)
}

func (e brokenEngine) Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error) {
	if e.status != nil {
		if err := e.status(ctx); err != nil {
			return engine.StatusResult{}, err
		}
	}
	return e.Engine.Status(ctx, p, id)
}

// TestFailuresDeny: events that should have been decided and could not are denied, for any reason.
func TestFailuresDeny(t *testing.T) {
	t.Parallel()
	gone := &engine.Error{Code: engine.CodeUnavailable, Message: "The store cannot be written.", Hint: "Look at the disk.", Err: errors.New("disk I/O error")}
	begin := func(err error) func(b *deciderBench) {
		return func(b *deciderBench) {
			b.asked = brokenEngine{Engine: b.engine, begin: func(context.Context, engine.CallRequest) (engine.CallResult, error) { return engine.CallResult{}, err }}
		}
	}
	for _, c := range []struct {
		name string
		harm func(b *deciderBench)
		want string
	}{
		{"the store cannot be opened", func(b *deciderBench) { b.fault = errors.New("there is no store at x") }, "there is no store at x."},
		{"the store fails", begin(gone), "The store cannot be written. Look at the disk."},
		{"evidence is being fetched", begin(&engine.Error{Code: engine.CodeBusy, Message: "tests is still running; try again in 7 s."}), "tests is still running; try again in 7 s."},
		{"a crash", func(b *deciderBench) {
			b.asked = brokenEngine{Engine: b.engine, begin: func(context.Context, engine.CallRequest) (engine.CallResult, error) { panic("oh") }}
		}, "gavel crashed while it decided"},
		{"no engine", func(b *deciderBench) { b.asked = nil }, "gavel crashed while it decided"},
		{"a slow store", func(b *deciderBench) {
			b.asked = brokenEngine{Engine: b.engine, status: func(ctx context.Context) error {
				<-b.t.Context().Done() // does not notice that the caller is gone
				return ctx.Err()
			}}
		}, "The client's time limit for hooks was exceeded."},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newDeciderBench(t, releaseRules)
			b.t = t
			b.answer(b.event(agent.PhaseStart), agent.Neutral)
			c.harm(b)
			limit := time.Minute
			if c.name == "a slow store" {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			b.compare(b.decider.Decide(ctx, coder, b.shell(before, "1", "make test")), agent.Deny, c.want)
		})
	}
}

// TestFailuresOfOtherPhases: a failure refuses a stop only once. Otherwise it would hold an agent forever
// that can do nothing about it.
func TestFailuresOfOtherPhases(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.fault = errors.New("the store is gone")
	stop := b.event(agent.PhaseStop)
	b.answer(stop, agent.Continue, "the store is gone.", "gavel hook doctor claude-code")
	stop.Continued = true
	b.answer(stop, agent.Neutral)
	b.answer(b.event(agent.PhaseStart), agent.Neutral, "the store is gone.")
	b.answer(b.ended("1", "make test", agent.EndedOK), agent.Neutral, "the store is gone.")
	if !strings.Contains(b.log.String(), "a hook could not be answered") {
		t.Error("nobody is told")
	}
}

// TestALateAnswerIsTakenBack: a call that was begun for a late answer is undone.
func TestALateAnswerIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStart), agent.Neutral)
	ctx, cancel := context.WithCancelCause(t.Context())
	answered := make(chan struct{})
	b.asked = brokenEngine{Engine: b.engine, begin: func(ctx context.Context, req engine.CallRequest) (engine.CallResult, error) {
		cancel(context.DeadlineExceeded)
		<-answered
		return b.engine.BeginCall(context.WithoutCancel(ctx), coder, req)
	}}
	b.compare(b.decider.Decide(ctx, coder, b.shell(before, "1", "make test")), agent.Deny, "time")
	close(answered)
	b.decider.Wait()
	if s := b.at(); len(s.Calls) != 0 || s.State != "open" || s.Revision != 3 { // the call was begun, and failed
		t.Errorf("it stays: %+v %+v", s.Position, s.Calls)
	}
}

// TestAnOpenCall: while a call is open, nothing else is allowed. A repeated request for the same use gets
// the same answer.
func TestAnOpenCall(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStart), agent.Neutral)
	b.answer(b.shell(before, "1", "make test"), agent.Neutral)
	b.answer(b.shell(before, "1", "make test"), agent.Neutral)
	wait := []string{"You began to run `make test`", "the outcome counts as unknown"}
	b.answer(b.shell(before, "2", "make test"), agent.Deny, wait...)
	b.answer(b.shell(before, "", "make test"), agent.Deny, wait...)
	b.answer(b.shell(before, "3", "git push"), agent.Deny, wait...)
	b.answer(b.shell(before, "1", "git push"), agent.Deny, wait...) // a reused id does not permit another use
	b.answer(b.shell(before, "1", "make test FORCE=1"), agent.Deny, wait...)
	b.answer(b.edit("src/a.go"), agent.Deny, wait...)
	patch := b.shell(before, "4", "apply_patch")
	patch.Paths = []string{"src/a.go"}
	b.answer(patch, agent.Deny, wait...)
	other := b.shell(before, "1", "make test")
	other.Session = "s2"
	b.answer(other, agent.Deny, wait...)
	b.answer(b.ended("2", "make test", agent.EndedOK), agent.Neutral) // that one never began
	b.answer(b.ended("1", "git push", agent.EndedOK), agent.Neutral)
	if s := b.at(); s.State != "testing" || len(s.Calls) != 1 {
		t.Errorf("%+v %+v", s.Position, s.Calls)
	}
	b.answer(b.ended("1", "make test", agent.EndedNotRun), agent.Neutral, `is in "open"`)

	noID := b.ended("", "make test", agent.EndedOK)
	b.answer(noID, agent.Neutral)
	b.answer(b.shell(before, "", "make test"), agent.Neutral)
	b.answer(noID, agent.Neutral, `is in "tested"`)
}

// TestAnEndThatIsNeverReported: a use without a reported end becomes unknown after its deadline, and a
// person decides what happened.
func TestAnEndThatIsNeverReported(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.ahead.Store(-int64(time.Hour)) // begun an hour ago
	b.answer(b.shell(before, "1", "make test"), agent.Neutral)
	b.ahead.Store(0)
	b.answer(b.edit("src/a.go"), agent.Deny, `in "testing"`)
	s := b.at()
	if len(s.Calls) != 1 || !s.Calls[0].Unknown || s.Calls[0].ReviewID == "" {
		t.Fatalf("%+v", s.Calls)
	}
	if _, err := b.engine.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: s.Calls[0].ReviewID, Decision: judge.Approve, Reason: "I saw it pass.", Channel: record.ChannelCLI}); err != nil {
		t.Fatal(err)
	}
	if s := b.at(); s.State != "tested" {
		t.Errorf("%+v", s.Position)
	}
}

// TestAPersonDecides: a use that needs a person's decision is denied until it is decided.
func TestAPersonDecides(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	a := b.answer(b.shell(before, "1", "rm -rf build"), agent.Deny, "a person has to decide first", "gavel review show rev-", "Do the same again")
	id := a.Reason[strings.Index(a.Reason, "rev-"):]
	id = id[:strings.IndexAny(id, ". ")]
	b.answer(b.shell(before, "2", "rm -rf build"), agent.Deny, id)
	if _, err := b.engine.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: id, Decision: judge.Approve, Reason: "Fine.", Channel: record.ChannelCLI}); err != nil {
		t.Fatal(err)
	}
	b.answer(b.shell(before, "3", "rm -rf /"), agent.Deny, "a person has to decide first") // a different use
	b.answer(b.shell(before, "4", "rm -rf build"), agent.Neutral)
	b.answer(b.ended("4", "rm -rf build", agent.EndedOK), agent.Neutral, `is in "open"`)
}

// TestParallelEdits: edits that a gate allows are not recorded, and run concurrently.
func TestParallelEdits(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStart), agent.Neutral)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { b.answer(b.edit(fmt.Sprintf("src/%d.go", i)), agent.Neutral) })
	}
	all.Wait()
	if s := b.at(); s.Seq != 1 {
		t.Errorf("%d events were recorded", s.Seq-1)
	}
}

// TestStop: a stop is refused until the work is done, or until a person is informed after several attempts.
func TestStop(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStop), agent.Neutral) // no workflow was started
	b.answer(b.event(agent.PhaseStart), agent.Neutral)
	stop := b.event(agent.PhaseStop)
	b.answer(stop, agent.Continue, `may end in "done"`, "Next: run `make test`.")
	stop.Continued = true
	b.answer(stop, agent.Continue)
	b.answer(stop, agent.Neutral, `ends early, with the workflow "release" in "open", after 2 refused stops`, "gavel review show rev-") // the third attempt
	if s := b.at(); len(s.Reviews) != 1 {
		t.Errorf("nobody is told: %+v", s.Reviews)
	}
	for _, command := range []string{"make test", "git push"} {
		b.answer(b.shell(before, command, command), agent.Neutral)
		b.answer(b.ended(command, command, agent.EndedOK), agent.Neutral)
	}
	b.answer(b.event(agent.PhaseStop), agent.Neutral)
}

// TestFolders: a repository that an agent creates inside the project does not leave its workflow.
func TestFolders(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	inner := filepath.Join(b.folder, "src", "x")
	for _, folder := range []string{b.folder, inner} {
		if err := os.MkdirAll(filepath.Join(folder, ".git"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.answer(b.event(agent.PhaseStart), agent.Neutral)
	e := b.shell(before, "1", "git push")
	e.Folder = inner
	b.answer(e, agent.Deny, b.at().ID)
	b.rules.Hooks.Instance = gate.InstanceSession
	b.answer(b.shell(before, "2", "git push"), agent.Deny, `type "release", subject "session:claude-code:s1"`)
	b.answer(b.shell(before, "3", "make test"), agent.Neutral) // starts one
	b.answer(b.ended("3", "make test", agent.EndedOK), agent.Neutral, `is in "tested"`)
	other := b.shell(before, "4", "git push")
	other.Session = "s2"
	b.answer(other, agent.Deny, `subject "session:claude-code:s2"`)
	if b.at().State != "open" {
		t.Error("the folder's moved")
	}
}

// TestSessionStaysInItsProject: after changing the working folder, a session remains in the project in which
// it began.
func TestSessionStaysInItsProject(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStart), agent.Neutral, `is in "open"`)
	b.answer(b.shell(before, "1", "make test"), agent.Neutral)
	b.answer(b.ended("1", "make test", agent.EndedOK), agent.Neutral, `is in "tested"`)
	elsewhere := t.TempDir()
	there := func(e agent.Event) agent.Event {
		e.Project, e.Folder = b.folder, elsewhere
		return e
	}
	b.answer(there(b.edit(filepath.Join(b.folder, "src/a.go"))), agent.Deny, `is in "tested"`)
	b.answer(there(b.shell(before, "2", "chmod -R a+x "+b.folder)), agent.Ask, `is in "tested"`) // src may be inside
	e := b.event(agent.PhaseStop)
	e.Project, e.Folder = b.folder, elsewhere
	b.answer(e, agent.Continue, "`git push`")
}

// TestArguments: of a shell line, only the line and its folder are judged and shown to a person.
func TestArguments(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, `gates: [{tool: "builtin:shell", workflow: release, states: open, maxCalls: 9, start: true}, {tool: "builtin:edit", workflow: release, states: open, maxCalls: 9, start: true}]`)
	var got string
	b.asked = brokenEngine{Engine: b.engine, begin: func(_ context.Context, req engine.CallRequest) (engine.CallResult, error) {
		got = string(req.Arguments)
		return engine.CallResult{Answer: engine.CallGo}, nil
	}}
	edit := b.edit("src/a.go")
	edit.Input = document.ReadTrusted([]byte(`{"new_string":"b","n":1.50}`))
	for want, e := range map[string]agent.Event{
		`{"tool":"Bash","command":"make a && b","folder":"` + b.folder + `"}`:                                  b.shell(before, "1", "make a && b"),
		`{"tool":"Edit","paths":["src/a.go"],"folder":"` + b.folder + `","input":{"new_string":"b","n":1.50}}`: edit,
	} {
		if b.answer(e, agent.Neutral); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestFoldersMadeAround: the same holds for a repository around the project, even with its own workflow.
func TestFoldersMadeAround(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	outer := b.folder
	b.folder = filepath.Join(outer, "project")
	if err := os.MkdirAll(filepath.Join(b.folder, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.answer(b.event(agent.PhaseStart), agent.Neutral, `is in "open"`)
	b.answer(b.shell(before, "1", "make test"), agent.Neutral)
	b.answer(b.ended("1", "make test", agent.EndedOK), agent.Neutral, `is in "tested"`)
	if err := os.Mkdir(filepath.Join(outer, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := b.engine.Start(t.Context(), coder, engine.StartRequest{Type: "release", Subject: "folder:" + outer}); err != nil {
		t.Fatal(err)
	}
	b.answer(b.edit(filepath.Join(b.folder, "src/a.go")), agent.Deny, b.at().ID)
}

// TestUnknownLines: a line that may belong to a gate is asked about, denied or allowed, as the gate
// configures. If the state allows the use and nothing needs recording, there is no question.
func TestUnknownLines(t *testing.T) {
	t.Parallel()
	const rules = `gates: [{tool: "builtin:shell", when: [{program: git, args: [push]}], workflow: release, states: STATE, start: true, unknown: ANSWER}]`
	for _, c := range []struct {
		state, answer, line string
		want                agent.Verdict
	}{
		{"tested", "ask", "$x push", agent.Ask},
		{"tested", "deny", "$x push", agent.Deny},
		{"tested", "allow", "$x push", agent.Neutral},
		{"tested", "allow", "git push", agent.Deny},
		{"open", "ask", "$x push", agent.Neutral},
		{"open", "deny", "git $x", agent.Neutral},
		{"tested", "ask", "source .venv/bin/activate && pytest", agent.Neutral},
		{"tested", "ask", "x=$(cat y); make $x", agent.Neutral},
	} {
		b := newDeciderBench(t, strings.NewReplacer("STATE", "open", "ANSWER", c.answer).Replace(rules))
		b.answer(b.shell(before, "0", "git push"), agent.Neutral) // starts the workflow
		b.rules = readRules(t, strings.NewReplacer("STATE", c.state, "ANSWER", c.answer).Replace(rules))
		var parts []string
		if c.want == agent.Ask {
			parts = []string{"`git push`", `needs the state "tested"`, b.at().ID}
		}
		b.answer(b.shell(before, "1", c.line), c.want, parts...)
	}
}

// TestOnlyTheCommandItselfSettles: a line settles a gate only if it consists of that command. Other lines
// may run, with a note.
func TestOnlyTheCommandItselfSettles(t *testing.T) {
	t.Parallel()
	const flow = "name: release\ninitialState: open\nstates:\n  open: {transitions: {pass: tested}}\n  tested: {transitions: {push: pushing}}\n  pushing: {transitions: {pushed: done}}\n  done: {final: true}\n"
	b := newDeciderBench(t, `
hooks: {finish: {workflow: release, states: done, start: true}}
gates:
  - {tool: "builtin:shell", name: test, workflow: release, states: open, success: pass, when: [{program: make, args: [test]}]}
  - {tool: "builtin:shell", name: push, workflow: release, states: tested, action: push, success: pushed, when: [{program: git, args: [push]}]}
`)
	if _, err := b.engine.Define(t.Context(), operator, engine.DefineRequest{Source: "release.yaml", Document: []byte(flow)}); err != nil {
		t.Fatal(err)
	}
	b.answer(b.event(agent.PhaseStart), agent.Neutral, `is in "open"`)
	for i, line := range []string{
		"make test || true", "make test; true", "false && make test; true", "if false; then make test; fi", "make -n test", "make test -q || :", "make --version test",
		"make -t test", "make test 2>&1 | tail -5", "(make test &) ; sleep 0", "make -i test", "make -f /dev/null test || true", "f(){ make test; }; true",
		"true || make test", "case x in y) make test;; esac", `sh -c "exit 0; make test"`, `echo "$(make test)"`, "timeout 0.001 make test || true",
		"make test SHELL=true", "make -n test && cd /",
	} {
		id := fmt.Sprint(i)
		b.answer(b.shell(before, id, line), agent.Neutral, "does not count as `make test`", "Run `make test` alone")
		b.answer(b.ended(id, line, agent.EndedOK), agent.Neutral)
		if s := b.at(); s.State != "open" || len(s.Calls) != 0 {
			t.Errorf("%s: %s, %+v", line, s.State, s.Calls)
		}
	}
	b.answer(b.ended("never begun", "make test", agent.EndedOK), agent.Neutral)
	const line = "set -o pipefail && make test 2>&1 | tail -20"
	b.answer(b.shell(before, "p", line), agent.Neutral)
	b.answer(b.ended("p", line, agent.EndedOK), agent.Neutral, `is in "tested"`)
	b.answer(b.shell(before, "q", "git commit -m x && git push"), agent.Deny, "`git push` was not run", "Run `git push` alone")
	b.answer(b.shell(before, "r", "git push --dry-run"), agent.Deny, "Run `git push` alone")
	b.answer(b.shell(before, "s", "git push -u origin main"), agent.Neutral)
	b.answer(b.ended("s", "git push -u origin main", agent.EndedOK), agent.Neutral, `has ended in "done"`)
}

// TestWorktreeIsTheSameProject: a linked worktree uses the workflow of its repository.
func TestWorktreeIsTheSameProject(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	main, beside := filepath.Join(b.folder, "main"), filepath.Join(b.folder, "beside")
	admin := filepath.Join(main, ".git", "worktrees", "beside")
	for _, folder := range []string{admin, beside} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{filepath.Join(beside, ".git"): "gitdir: " + admin, filepath.Join(admin, "gitdir"): filepath.Join(beside, ".git")} {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.folder = main
	b.answer(b.event(agent.PhaseStart), agent.Neutral, `is in "open"`)
	b.answer(b.shell(before, "1", "make test"), agent.Neutral)
	b.answer(b.ended("1", "make test", agent.EndedOK), agent.Neutral, `is in "tested"`)
	b.answer(b.edit(filepath.Join(beside, "src", "a.go")), agent.Deny, `is in "tested"`, b.at().ID)
	b.answer(b.shell(before, "2", "git -C "+beside+" push"), agent.Neutral)
	b.answer(b.ended("2", "git -C "+beside+" push", agent.EndedFailed), agent.Neutral)
	there := b.shell(before, "3", "git push")
	there.Folder, there.Project = beside, beside
	b.answer(there, agent.Deny, b.at().ID)
}

// TestProjects: a permission in one project does not apply to another.
func TestProjects(t *testing.T) {
	t.Parallel()
	for _, lexical := range []bool{false, true} {
		b := newDeciderBench(t, releaseRules)
		b.lexical = lexical
		a, other := filepath.Join(b.folder, "a"), filepath.Join(b.folder, "b")
		for _, folder := range []string{a, other} {
			if err := os.MkdirAll(filepath.Join(folder, ".git"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		in := func(folder string, e agent.Event) agent.Event {
			e.Folder, e.Project = folder, folder
			return e
		}
		b.answer(in(a, b.event(agent.PhaseStart)), agent.Neutral, `is in "open"`)
		b.answer(in(a, b.shell(before, "1", "make test")), agent.Neutral)
		b.answer(in(a, b.ended("1", "make test", agent.EndedOK)), agent.Neutral, `is in "tested"`)
		lines := []string{"git -C " + other + " push", "cd " + other + " && git push", "git --git-dir=" + other + "/.git push", "GIT_DIR=" + other + "/.git git push", "cd .. && git -C b push"}
		for i, line := range lines {
			b.answer(in(a, b.shell(before, fmt.Sprint("n", i), line)), agent.Deny, "which has no workflow release", "Start a session in that folder", a)
		}
		b.answer(in(a, b.shell(before, "u", `cd "$x" && git push`)), agent.Deny, "Write it as a literal path")
		b.answer(in(other, b.event(agent.PhaseStart)), agent.Neutral, `is in "open"`)
		for i, line := range lines {
			b.answer(in(a, b.shell(before, fmt.Sprint("o", i), line)), agent.Deny, `is in "open"`)
		}
		b.answer(in(other, b.shell(before, "2", "git -C "+a+" push")), agent.Neutral) // it applies to that project
		b.answer(in(other, b.ended("2", "git -C "+a+" push", agent.EndedFailed)), agent.Neutral)
		edit := b.edit(filepath.Join(other, "src", "x"))
		b.answer(in(a, edit), agent.Neutral) // the workflow is open there
	}
}
