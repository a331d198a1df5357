package face_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/expose"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// fakeChains has the run "r" of "tour" in the state now.
type fakeChains struct {
	chain.Chains

	now   chain.RunView
	later []chain.RunStep // the steps after the cursor of now
	ended chan struct{}
	asked []string
}

func init() {
	extra.tools = []string{"chain.list", "chain.start", "chain.status", "chain.result", "chain.cancel"}
	extra.option = withChains(nil)
}

func withChains(c chain.Chains) option {
	return func(cfg *face.Config) { cfg.Services = services(c) }
}

func services(c chain.Chains) map[string]any {
	if c == nil {
		c = &fakeChains{}
	}
	return map[string]any{chain.ServiceName: chain.Source(func(context.Context, bool) (chain.Chains, error) { return c, nil })}
}

func (f *fakeChains) ListProcedures(ctx context.Context, p engine.Principal) (all []operation.Procedure, err error) {
	list, err := f.ListChains(ctx, p)
	for _, v := range list {
		one := (&chain.Definition{Name: v.Name, Description: v.Description}).Procedure()
		one.InputSchema = v.InputSchema
		all = append(all, one)
	}
	return all, err
}

func (f *fakeChains) ListChains(_ context.Context, p engine.Principal) ([]chain.ChainView, error) {
	if !p.InScope("chain.tour") {
		return nil, nil
	}
	return []chain.ChainView{{Name: "tour", Description: "A tour.", Hash: "sha256:0", Steps: 2, InputSchema: json.RawMessage(`{"type":"object","properties":{"who":{"type":"string"}}}`)}}, nil
}

func (f *fakeChains) StartRun(_ context.Context, _ engine.Principal, req chain.StartRun) (chain.RunView, error) {
	if req.Run != "" && strings.Contains(string(req.Input), "eve") {
		return chain.RunView{}, &engine.Error{Code: engine.CodeKeyReused, Path: "/run", Message: "The id is that of a run with another input."}
	}
	f.asked = append(f.asked, fmt.Sprintf("start %s %q %s", req.Chain, req.Run, req.Input))
	return f.now, nil
}

func (f *fakeChains) ReadNewSteps(_ context.Context, _ engine.Principal, run, cursor string) (chain.RunView, error) {
	if run != "r" {
		return chain.RunView{}, &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no such run."}
	}
	v := f.now
	if cursor != "" && cursor == v.NextCursor {
		v.Steps = f.later
	}
	return v, nil
}

func (f *fakeChains) WaitRun(ctx context.Context, p engine.Principal, run string) (chain.RunView, error) {
	if _, err := f.ReadNewSteps(ctx, p, run, ""); err != nil {
		return chain.RunView{}, err
	}
	select {
	case <-ctx.Done():
		return chain.RunView{}, ctx.Err()
	case <-f.ended:
		v := f.now
		v.Status, v.Output = chain.StatusDone, json.RawMessage(`{"n":1.50}`)
		return v, nil
	}
}

func (f *fakeChains) CancelRun(_ context.Context, _ engine.Principal, run, why string) (chain.RunView, error) {
	f.asked = append(f.asked, "cancel "+why)
	return chain.RunView{Run: run, Chain: "tour", Status: chain.StatusCancelled}, nil
}

func TestChainTools(t *testing.T) {
	chains := &fakeChains{now: chain.RunView{
		Run: "r", Chain: "tour", Status: chain.StatusFailed, Error: &chain.RunError{Code: "tool_error", Message: "no such page", Step: "open", Key: "open"},
		Steps: []chain.RunStep{{Key: "open", Op: "call", Status: chain.StatusFailed, Error: &chain.RunError{Code: "tool_error", Message: "no such page"}}},
	}, ended: make(chan struct{})}
	w := serve(t, newEngine(t), withChains(chains))
	w.hello("test")
	for _, c := range []struct{ tool, arguments, want string }{
		{"chain.list", `{}`, `{"chains":[{"name":"tour","description":"A tour.","inputSchema":{"type":"object","properties":{"who":{"type":"string"}}}}],"count":1}`},
		{"chain.start", `{"chain":"tour","input":{"n":1.50},"run":"mine"}`, `{"run":"r","chain":"tour","status":"failed","failure":{"code":"tool_error","message":"no such page","step":"open","key":"open"}}`},
		{"chain.status", `{"run":"r"}`, `{"run":"r","chain":"tour","status":"failed","steps":[{"key":"open","status":"failed","failure":{"code":"tool_error","message":"no such page"}}],"failure":{"code":"tool_error","message":"no such page","step":"open","key":"open"}}`},
		{"chain.result", `{"run":"r","wait":0}`, `{"run":"r","chain":"tour","status":"failed","failure":{"code":"tool_error","message":"no such page","step":"open","key":"open"}}`},
		{"chain.cancel", `{"run":"r","reason":"late"}`, `{"run":"r","chain":"tour","status":"cancelled"}`},
	} {
		r := w.call(c.tool, c.arguments)
		if got := r.Content[0].Text; got != c.want || r.IsError != (c.tool == "chain.result") {
			t.Errorf("%s answers %v %s", c.tool, r.IsError, got)
		}
	}
	if got := w.call("chain.status", `{"run":"another"}`); got.code() != "unknown_instance" {
		t.Errorf("a run that is not the caller's: %s", got.text())
	}
	if asked := strings.Join(chains.asked, "; "); asked != `start tour "mine" {"n":1.50}; cancel late` {
		t.Errorf("the chains were asked %s", asked)
	}
	w.end()
	size := 0
	for _, set := range []face.Toolset{face.AllTools, face.CoreTools} {
		w = serve(t, newEngine(t), withChains(chains), func(c *face.Config) { c.Toolset = set })
		w.hello("test")
		size = 0
		for _, tool := range w.listRaw() {
			if strings.Contains(string(tool), `"chain.`) {
				size += len(tool) + 1
			}
		}
		w.end()
		if set == face.AllTools && (size == 0 || size > 4*750) {
			t.Errorf("%d bytes, about %d tokens; the goal is 750", size, size/4)
		}
	}
	if size != 0 {
		t.Errorf("the tools of chains are in the set core")
	}
}

// A client that waits gets progress reports. The answer is the output, with its digits unchanged.
func TestRunResultReports(t *testing.T) {
	chains := &fakeChains{
		now: chain.RunView{Run: "r", Chain: "tour", Status: chain.StatusRunning, NextCursor: "3", Steps: []chain.RunStep{
			{Key: "a", Op: "call"}, {Key: "a", Op: "complete"}, {Key: "b", Op: "call"},
		}},
		later: []chain.RunStep{{Key: "b", Op: "call"}, {Key: "c", Op: "call"}}, ended: make(chan struct{}),
	}
	w := serve(t, newEngine(t), withChains(chains))
	w.hello("test")
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chain.result","arguments":{"run":"r","wait":300},"_meta":{"progressToken":"p"}}}`)
	if line := string(w.nextLine()); !strings.Contains(line, `"progressToken":"p"`) || !strings.Contains(line, "r of tour is running; ended steps: 3.") {
		t.Errorf("progress: %s", line)
	}
	if line := string(w.nextLine()); !strings.Contains(line, "ended steps: 4.") {
		t.Errorf("with what is behind the cursor, progress: %s", line)
	}
	close(chains.ended)
	if line := string(w.nextLine()); !strings.Contains(line, `\"status\":\"done\",\"output\":{\"n\":1.50}`) || strings.Contains(line, `"isError":true`) {
		t.Errorf("the result: %s", line)
	}
}

// exposeChain exposes tour as a tool with the given mode.
func exposeChain(t *testing.T, e *engine.Engine, chains *fakeChains, mode string) option {
	t.Helper()
	file, err := document.Parse("gavel.yaml", []byte(`{chains: [{name: tour, mode: `+mode+`}], wait: 1s}`), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := expose.ParseConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	tools := expose.New(e, expose.Config{}, slog.New(slog.DiscardHandler))
	t.Cleanup(tools.Close)
	tools.UseChains(chains)
	if err := tools.Use(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return func(c *face.Config) { c.Extras, c.Services = tools, services(chains) }
}

// A chain is one tool: a call returns the run, or waits for its output.
func TestExposedChain(t *testing.T) {
	running := chain.RunView{Run: "r", Chain: "tour", Status: chain.StatusRunning, Steps: []chain.RunStep{{Key: "a"}, {Key: "b"}, {Key: "c"}}}
	call := func(w *session, meta string) string {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tour","arguments":{"who":"ada","n":1.50},"_meta":` + meta + `}}`)
		return string(w.nextLine())
	}
	e, chains := newEngine(t), &fakeChains{now: running, ended: make(chan struct{})}
	w := serve(t, e, withSchemas, exposeChain(t, e, chains, "standard"))
	w.hello("claude-ai")
	var listed bytes.Buffer
	for _, raw := range w.listRaw() {
		if bytes.Contains(raw, []byte(`"name":"tour"`)) {
			if err := json.Indent(&listed, raw, "", "  "); err != nil {
				t.Fatal(err)
			}
		}
	}
	golden(t, "../exposed/chain.json", append(listed.Bytes(), '\n'))
	first, again, other := call(w, `{"gavel/idempotencyKey":"k"}`), call(w, `{"gavel/idempotencyKey":"k"}`), call(w, `{}`)
	for _, line := range []string{first, again, other} {
		if !strings.Contains(line, `\"run\":\"r\",\"chain\":\"tour\",\"status\":\"running\"`) || strings.Contains(line, `"isError":true`) {
			t.Errorf("a start: %s", line)
		}
	}
	if a := chains.asked; len(a) != 3 || a[0] != a[1] || !strings.HasPrefix(a[0], `start tour "call-`) || a[2] != `start tour "" {"who":"ada","n":1.50}` {
		t.Errorf("the chains were asked %q", a)
	}
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tour","arguments":{"who":"eve"},"_meta":{"gavel/idempotencyKey":"k"}}}`)
	if line := string(w.nextLine()); !strings.Contains(line, "This idempotency key was used before with other arguments.") || !strings.Contains(line, string(engine.CodeKeyReused)) {
		t.Errorf("the key with other arguments: %s", line)
	}
	w.end()

	w = serve(t, e, exposeChain(t, e, chains, "express"))
	w.hello("test")
	if line := call(w, `{}`); !strings.Contains(line, `\"note\":\"The run has not ended within 1s and continues; wait for it with chain.result.\"`) {
		t.Errorf("a run that takes longer: %s", line)
	}
	if line := call(w, `{"progressToken":"p"}`); !strings.Contains(line, `"progressToken":"p"`) || !strings.Contains(line, "ended steps: 3.") {
		t.Errorf("progress: %s", line)
	}
	close(chains.ended)
	for line := string(w.nextLine()); ; line = string(w.nextLine()) {
		if strings.Contains(line, `"progressToken"`) {
			continue
		}
		if !strings.Contains(line, `\"status\":\"done\",\"output\":{\"n\":1.50}`) || strings.Contains(line, `"isError":true`) {
			t.Errorf("the result: %s", line)
		}
		break
	}
	w.end()

	w = serve(t, e, scopedTo("other"), exposeChain(t, e, chains, "standard"))
	w.hello("test")
	if line := call(w, `{}`); !strings.Contains(line, "There is no tool") {
		t.Errorf("a chain out of scope: %s", line)
	}
}
