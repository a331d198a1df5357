package mcpface_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/mcpface"
)

// conformanceAddress is the environment variable that turns the test below into a server.
const conformanceAddress = "MCPFACE_CONFORMANCE"

// TestConformanceServer is no test of its own: with MCPFACE_CONFORMANCE=127.0.0.1:3102 it
// serves, at /mcp and until it is told to stop, the fixtures of the protocol's conformance
// suite over the listener and the code that serve gavel. .ci/run conformance asks the suite.
func TestConformanceServer(t *testing.T) {
	address := os.Getenv(conformanceAddress)
	if address == "" {
		t.Skip("set " + conformanceAddress + " to an address to serve the fixtures")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	endpoint := mcpface.NewEndpoint(conformanceServer(), mcpface.Config{Logger: log})
	defer endpoint.Close()
	mux := http.NewServeMux()
	mux.Handle("/mcp", anybody(endpoint))
	s, err := listen.New(ctx, listen.Config{Addr: address, Handler: mux, Logger: log, OnDrain: endpoint.EndStreams})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
}

// anybody authenticates everybody: the suite has no credentials.
func anybody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := auth.Identity{Principal: engine.Principal{ID: "local:agent", Role: engine.RoleAgent}, Kind: auth.KindNone}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), id)))
	})
}

func conformanceServer() *server.MCPServer {
	s := server.NewMCPServer("gavel-conformance", "1.0.0",
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithCompletions(),
		server.WithLogging(),
		server.WithElicitation(),
		server.WithRoots(),
	)
	s.EnableSampling()
	conformanceContent(s)
	conformanceNotices(s)
	conformanceQuestions(s)
	conformanceResources(s)
	conformancePrompts(s)
	conformanceModern(s)
	return s
}

// saying is a tool that says one thing.
func saying(s *server.MCPServer, name, description string, content ...mcp.Content) {
	s.AddTool(mcp.NewTool(name, mcp.WithDescription(description)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: content}, nil
		})
}

func conformanceContent(s *server.MCPServer) {
	saying(s, "test_simple_text", "Says a text", mcp.NewTextContent("This is a simple text response for testing."))
	saying(s, "test_image_content", "Shows an image", mcp.NewImageContent(onePixel, "image/png"))
	saying(s, "test_audio_content", "Plays a sound", mcp.NewAudioContent(oneSample, "audio/wav"))
	saying(s, "test_embedded_resource", "Embeds a resource", mcp.NewEmbeddedResource(mcp.TextResourceContents{
		URI: "test://embedded-resource", MIMEType: "text/plain", Text: "This is an embedded resource content.",
	}))
	saying(s, "test_multiple_content_types", "Mixes kinds of content",
		mcp.NewTextContent("Multiple content types test:"), mcp.NewImageContent(onePixel, "image/png"),
		mcp.NewEmbeddedResource(mcp.TextResourceContents{
			URI: "test://mixed-content-resource", MIMEType: "application/json", Text: `{"test":"data","value":123}`,
		}))
	s.AddTool(mcp.NewTool("test_error_handling", mcp.WithDescription("Fails")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
		})
	s.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", []byte(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]}, "phone": {"type": "string"}, "email": {"type": "string"}},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]}, "else": {"required": ["email"]},
		"additionalProperties": false}`)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("fine"), nil
		})
}

// steps has a tool go through stages that a client can tell apart.
func steps(ctx context.Context, step func(i int) error) error {
	for i := range 3 {
		if i > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond): // the suite asks for the pause
			}
		}
		if err := step(i); err != nil {
			return err
		}
	}
	return nil
}

func conformanceNotices(s *server.MCPServer) {
	s.AddTool(mcp.NewTool("test_tool_with_logging", mcp.WithDescription("Logs while it runs")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			said := []string{"Tool execution started", "Tool processing data", "Tool execution completed"}
			if err := steps(ctx, func(i int) error {
				return s.SendNotificationToClient(ctx, string(mcp.MethodNotificationMessage), map[string]any{"level": "info", "logger": "conformance", "data": said[i]})
			}); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("logged"), nil
		})
	s.AddTool(mcp.NewTool("test_tool_with_progress", mcp.WithDescription("Reports progress")),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
				return mcp.NewToolResultText("nobody asked for progress"), nil
			}
			if err := steps(ctx, func(i int) error {
				return s.SendNotificationToClient(ctx, string(mcp.MethodNotificationProgress), map[string]any{
					"progressToken": r.Params.Meta.ProgressToken, "progress": i * 50, "total": 100,
				})
			}); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("reported"), nil
		})
}

func conformanceResources(s *server.MCPServer) {
	s.AddResource(mcp.NewResource("test://static-text", "static-text", mcp.WithResourceDescription("A text"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."}}, nil
		})
	s.AddResource(mcp.NewResource("test://static-binary", "static-binary", mcp.WithResourceDescription("An image"), mcp.WithMIMEType("image/png")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: onePixel}}, nil
		})
	s.AddResource(mcp.NewResource("test://watched-resource", "watched", mcp.WithResourceDescription("Can be subscribed to"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "It does not change."}}, nil
		})
	s.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateDescription("A template"), mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id := r.Params.URI[len("test://template/") : len(r.Params.URI)-len("/data")]
			return []mcp.ResourceContents{mcp.TextResourceContents{
				URI: r.Params.URI, MIMEType: "application/json", Text: `{"id":"` + id + `","templateTest":true,"data":"Data for ID: ` + id + `"}`,
			}}, nil
		})
}

func conformancePrompts(s *server.MCPServer) {
	prompt := func(p mcp.Prompt, say func(arguments map[string]string) []mcp.PromptMessage) {
		s.AddPrompt(p, func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: say(r.Params.Arguments)}, nil
		})
	}
	user := func(content mcp.Content) mcp.PromptMessage { return mcp.NewPromptMessage(mcp.RoleUser, content) }
	prompt(mcp.NewPrompt("test_simple_prompt", mcp.WithPromptDescription("Without arguments")), func(map[string]string) []mcp.PromptMessage {
		return []mcp.PromptMessage{user(mcp.NewTextContent("This is a simple prompt for testing."))}
	})
	prompt(mcp.NewPrompt("test_prompt_with_arguments", mcp.WithPromptDescription("With arguments"),
		mcp.WithArgument("arg1", mcp.ArgumentDescription("First"), mcp.RequiredArgument()),
		mcp.WithArgument("arg2", mcp.ArgumentDescription("Second"), mcp.RequiredArgument())),
		func(a map[string]string) []mcp.PromptMessage {
			return []mcp.PromptMessage{user(mcp.NewTextContent("Prompt with arguments: arg1='" + a["arg1"] + "', arg2='" + a["arg2"] + "'"))}
		})
	prompt(mcp.NewPrompt("test_prompt_with_embedded_resource", mcp.WithPromptDescription("With a resource"),
		mcp.WithArgument("resourceUri", mcp.ArgumentDescription("Which"), mcp.RequiredArgument())),
		func(a map[string]string) []mcp.PromptMessage {
			return []mcp.PromptMessage{
				user(mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."})),
				user(mcp.NewTextContent("Please process the embedded resource above.")),
			}
		})
	prompt(mcp.NewPrompt("test_prompt_with_image", mcp.WithPromptDescription("With an image")), func(map[string]string) []mcp.PromptMessage {
		return []mcp.PromptMessage{user(mcp.NewImageContent(onePixel, "image/png")), user(mcp.NewTextContent("Please analyze the image above."))}
	})
}

const (
	onePixel  = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	oneSample = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)
