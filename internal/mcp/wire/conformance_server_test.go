package wire_test

import (
	"context"
	"encoding/json"
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
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// conformanceAddress is the environment variable that turns the test below into a server.
const conformanceAddress = "MCPWIRE_CONFORMANCE"

// TestConformanceServer is not a test itself. With MCPWIRE_CONFORMANCE=127.0.0.1:3102, it serves the fixtures of the
// protocol's conformance suite at /mcp until it receives a signal. It uses gavel's own listener and code. .ci/run
// conformance runs the suite against it.
func TestConformanceServer(t *testing.T) {
	address := os.Getenv(conformanceAddress)
	if address == "" {
		t.Skip("set " + conformanceAddress + " to an address to serve the fixtures")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	endpoint := conformanceServer(t, log).wire.Handler()
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

// anybody authenticates every caller, because the suite has no credentials.
func anybody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := auth.Identity{Principal: engine.Principal{ID: "local:agent", Role: engine.RoleAgent}, Kind: auth.KindNone}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), id)))
	})
}

// fixtures is a server with the tools, resources and prompts that the suite requires.
type fixtures struct {
	wire     *wire.Wire
	tools    []mcp.Tool
	handlers map[string]server.ToolHandlerFunc
}

func conformanceServer(t *testing.T, log *slog.Logger) *fixtures {
	t.Helper()
	f := &fixtures{handlers: map[string]server.ToolHandlerFunc{}}
	var err error
	f.wire, err = wire.New(wire.Config{
		Info: mcp.Implementation{Name: "gavel-conformance", Version: "1.0.0"}, Tools: f, Logger: log,
		Options: []server.ServerOption{
			server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true),
			server.WithCompletions(), server.WithLogging(), server.WithElicitation(), server.WithRoots(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.wire.Server.EnableSampling()
	f.addContent()
	f.addNotices()
	f.addQuestions()
	f.addResources()
	f.addPrompts()
	f.addModern()
	return f
}

func (f *fixtures) AddTool(tool mcp.Tool, handler server.ToolHandlerFunc) {
	f.tools = append(f.tools, tool)
	f.handlers[tool.Name] = handler
}

func (f *fixtures) List(context.Context, engine.Principal) ([]mcp.Tool, error) { return f.tools, nil }

func (f *fixtures) Changed(engine.Principal) <-chan struct{} { return nil }

func (f *fixtures) Call(ctx context.Context, _ engine.Principal, c wire.Call) (*mcp.CallToolResult, error) {
	handler := f.handlers[c.Name]
	if handler == nil {
		return nil, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "There is no such tool."}
	}
	var r mcp.CallToolRequest
	r.Params.Name, r.Params.MultiRoundTripParams = c.Name, c.MultiRoundTripParams
	for raw, into := range map[*json.RawMessage]any{&c.Arguments: &r.Params.Arguments, &c.Meta: &r.Params.Meta} {
		if len(*raw) > 0 {
			if err := json.Unmarshal(*raw, into); err != nil {
				return nil, err
			}
		}
	}
	return handler(ctx, r)
}

// saying adds a tool that always returns the same content.
func saying(f *fixtures, name, description string, content ...mcp.Content) {
	f.AddTool(mcp.NewTool(name, mcp.WithDescription(description)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: content}, nil
		})
}

func (f *fixtures) addContent() {
	saying(f, "test_simple_text", "Says a text", mcp.NewTextContent("This is a simple text response for testing."))
	saying(f, "test_image_content", "Shows an image", mcp.NewImageContent(onePixel, "image/png"))
	saying(f, "test_audio_content", "Plays a sound", mcp.NewAudioContent(oneSample, "audio/wav"))
	saying(f, "test_embedded_resource", "Embeds a resource", mcp.NewEmbeddedResource(mcp.TextResourceContents{
		URI: "test://embedded-resource", MIMEType: "text/plain", Text: "This is an embedded resource content.",
	}))
	saying(f, "test_multiple_content_types", "Mixes kinds of content",
		mcp.NewTextContent("Multiple content types test:"), mcp.NewImageContent(onePixel, "image/png"),
		mcp.NewEmbeddedResource(mcp.TextResourceContents{
			URI: "test://mixed-content-resource", MIMEType: "application/json", Text: `{"test":"data","value":123}`,
		}))
	f.AddTool(mcp.NewTool("test_error_handling", mcp.WithDescription("Fails")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
		})
	f.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", []byte(`{
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

// steps runs the stages of a tool with a pause between them, so that a client can distinguish them.
func steps(ctx context.Context, step func(i int) error) error {
	for i := range 3 {
		if i > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond): // the suite requires the pause
			}
		}
		if err := step(i); err != nil {
			return err
		}
	}
	return nil
}

func (f *fixtures) addNotices() {
	f.AddTool(mcp.NewTool("test_tool_with_logging", mcp.WithDescription("Logs while it runs")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			said := []string{"Tool execution started", "Tool processing data", "Tool execution completed"}
			if err := steps(ctx, func(i int) error {
				return wire.Notify(ctx, string(mcp.MethodNotificationMessage), map[string]any{"level": "info", "logger": "conformance", "data": said[i]})
			}); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("logged"), nil
		})
	f.AddTool(mcp.NewTool("test_tool_with_progress", mcp.WithDescription("Reports progress")),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
				return mcp.NewToolResultText("nobody asked for progress"), nil
			}
			if err := steps(ctx, func(i int) error {
				return wire.Notify(ctx, string(mcp.MethodNotificationProgress), map[string]any{
					"progressToken": r.Params.Meta.ProgressToken, "progress": i * 50, "total": 100,
				})
			}); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("reported"), nil
		})
}

func (f *fixtures) addResources() {
	s := f.wire.Server
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

func (f *fixtures) addPrompts() {
	prompt := func(p mcp.Prompt, say func(arguments map[string]string) []mcp.PromptMessage) {
		f.wire.Server.AddPrompt(p, func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
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
