package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ops is a server whose tools record their effects.
type ops struct {
	mu   sync.Mutex
	done []string
	ids  []string // the ids of the calls
}

func (o *ops) effects() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.done, " ")
}

// serve returns the address of the server, which answers once open is closed.
func (o *ops) serve(t *testing.T, open <-chan struct{}) string {
	t.Helper()
	s := server.NewMCPServer("ops", "1", server.WithToolCapabilities(true))
	for _, name := range []string{"authenticate", "validate", "deploy", "reset", "write", "publish", "correct"} {
		s.AddTool(mcp.NewTool(name, mcp.WithString("path"), mcp.WithBoolean("fail")), func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.done = append(o.done, name)
			raw, _ := json.Marshal(req.Params.Meta)
			o.ids = append(o.ids, string(raw))
			if req.GetBool("fail", false) {
				return mcp.NewToolResultError("it failed"), nil
			}
			return mcp.NewToolResultText("done"), nil
		})
	}
	endpoint := server.NewStreamableHTTPServer(s)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-open
		endpoint.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL + "/mcp"
}

const gatesFile = `
upstreams:
  ops: {url: "%URL%", privateNetwork: true, pinning: first-use, allow: [{tools: ["*"]}]}
gates:
  - {tool: ops__authenticate, workflow: release, states: idle, action: authenticate}
  - {tool: ops__validate, workflow: release, states: ready, action: check, success: valid, error: invalid}
  - {tool: ops__deploy, workflow: release, states: validated, action: deploy, success: deployed, error: failed}
  - {tool: ops__reset, workflow: release, states: error, success: reset}
  - {tool: ops__write, workflow: change, states: approved, bind: {/path: /path}, maxCalls: 2, maxArguments: 100, list: legal}
  - {tool: ops__publish, workflow: publication, states: open, subject: "{{arguments.path}}", start: true, maxCalls: 1, list: legal}
  - {tool: ops__correct, workflow: publication, states: open, subject: "{{arguments.path}}", success: finish}
`

const releaseFlow = `
name: release
initialState: idle
states:
  idle: {transitions: {authenticate: ready}}
  ready: {transitions: {check: validating}}
  validating: {transitions: {valid: validated, invalid: error}}
  validated: {transitions: {deploy: deploying}}
  deploying: {transitions: {deployed: deployed, failed: error}}
  error: {transitions: {reset: idle}}
  deployed: {final: true, outcome: success}
`

const changeFlow = `
name: change
initialState: draft
states:
  draft: {transitions: {approve: {target: approved, requiredFields: [path], freezes: [/path]}}}
  approved: {transitions: {again: draft, finish: finished}}
  finished: {final: true}
`

const publicationFlow = `
name: publication
initialState: open
states:
  open: {transitions: {finish: published}}
  published: {final: true, outcome: success}
`

// gated is a system whose gateway leads to ops.
type gated struct {
	*gavel.System
	t       *testing.T
	gateway wire.Foreign
	ops     ops
}

func openGated(t *testing.T) *gated {
	t.Helper()
	g := &gated{t: t}
	dir, open := t.TempDir(), make(chan struct{})
	files := map[string]string{"gavel.yaml": strings.Replace(gatesFile, "%URL%", g.ops.serve(t, open), 1), "release.yaml": releaseFlow, "change.yaml": changeFlow, "publication.yaml": publicationFlow}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	cfg := gavel.Config{File: filepath.Join(dir, "gavel.yaml"), Version: "1", Definitions: []string{filepath.Join(dir, "release.yaml"), filepath.Join(dir, "change.yaml"), filepath.Join(dir, "publication.yaml")}}
	cfg.Configure = func(c *engine.Config) { c.FeedPoll = 10 * time.Millisecond }
	if g.System, err = gavel.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	g.gateway = g.Extensions().Foreign()
	learned := g.gateway.Changed(ann, wire.Tool)
	close(open)
	if <-learned; !slices.Contains(g.tools(ann), "ops__deploy") {
		t.Fatalf("ann sees %v", g.tools(ann))
	}
	return g
}

var (
	ann = engine.Principal{ID: "ann", Role: engine.RoleAgent}
	bob = engine.Principal{ID: "bob", Role: engine.RoleAgent}
)

func (g *gated) tools(p engine.Principal) (names []string) {
	for _, item := range g.gateway.List(p, wire.Tool) {
		names = append(names, item.Name)
	}
	return names
}

func (g *gated) start(p engine.Principal, workflow string) string {
	g.t.Helper()
	r, err := g.Engine.Start(g.t.Context(), p, engine.StartRequest{Type: workflow})
	if err != nil {
		g.t.Fatal(err)
	}
	return r.ID
}

func (g *gated) advance(p engine.Principal, id, action, data string) error {
	_, err := g.Engine.Advance(g.t.Context(), p, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))})
	return err
}

// call returns the code and the hint if the call was refused, or else the state after it.
func (g *gated) call(p engine.Principal, tool, id, more string) string {
	g.t.Helper()
	return g.callWith(p, tool, `{"workflowId":"`+id+`"`+more+`}`)
}

func (g *gated) callWith(p engine.Principal, tool, arguments string) string {
	g.t.Helper()
	params := `{"arguments":` + arguments + `}`
	r, err := g.gateway.Ask(g.t.Context(), p, wire.Request{Method: "tools/call", Kind: wire.Tool, Name: tool, Params: json.RawMessage(params)})
	if err != nil {
		g.t.Fatal(err)
	}
	result := document.ReadTrusted(r.Result)
	if at := result.At("_meta", "io.github.gavel-mcp/workflow", "state"); at.Kind() != 0 {
		return at.Text()
	}
	failed := document.ReadTrusted([]byte(result.At("content", "0", "text").Text())).Get("error")
	if failed.Get("code").Is("gate_closed") {
		return "gate_closed: " + failed.Get("hint").Text()
	}
	return failed.Get("code").Text() + ": " + failed.Get("message").Text()
}

// The walkthrough: no call works out of order, an error blocks the workflow until it is reset, and refused calls have
// no effect.
func TestGatesOfARelease(t *testing.T) {
	t.Parallel()
	g := openGated(t)
	id := g.start(ann, "release")
	for _, c := range []struct{ tool, more, want string }{
		{"ops__deploy", "", "gate_closed: Next: call ops__authenticate."},
		{"ops__authenticate", "", "ready"},
		{"ops__deploy", "", "gate_closed: Next: call ops__validate."},
		{"ops__validate", "", "validated"},
		{"ops__deploy", `,"fail":true`, "error"},
		{"ops__deploy", "", "gate_closed: Next: call ops__reset."},
		{"ops__validate", "", "gate_closed: Next: call ops__reset."},
		{"ops__reset", "", "idle"},
		{"ops__authenticate", "", "ready"},
		{"ops__validate", "", "validated"},
		{"ops__deploy", "", "deployed"},
		{"ops__deploy", "", "gate_closed: Start another one with workflow.start."},
	} {
		if got := g.call(ann, c.tool, id, c.more); got != c.want {
			t.Errorf("%s: %s, want %s", c.tool, got, c.want)
		}
	}
	if got := g.ops.effects(); got != "authenticate validate deploy reset authenticate validate deploy" {
		t.Errorf("done: %s", got)
	}
	slices.Sort(g.ops.ids)
	if ids := slices.Compact(g.ops.ids); len(ids) != 7 || !strings.Contains(ids[0], "call-") {
		t.Errorf("ids of calls: %s", g.ops.ids)
	}
	other := g.start(ann, "release")
	if at, err := g.Engine.Status(t.Context(), ann, other); err != nil || len(at.NextActions)+len(at.Next) != 0 || !slices.Equal(at.NextTools, []string{"ops__authenticate"}) || at.Progress != `Started in "idle". Tools: ops__authenticate.` {
		t.Errorf("what is possible: %+v, %v", at.Position, err)
	}
	if err := g.advance(ann, other, "authenticate", "{}"); engine.CodeOf(err) != engine.CodeGatedAction {
		t.Errorf("an action of a gate: %v", err)
	}
	if got := g.call(bob, "ops__authenticate", other, ""); !strings.HasPrefix(got, "unknown_instance: ") {
		t.Errorf("somebody else's handle: %s", got)
	}
}

// A write succeeds only with the approved content, and only as often as approved. The list changes for the owner alone.
func TestGatesOfAChange(t *testing.T) {
	t.Parallel()
	g := openGated(t)
	id := g.start(ann, "change")
	if slices.Contains(g.tools(ann), "ops__write") {
		t.Error("it is listed before the approval")
	}
	anns, bobs := g.gateway.Changed(ann, wire.Tool), g.gateway.Changed(bob, wire.Tool)
	if err := g.advance(ann, id, "approve", `{"path":"a.txt"}`); err != nil {
		t.Fatal(err)
	}
	<-anns
	select {
	case <-bobs:
		t.Error("bob was told")
	default:
	}
	if !slices.Contains(g.tools(ann), "ops__write") || slices.Contains(g.tools(bob), "ops__write") {
		t.Errorf("ann sees %v, bob %v", g.tools(ann), g.tools(bob))
	}
	refused := func(more string) {
		t.Helper()
		if got := g.call(ann, "ops__write", id, more); !strings.HasPrefix(got, "call_refused: ") {
			t.Errorf("%s: %s", more, got)
		}
	}
	refused(`,"path":"b.txt"`)
	refused("")
	if got := g.call(ann, "ops__write", id, `,"path":"a.txt","note":"`+strings.Repeat("x", 100)+`"`); !strings.HasPrefix(got, "too_large: ") {
		t.Error(got)
	}
	for range 2 {
		if got := g.call(ann, "ops__write", id, `,"path":"a.txt"`); got != "approved" {
			t.Error(got)
		}
	}
	refused(`,"path":"a.txt"`)
	anns = g.gateway.Changed(ann, wire.Tool)
	if err := g.advance(ann, id, "finish", "{}"); err != nil {
		t.Fatal(err)
	}
	<-anns
	if got := g.call(ann, "ops__write", id, `,"path":"a.txt"`); got != "gate_closed: Start another one with workflow.start." {
		t.Error(got)
	}
	if got := g.ops.effects(); got != "write write" {
		t.Errorf("done: %s", got)
	}
}

// A subject has one running workflow, which the first call begins. Cancelling it gives no second allowance. An operator
// can give one, and so does a successful end.
func TestGatesFindTheirWorkflow(t *testing.T) {
	t.Parallel()
	g := openGated(t)
	const a, b = `{"path":"a.txt"}`, `{"path":"b.txt"}`
	call := func(p engine.Principal, tool, arguments, want string) {
		t.Helper()
		if got := g.callWith(p, tool, arguments); !strings.HasPrefix(got, want) {
			t.Errorf("%s calls %s with %s: %s, want %s", p.ID, tool, arguments, got, want)
		}
	}
	find := func() string {
		t.Helper()
		at, err := g.Engine.FindSubject(t.Context(), ann, "publication", "a.txt")
		if err != nil {
			t.Fatal(err)
		}
		return at.ID
	}
	if !slices.Contains(g.tools(ann), "ops__publish") {
		t.Error("a tool that begins its workflow is not listed")
	}
	call(ann, "ops__correct", a, `gate_closed: Start it first with workflow.start: type "publication", subject "a.txt".`)
	call(ann, "ops__publish", `{}`, "invalid_argument: The arguments must say which publication the call belongs to")
	var all sync.WaitGroup
	for i := range 4 { // exactly one of them is the first
		all.Go(func() { g.callWith(ann, "ops__publish", `{"path":"a.txt","n":`+strconv.Itoa(i)+`}`) })
	}
	all.Wait()
	if r, err := g.Engine.Instances(t.Context(), ann, engine.InstancesRequest{Workflow: "publication"}); err != nil || r.Count != 1 || g.ops.effects() != "publish" {
		t.Errorf("%d workflows, done: %s, %v", r.Count, g.ops.effects(), err)
	}
	call(ann, "ops__publish", a, "call_refused")
	call(bob, "ops__publish", a, `forbidden: The instance of "publication" with the subject "a.txt" belongs to another principal.`)
	call(bob, "ops__publish", b, "open")
	first := find()
	if _, err := g.Engine.Cancel(t.Context(), ann, engine.CancelRequest{ID: first}); err != nil {
		t.Fatal(err)
	}
	call(ann, "ops__publish", a, "gate_closed: If it has to be done again, ask an operator to release it.")
	if _, err := g.Engine.ReleaseSubject(t.Context(), gavel.Operator, engine.ReleaseRequest{ID: first, Reason: "Looked at."}); err != nil {
		t.Fatal(err)
	}
	call(ann, "ops__publish", a, "open")
	call(ann, "ops__publish", a, "call_refused")
	if second := find(); second == first {
		t.Error("a released workflow was found")
	}
	call(ann, "ops__correct", a, "published")
	call(ann, "ops__publish", a, "open")
	if got := g.ops.effects(); got != "publish publish publish correct publish" {
		t.Errorf("done: %s", got)
	}
}

// A reload is rejected if a gate of the file does not fit the definitions; the previous gates stay.
func TestGatesAreReloadedWhole(t *testing.T) {
	t.Parallel()
	g := openGated(t)
	file := filepath.Join(t.TempDir(), "gavel.yaml")
	for _, c := range []struct{ gates, want string }{
		{"- {tool: ops__deploy, workflow: release, states: validatd}", `:5:50: /gates/0/states: the workflow release has no state "validatd"; did you mean "validated"?`},
		{"- {tool: ops__deploy, workflow: releas, states: validated}", `: no operator has defined the workflow "releas"; did you mean "release"?`},
		{"- {tool: op__deploy, workflow: release, states: validated}", `: there is no upstream "op"; did you mean "ops"?`},
		{"- {tool: ops__deploy, workflow: release, states: validated, aktion: deploy}", `unknown key "aktion"; did you mean "action"?`},
	} {
		text := "upstreams:\n  ops: {command: [x]}\n\ngates:\n" + c.gates + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Extensions().Parts()[0].Prepare(t.Context(), &module.Change{File: read}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.gates, err)
		}
	}
	if got := g.call(ann, "ops__deploy", g.start(ann, "release"), ""); got != "gate_closed: Next: call ops__authenticate." {
		t.Errorf("after all that: %s", got)
	}
}
