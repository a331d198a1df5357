package mcpgate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/mcpgate"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	m.Run()
}

const release = `{"name":"release","initialState":"draft","states":{
	"draft":{"transitions":{"approve":{"target":"approved","requiredFields":["by"]}}},
	"approved":{"transitions":{"deployed":{"target":"live","schema":{"properties":{"target":{"const":"production"}}}}}},
	"live":{"final":true,"outcome":"success"}}}`

var ada = engine.Principal{ID: "ada", Role: engine.RoleAgent}

// openRelease returns a system with one release that ada started.
func openRelease() (sys *gavel.System, caller mcpgate.Caller, id string) {
	ctx := context.Background()
	sys, err := gavel.Open(ctx, gavel.Config{})
	if err != nil {
		panic(err)
	}
	if _, err := sys.Engine.Define(ctx, gavel.Operator, engine.DefineRequest{Document: []byte(release)}); err != nil {
		panic(err)
	}
	s, err := sys.Engine.Start(ctx, ada, engine.StartRequest{Type: "release"})
	if err != nil {
		panic(err)
	}
	return sys, func(context.Context) (engine.Principal, string, error) { return ada, s.ID, nil }, s.ID
}

func approve(sys *gavel.System, id string) {
	if _, err := sys.Engine.Advance(context.Background(), ada, engine.AdvanceRequest{ID: id, Action: "approve", Data: document.ReadTrusted([]byte(`{"by":"eve"}`))}); err != nil {
		panic(err)
	}
}

// addTools adds a gated and an ungated tool.
func addTools(app *server.MCPServer) {
	run := func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.GetString("target", "") == "nowhere" {
			return mcp.NewToolResultError("no such target"), nil
		}
		return mcp.NewToolResultText(req.Params.Name + " has run"), nil
	}
	app.AddTool(mcp.NewTool("deploy"), run)
	app.AddTool(mcp.NewTool("look"), run)
}

func ask(app *server.MCPServer, method, params string) string {
	answer, _ := json.Marshal(app.HandleMessage(context.Background(), []byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)))
	return string(answer)
}

const deploy = `{"name":"deploy","arguments":{"target":"%s"}}`

func Example() {
	sys, caller, id := openRelease()
	defer sys.Close()

	gates, err := sys.Middleware(caller, mcpgate.Gate{Tool: "deploy", States: []string{"approved"}, Success: "deployed"})
	if err != nil {
		panic(err)
	}
	app := server.NewMCPServer("app", "1", server.WithToolHandlerMiddleware(gates.Guard))

	addTools(app)
	deployNow := func() {
		var answer struct {
			Result struct{ Content []struct{ Text string } }
		}
		_ = json.Unmarshal([]byte(ask(app, "tools/call", fmt.Sprintf(deploy, "production"))), &answer)
		fmt.Println(strings.SplitN(answer.Result.Content[0].Text, ". ", 2)[0])
	}
	deployNow()
	approve(sys, id)
	deployNow()
	s, _ := sys.Engine.Status(context.Background(), ada, id)
	fmt.Println(s.State)
	// Output:
	// REFUSED: deploy can be called in the state approved
	// deploy has run
	// live
}

func newApp(t *testing.T, sys *gavel.System, caller mcpgate.Caller, options func(*mcpgate.Gates) []server.ServerOption) *server.MCPServer {
	t.Helper()
	gates, err := mcpgate.New(sys.Engine, caller, mcpgate.Gate{Tool: "deploy", States: []string{"approved"}, Success: "deployed"})
	if err != nil {
		t.Fatal(err)
	}
	app := server.NewMCPServer("app", "1", options(gates)...)
	addTools(app)
	return app
}

func TestGuard(t *testing.T) {
	t.Parallel()
	sys, caller, id := openRelease()
	defer sys.Close()
	app := newApp(t, sys, caller, func(g *mcpgate.Gates) []server.ServerOption {
		return []server.ServerOption{server.WithToolHandlerMiddleware(g.Guard)}
	})
	state := func() string {
		s, err := sys.Engine.Status(t.Context(), ada, id)
		if err != nil {
			t.Fatal(err)
		}
		return s.State
	}
	for _, c := range []struct{ name, params, want, state string }{
		{"another tool", `{"name":"look"}`, `look has run`, "draft"},
		{"too early", fmt.Sprintf(deploy, "production"), `REFUSED: deploy can be called in the state approved.`, "draft"},
		{"approved, the tool fails", fmt.Sprintf(deploy, "nowhere"), `no such target`, "approved"},
		{"approved, the action is refused", fmt.Sprintf(deploy, "staging"), `deploy was carried out, but the action deployed was not: reject \"/target\" must be`, "approved"},
		{"approved", fmt.Sprintf(deploy, "production"), `[{"type":"text","text":"deploy has run"}]`, "live"},
		{"too late", fmt.Sprintf(deploy, "production"), `REFUSED`, "live"},
	} {
		if strings.HasPrefix(c.name, "approved") && state() == "draft" {
			approve(sys, id)
		}
		if got := ask(app, "tools/call", c.params); !strings.Contains(got, c.want) || state() != c.state {
			t.Errorf("%s: %s in state %s\nwant %s in state %s", c.name, got, state(), c.want, c.state)
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	sys, caller, id := openRelease()
	defer sys.Close()
	app := newApp(t, sys, caller, func(g *mcpgate.Gates) []server.ServerOption {
		return []server.ServerOption{server.WithToolHandlerMiddleware(g.Guard), server.WithToolFilter(g.Filter)}
	})
	if got := ask(app, "tools/list", `{}`); strings.Contains(got, "deploy") || !strings.Contains(got, "look") {
		t.Errorf("before: %s", got)
	}
	approve(sys, id)
	if got := ask(app, "tools/list", `{}`); !strings.Contains(got, "deploy") {
		t.Errorf("after: %s", got)
	}
}

// guard returns the middleware around a handler, with a gate for deploy.
func guard(t *testing.T, sys *gavel.System, caller mcpgate.Caller, gate mcpgate.Gate, handler server.ToolHandlerFunc) func(target, key string) (string, error) {
	t.Helper()
	gate.Tool, gate.States = "deploy", []string{"approved"}
	gates, err := mcpgate.New(sys.Engine, caller, gate)
	if err != nil {
		t.Fatal(err)
	}
	return func(target, key string) (string, error) {
		var req mcp.CallToolRequest
		req.Params.Name, req.Params.Arguments = "deploy", map[string]any{"target": target}
		if key != "" {
			req.Params.Meta = &mcp.Meta{AdditionalFields: map[string]any{"gavel/idempotencyKey": key}}
		}
		result, err := gates.Guard(handler)(t.Context(), req)
		if result == nil {
			return "", err
		}
		text := ""
		for _, c := range result.Content {
			text += c.(mcp.TextContent).Text + " "
		}
		return text, err
	}
}

// While a handler runs, neither the same call nor one beyond MaxCalls runs, and the instance does not move.
func TestOneCallAtATime(t *testing.T) {
	t.Parallel()
	sys, caller, id := openRelease()
	defer sys.Close()
	approve(sys, id)
	runs, entered, leave := 0, make(chan string), make(chan bool)
	call := guard(t, sys, caller, mcpgate.Gate{Success: "deployed", MaxCalls: 1}, func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		runs++
		entered <- mcpgate.CallID(ctx)
		<-leave
		return mcp.NewToolResultText("has run"), nil
	})
	first := make(chan string)
	go func() {
		text, _ := call("production", "k")
		first <- text
	}()
	if callID := <-entered; !strings.HasPrefix(callID, "call-") {
		t.Errorf("the handler runs for the call %q", callID)
	}
	if got, _ := call("production", ""); !strings.HasPrefix(got, "REPEATED: deploy was not called again: the same call has no result yet.") {
		t.Errorf("the same call: %s", got)
	}
	if got, _ := call("staging", ""); strings.Contains(got, "has run") || !strings.Contains(got, "deploy has reached its call limit (1)") {
		t.Errorf("another call: %s", got)
	}
	if _, err := sys.Engine.Advance(t.Context(), ada, engine.AdvanceRequest{ID: id, Action: "deployed", Data: document.ReadTrusted([]byte(`{"target":"production"}`))}); engine.CodeOf(err) != engine.CodeCallOpen {
		t.Errorf("a move meanwhile: %v", err)
	}
	leave <- true
	if got := <-first; got != "has run " {
		t.Errorf("the first call: %s", got)
	}
	if got, _ := call("production", "k"); !strings.HasPrefix(got, `REPEATED: deploy was not called again: the same call was made, and its outcome was "ok".`) || runs != 1 {
		t.Errorf("the same key: %s after %d runs", got, runs)
	}
}

// The end of a handler determines the end of its call.
func TestHowCallsEnd(t *testing.T) {
	t.Parallel()
	crash := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("out of memory") }
	for name, c := range map[string]struct {
		gate    mcpgate.Gate
		handler server.ToolHandlerFunc
		want    string // of the first call
		again   string // of the same call again
		state   string
	}{
		"an error": {
			mcpgate.Gate{Success: "deployed", MaxCalls: 1},
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, errors.New("no") }, "", "REFUSED: deploy was not called: ", "approved",
		},
		"a crash":             {mcpgate.Gate{Success: "deployed"}, crash, "", "REPEATED: deploy was not called again: it is unknown whether the same call happened, and a person has to decide that (review rev-", "approved"},
		"a crash, repeatable": {mcpgate.Gate{Success: "deployed", Repeatable: true}, crash, "", "", "approved"},
		"an action before it": {
			mcpgate.Gate{Action: "deployed"},
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText("has run"), nil
			}, "has run ", "REFUSED: deploy can be called in the state approved.", "live",
		},
		"bad data": {
			mcpgate.Gate{Success: "deployed", Data: func(mcp.CallToolRequest, *mcp.CallToolResult) (json.RawMessage, error) {
				return nil, errors.New("no data")
			}},
			func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultText("has run"), nil
			},
			"has run deploy was carried out, but the action deployed was not: no data. The instance is in state approved. Do not call the tool again for it. ", "has run", "approved",
		},
	} {
		sys, caller, id := openRelease()
		approve(sys, id)
		call := guard(t, sys, caller, c.gate, c.handler)
		safely := func() (got string) {
			defer func() { _ = recover() }() // mcp-go has middleware for panics
			got, _ = call("production", "")
			return got
		}
		if got := safely(); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
		if got := safely(); !strings.HasPrefix(got, c.again) || c.again == "" && got != "" {
			t.Errorf("%s, again: %s", name, got)
		}
		if s, err := sys.Engine.Status(t.Context(), ada, id); err != nil || s.State != c.state {
			t.Errorf("%s: in state %s, %v", name, s.State, err)
		}
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An undecided call is rejected.
func TestUndecided(t *testing.T) {
	t.Parallel()
	gates, err := mcpgate.New(nil, func(context.Context) (engine.Principal, string, error) {
		return engine.Principal{}, "", errors.New("nobody knows")
	}, mcpgate.Gate{Tool: "deploy", States: []string{"approved"}})
	if err != nil {
		t.Fatal(err)
	}
	var req mcp.CallToolRequest
	req.Params.Name = "deploy"
	got, err := gates.Guard(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		t.Error("the handler has run")
		return nil, nil
	})(t.Context(), req)
	if err != nil || !got.IsError {
		t.Errorf("%v %v", got, err)
	}
	if left := gates.Filter(t.Context(), []mcp.Tool{{Name: "deploy"}, {Name: "look"}}); len(left) != 1 || left[0].Name != "look" {
		t.Errorf("listed: %v", left)
	}
	for _, bad := range [][]mcpgate.Gate{{{Tool: "a"}}, {{States: []string{"x"}}}, {{Tool: "a", States: []string{"x"}}, {Tool: "a", States: []string{"y"}}}} {
		if _, err := mcpgate.New(nil, nil, bad...); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
