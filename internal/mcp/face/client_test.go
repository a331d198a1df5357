package face_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// dial connects the library's own client; legacy selects the protocol era with initialize.
func dial(t *testing.T, e operation.Engine, name string, legacy bool, configure ...option) *client.Client {
	t.Helper()
	return dialWith(t, e, name, legacy, nil, configure...)
}

// dialWith is dial with further client options.
func dialWith(t *testing.T, e operation.Engine, name string, legacy bool, options []client.ClientOption, configure ...option) *client.Client {
	t.Helper()
	cfg := face.Config{
		Engine: e, Principal: engine.Principal{ID: "local:agent", Role: engine.RoleAgent}, Logger: slog.New(slog.DiscardHandler),
	}
	for _, o := range configure {
		o(&cfg)
	}
	face, err := face.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- face.ServeStdio(context.Background(), inR, outW)
		_ = outW.Close()
	}()
	if legacy {
		options = append(options, client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION))
	}
	c := client.NewClient(transport.NewIO(outR, inW, io.NopCloser(strings.NewReader(""))), options...)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	if legacy {
		hello.Params.ProtocolVersion = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	}
	hello.Params.ClientInfo = mcp.Implementation{Name: name, Version: "1"}
	if _, err := c.Initialize(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClientOfEitherEra(t *testing.T) {
	for era, legacy := range map[string]bool{"2025-11-25": true, "2026-07-28": false} {
		t.Run(era, func(t *testing.T) {
			c := dial(t, newEngine(t), "test", legacy)
			if c.ProtocolVersion() != era {
				t.Errorf("speaks %s", c.ProtocolVersion())
			}
			call := func(tool string, arguments map[string]any) map[string]any {
				t.Helper()
				var req mcp.CallToolRequest
				req.Params.Name, req.Params.Arguments = tool, arguments
				r, err := c.CallTool(t.Context(), req)
				if err != nil || r.IsError {
					t.Fatalf("%s: %v %+v", tool, err, r)
				}
				var answer map[string]any
				if err := json.Unmarshal([]byte(r.Content[0].(mcp.TextContent).Text), &answer); err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				return answer
			}
			call("workflow.define", map[string]any{
				"name": "simple", "initialState": "a",
				"states": map[string]any{"a": map[string]any{"transitions": map[string]any{"go": "b"}}, "b": map[string]any{"final": true}},
			})
			id := call("workflow.start", map[string]any{"type": "simple"})["id"].(string)
			if r := call("workflow_advance", map[string]any{"id": id, "action": "go"}); r["complete"] != true {
				t.Errorf("advance: %v", r)
			}
			resources(t, c, id)
			completions(t, c, id)
		})
	}
}

func resources(t *testing.T, c *client.Client, id string) {
	t.Helper()
	templates, err := c.ListResourceTemplates(t.Context(), mcp.ListResourceTemplatesRequest{})
	if err != nil || len(templates.ResourceTemplates) != 5 {
		t.Errorf("templates: %v %v", templates, err)
	}
	var read mcp.ReadResourceRequest
	read.Params.URI = "workflow://instances/" + id + "/history"
	if r, err := c.ReadResource(t.Context(), read); err != nil || !strings.Contains(r.Contents[0].(mcp.TextResourceContents).Text, "decidedBy") {
		t.Errorf("%s: %v %v", read.Params.URI, r, err)
	}
	var get mcp.GetPromptRequest
	get.Params.Name, get.Params.Arguments = "follow-workflow", map[string]string{"id": id}
	r, err := c.GetPrompt(t.Context(), get)
	if err != nil {
		t.Fatal(err)
	}
	// The prompt must not tell a model to send data that would be rejected: the gate fetches evidence, and writes may
	// not list a key for it.
	switch text := r.Messages[0].Content.(mcp.TextContent).Text; {
	case !strings.Contains(text, id), strings.Contains(text, "evidence"), !strings.Contains(text, "lists writes"):
		t.Errorf("prompt: %s", text)
	}
}

func completions(t *testing.T, c *client.Client, id string) {
	t.Helper()
	for _, q := range []struct {
		ref           any
		name, value   string
		want, instead string
	}{
		{mcp.PromptReference{Type: "ref/prompt", Name: "follow-workflow"}, "type", "si", "simple", ""},
		{mcp.PromptReference{Type: "ref/prompt", Name: "follow-workflow"}, "type", "x", "", "simple"},
		{mcp.PromptReference{Type: "ref/prompt", Name: "follow-workflow"}, "id", "wf-", id, ""},
		{mcp.ResourceReference{Type: "ref/resource", URI: "workflow://definitions/{name}"}, "name", "", "simple", ""},
		{mcp.ResourceReference{Type: "ref/resource", URI: "workflow://instances/{id}/diagram"}, "id", "", id, ""},
	} {
		var req mcp.CompleteRequest
		req.Params.Ref, req.Params.Argument = q.ref, mcp.CompleteArgument{Name: q.name, Value: q.value}
		r, err := c.Complete(t.Context(), req)
		if err != nil {
			t.Errorf("%v: %v", q.ref, err)
			continue
		}
		if values := r.Completion.Values; q.want != "" && !slices.Contains(values, q.want) || q.instead != "" && slices.Contains(values, q.instead) {
			t.Errorf("%v %s=%q: %v", q.ref, q.name, q.value, values)
		}
	}
}

// Without initialize, each request identifies its client and gets names in that client's style.
func TestNameStyleOfTheModernEra(t *testing.T) {
	for name, want := range map[string]string{"claude-ai": "workflow_start", "inspector": "workflow.start"} {
		c := dial(t, newEngine(t), name, false)
		r, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
		if err != nil || !slices.ContainsFunc(r.Tools, func(tool mcp.Tool) bool { return tool.Name == want }) {
			t.Errorf("%s is not told %s: %v", name, want, err)
		}
	}
}
