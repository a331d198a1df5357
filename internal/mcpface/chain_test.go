package mcpface_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcpface"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// fakeChains have the run "r" of "tour", which is what now says it is.
type fakeChains struct {
	operation.Chains

	now   operation.RunView
	ended chan struct{}
	asked []string
}

func withChains(c operation.Chains) option {
	if c == nil {
		c = &fakeChains{}
	}
	return func(cfg *mcpface.Config) { cfg.Chains = c }
}

func (f *fakeChains) ListChains(_ context.Context, p engine.Principal) ([]operation.ChainView, error) {
	if p.Role != engine.RoleAgent {
		return nil, nil
	}
	return []operation.ChainView{{Name: "tour", Description: "A tour.", Hash: "sha256:0", Steps: 2, InputSchema: json.RawMessage(`{"type":"object","properties":{"who":{"type":"string"}}}`)}}, nil
}

func (f *fakeChains) StartRun(_ context.Context, _ engine.Principal, req operation.StartRunRequest) (operation.RunView, error) {
	f.asked = append(f.asked, fmt.Sprintf("start %s %q %s", req.Chain, req.Run, req.Input))
	return f.now, nil
}

func (f *fakeChains) ReadRun(_ context.Context, _ engine.Principal, run string) (operation.RunView, error) {
	if run != "r" {
		return operation.RunView{}, &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no such run."}
	}
	return f.now, nil
}

func (f *fakeChains) WaitRun(ctx context.Context, p engine.Principal, run string) (operation.RunView, error) {
	if _, err := f.ReadRun(ctx, p, run); err != nil {
		return operation.RunView{}, err
	}
	select {
	case <-ctx.Done():
		return operation.RunView{}, ctx.Err()
	case <-f.ended:
		v := f.now
		v.Status, v.Output = operation.RunDone, json.RawMessage(`{"n":1.50}`)
		return v, nil
	}
}

func (f *fakeChains) CancelRun(_ context.Context, _ engine.Principal, req operation.ChangeRunRequest) (operation.RunView, error) {
	f.asked = append(f.asked, "cancel "+req.Reason)
	return operation.RunView{Run: req.Run, Chain: "tour", Status: operation.RunCancelled}, nil
}

func TestChainTools(t *testing.T) {
	chains := &fakeChains{now: operation.RunView{
		Run: "r", Chain: "tour", Status: operation.RunFailed, Error: &operation.RunError{Code: "tool_error", Message: "no such page", Step: "open", Key: "open"},
		Steps: []operation.RunStep{{Key: "open", Op: "call", Status: operation.RunFailed, Error: &operation.RunError{Code: "tool_error", Message: "no such page"}}},
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
	for _, set := range []mcpface.Toolset{mcpface.AllTools, mcpface.CoreTools} {
		w = serve(t, newEngine(t), withChains(chains), func(c *mcpface.Config) { c.Toolset = set })
		w.hello("test")
		size = 0
		for _, tool := range w.listRaw() {
			if strings.Contains(string(tool), `"chain.`) {
				size += len(tool) + 1
			}
		}
		w.end()
		if set == mcpface.AllTools && (size == 0 || size > 4*750) {
			t.Errorf("%d bytes, about %d tokens; the goal is 750", size, size/4)
		}
	}
	if size != 0 {
		t.Errorf("the tools of chains are in the set core")
	}
}

// A client that waits hears where the run is; the answer is the output, with the digits that it had.
func TestRunResultReports(t *testing.T) {
	chains := &fakeChains{now: operation.RunView{Run: "r", Chain: "tour", Status: operation.RunRunning, Steps: make([]operation.RunStep, 3)}, ended: make(chan struct{})}
	w := serve(t, newEngine(t), withChains(chains))
	w.hello("test")
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chain.result","arguments":{"run":"r","wait":300},"_meta":{"progressToken":"p"}}}`)
	if line := string(w.nextLine()); !strings.Contains(line, `"progressToken":"p"`) || !strings.Contains(line, "r of tour is running: steps that have ended: 3.") {
		t.Errorf("progress: %s", line)
	}
	close(chains.ended)
	if line := string(w.nextLine()); !strings.Contains(line, `\"status\":\"done\",\"output\":{\"n\":1.50}`) || strings.Contains(line, `"isError":true`) {
		t.Errorf("the result: %s", line)
	}
}
