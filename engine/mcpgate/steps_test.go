package mcpgate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/mcpgate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// cloud is a provider that fails in one of its steps.
type cloud struct{ fails string }

func (c *cloud) do(step string) error {
	if step == c.fails {
		return errors.New(step + " failed")
	}
	return nil
}

// openDeployment returns a server with the tool deploy_infrastructure, which goes from IDLE to DEPLOYED
// in one call.
func openDeployment(c *cloud) (sys *gavel.System, app *server.MCPServer, gates *mcpgate.Gates, ctx context.Context, id string) {
	ctx = context.Background()
	definition, err := os.ReadFile(filepath.Join("..", "..", "testdata", "workflows", "infrastructure-deployment.yaml"))
	if err != nil {
		panic(err)
	}
	if sys, err = gavel.Open(ctx, gavel.Config{}); err != nil {
		panic(err)
	}
	if _, err = sys.Engine.Define(ctx, gavel.Operator, engine.DefineRequest{Document: definition}); err != nil {
		panic(err)
	}
	started, err := sys.Engine.Start(ctx, ada, engine.StartRequest{Type: "infrastructure-deployment"})
	if err != nil {
		panic(err)
	}
	caller := func(context.Context) (engine.Principal, string, error) { return ada, started.ID, nil }
	gates, err = mcpgate.New(sys.Engine, caller, mcpgate.Gate{
		Tool: "deploy_infrastructure", States: []string{"IDLE"}, Action: "deploy",
		Steps: []string{"authenticated", "validated", "deployed"}, Error: "fail",
		Data: func(_ mcp.CallToolRequest, r *mcp.CallToolResult) (json.RawMessage, error) {
			return json.Marshal(map[string]any{"error": map[string]any{"step": c.fails, "message": r.Content[0].(mcp.TextContent).Text}})
		},
	})
	if err != nil {
		panic(err)
	}
	app = server.NewMCPServer("cloud", "1", server.WithToolHandlerMiddleware(gates.Guard))
	app.AddTool(mcp.NewTool("deploy_infrastructure"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, step := range []struct {
			does, action string
			data         map[string]any
		}{
			{"authenticate", "authenticated", map[string]any{"account": "acme", "expiresInSeconds": 900}},
			{"validate", "validated", map[string]any{"planDigest": "sha256:1", "resources": []any{map[string]any{"name": "web", "type": "service", "valid": true}}}},
			{"deploy", "deployed", map[string]any{"planDigest": "sha256:1", "ready": []string{"web"}}},
		} {
			if err := c.do(step.does); err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			if err := gates.Perform(ctx, step.action, step.data); err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
		}
		return mcp.NewToolResultText("deployed"), nil
	})
	return sys, app, gates, ctx, started.ID
}

func callDeployment(app *server.MCPServer) string {
	var answer struct {
		Result struct{ Content []struct{ Text string } }
	}
	_ = json.Unmarshal([]byte(ask(app, "tools/call", `{"name":"deploy_infrastructure","arguments":{"environment":"staging","requestedBy":"ann"}}`)), &answer)
	var texts []string
	for _, c := range answer.Result.Content {
		texts = append(texts, c.Text)
	}
	return strings.SplitN(strings.Join(texts, " "), ". ", 2)[0]
}

// One tool goes from IDLE to DEPLOYED: its handler performs the steps. A failure ends in ERROR, which
// blocks further calls until a reset.
func Example_deployInfrastructure() {
	c := &cloud{fails: "validate"}
	sys, app, gates, ctx, id := openDeployment(c)
	defer sys.Close()
	show := func(said string) {
		s, _ := sys.Engine.Status(ctx, ada, id)
		mayDeploy, _ := gates.CanExecute(ctx, "IDLE", "DEPLOYED")
		fmt.Println(strings.TrimSpace(fmt.Sprint(s.State, " ", mayDeploy, " ", said)))
	}
	show("")
	show(callDeployment(app))
	show(callDeployment(app))
	c.fails = ""
	_, _ = sys.Engine.Advance(ctx, ada, engine.AdvanceRequest{ID: id, Action: "reset", Data: document.ReadTrusted([]byte(`{"resolution":"the plan names a region now"}`))})
	show(callDeployment(app))
	// Output:
	// IDLE true
	// ERROR false validate failed
	// ERROR false REFUSED: deploy_infrastructure can be called in the state IDLE
	// DEPLOYED true deployed
}

// A refused step moves nothing, and its error gives the reason. Outside a call of its handler, no step exists.
func TestPerform(t *testing.T) {
	t.Parallel()
	sys, app, gates, ctx, id := openDeployment(&cloud{})
	defer sys.Close()
	if err := gates.Perform(ctx, "authenticated", nil); err == nil {
		t.Error("a step is performed outside of a call")
	}
	app.AddTool(mcp.NewTool("deploy_infrastructure"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, bad := range []struct {
			action string
			data   any
			says   string
		}{{"authenticated", map[string]any{"account": "acme"}, "expiresInSeconds"}, {"deployed", map[string]any{}, "not possible"}, {"reset", nil, "no step"}, {"validated", func() {}, "data of validated"}} {
			if err := gates.Perform(ctx, bad.action, bad.data); err == nil || !strings.Contains(err.Error(), bad.says) {
				t.Errorf("%s: %v", bad.action, err)
			}
			if s, _ := sys.Engine.Status(ctx, ada, id); s.State != "AUTHENTICATING" || len(s.Calls) != 1 {
				t.Errorf("after %s: %s, %d open calls", bad.action, s.State, len(s.Calls))
			}
		}
		panic("cut off")
	})
	func() {
		defer func() { _ = recover() }()
		ask(app, "tools/call", `{"name":"deploy_infrastructure","arguments":{"environment":"staging","requestedBy":"ann"}}`)
	}()
	if s, _ := sys.Engine.Status(ctx, ada, id); len(s.Calls) != 1 || !s.Calls[0].Unknown {
		t.Errorf("a handler that was cut off: %+v", s.Calls)
	}
	if _, err := mcpgate.New(sys.Engine, nil, mcpgate.Gate{Tool: "x", States: []string{"a"}, Success: "s", Steps: []string{"s"}}); err == nil {
		t.Error("steps with a success of the gate are taken")
	}
}
