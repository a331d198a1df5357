package wire_test

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// addModern adds fixtures for protocol version 2026-07-28, in which a server asks by answering a call with a
// question, and the client repeats the call.
func (f *fixtures) addModern() {
	f.addRounds()
	f.addStateless()
	const prompt = "test_input_required_result_prompt"
	f.wire.Server.AddPrompt(mcp.NewPrompt(prompt, mcp.WithPromptDescription("Asks first")), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if said := server.ElicitationResponse(r.Params.InputResponses, "user_context"); said != nil {
			return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(fmt.Sprint(said.Content)))}}, nil
		}
		return server.NewInputRequestBuilder("").Elicit("user_context", asks("What context should the prompt use?", "context", "string")).PromptResult(), nil
	})
}

// asks returns a form with one field.
func asks(message, name, kind string) mcp.ElicitationParams {
	return mcp.ElicitationParams{Message: message, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{name: field(kind)}, "required": []string{name},
	}}
}

func samples(text string, most int) mcp.CreateMessageParams {
	return mcp.CreateMessageParams{MaxTokens: most, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(text)}}}
}

type toolParams = mcp.CallToolParams

// round adds a tool that asks questions until answer returns a result.
func round(f *fixtures, name string, answer func(ctx context.Context, p toolParams) (*mcp.CallToolResult, error)) {
	f.AddTool(mcp.NewTool("test_input_required_result_"+name, mcp.WithDescription("Asks before it answers")),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return answer(ctx, r.Params)
		})
}

func (f *fixtures) addRounds() {
	state := newSealer()
	round(f, "elicitation", func(_ context.Context, p toolParams) (*mcp.CallToolResult, error) {
		if said := server.ElicitationResponse(p.InputResponses, "user_name"); said != nil && said.Action != "" {
			return mcp.NewToolResultText(fmt.Sprintf("Hello, %v!", said.Content)), nil
		}
		return server.NewInputRequestBuilder("").Elicit("user_name", asks("What is your name?", "name", "string")).ToolResult(), nil
	})
	round(f, "sampling", func(_ context.Context, p toolParams) (*mcp.CallToolResult, error) {
		if said := server.SamplingResponse(p.InputResponses, "capital_question"); said != nil {
			return mcp.NewToolResultText(fmt.Sprint(said.Content)), nil
		}
		return server.NewInputRequestBuilder("").Sample("capital_question", samples("What is the capital of France?", 100)).ToolResult(), nil
	})
	round(f, "list_roots", func(_ context.Context, p toolParams) (*mcp.CallToolResult, error) {
		if said := server.RootsResponse(p.InputResponses, "client_roots"); said != nil {
			return mcp.NewToolResultText(fmt.Sprint(said.Roots)), nil
		}
		return server.NewInputRequestBuilder("").Roots("client_roots").ToolResult(), nil
	})
	for _, name := range []string{"request_state", "tampered_state"} {
		round(f, name, func(_ context.Context, p toolParams) (*mcp.CallToolResult, error) {
			if p.RequestState == "" {
				return server.NewInputRequestBuilder(state.seal(name)).Elicit("confirm", asks("Please confirm", "ok", "boolean")).ToolResult(), nil
			}
			if state.open(p.RequestState) != name {
				return nil, errForgedState()
			}
			return mcp.NewToolResultText("state-ok"), nil
		})
	}
	round(f, "multiple_inputs", func(_ context.Context, p toolParams) (*mcp.CallToolResult, error) {
		if len(p.InputResponses) >= 3 && state.open(p.RequestState) == "multiple" {
			return mcp.NewToolResultText("all three answered"), nil
		}
		return server.NewInputRequestBuilder(state.seal("multiple")).Elicit("user_name", asks("What is your name?", "name", "string")).
			Sample("greeting", samples("Generate a greeting", 50)).Roots("client_roots").ToolResult(), nil
	})
	round(f, "multi_round", func(_ context.Context, p toolParams) (*mcp.CallToolResult, error) {
		switch was := state.open(p.RequestState); {
		case p.RequestState == "":
			return server.NewInputRequestBuilder(state.seal("step1")).Elicit("step1", asks("Step 1: What is your name?", "name", "string")).ToolResult(), nil
		case was == "step1":
			return server.NewInputRequestBuilder(state.seal("step2")).Elicit("step2", asks("Step 2: What is your favorite color?", "color", "string")).ToolResult(), nil
		case was == "step2":
			return mcp.NewToolResultText("done"), nil
		}
		return nil, errForgedState()
	})
	round(f, "capabilities", func(ctx context.Context, _ toolParams) (*mcp.CallToolResult, error) {
		b, can := server.NewInputRequestBuilder(""), wire.ClientOf(ctx).Capabilities
		if can.Elicitation != nil {
			b = b.Elicit("user_name", asks("What is your name?", "name", "string"))
		}
		if can.Sampling != nil {
			b = b.Sample("greeting", samples("Generate a greeting", 50))
		}
		return b.ToolResult(), nil
	})
}

func (f *fixtures) addStateless() {
	f.AddTool(mcp.NewTool("test_missing_capability", mcp.WithDescription("Needs sampling")), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if info := server.RequestProtocolInfoFromContext(ctx); info != nil && info.Modern && info.ClientCapabilities.Sampling == nil {
			return nil, &wire.Error{
				Code: mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, Message: "The tool needs sampling.",
				Data: map[string]any{"requiredCapabilities": map[string]any{"sampling": map[string]any{}}},
			}
		}
		return mcp.NewToolResultText("fine"), nil
	})
	f.AddTool(mcp.NewTool("test_streaming_elicitation", mcp.WithDescription("Asks while it streams")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return server.NewInputRequestBuilder("").Elicit("user_name", asks("What is your name?", "name", "string")).ToolResult(), nil
	})
	f.AddTool(mcp.NewTool("test_logging_tool", mcp.WithDescription("Logs when asked to")), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if info := server.RequestProtocolInfoFromContext(ctx); info == nil || info.LogLevel == "" {
			return mcp.NewToolResultText("nobody asked for a log"), nil
		}
		err := wire.Notify(ctx, string(mcp.MethodNotificationMessage), map[string]any{"level": "info", "data": "logged"})
		return mcp.NewToolResultText("logged"), err
	})
	f.AddTool(mcp.NewToolWithRawSchema("test_header_tool", "Has an argument that travels in a header", []byte(`{"type": "object",
		"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}`)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("fine"), nil
		})
}

func errForgedState() error {
	return &wire.Error{Code: mcp.INVALID_PARAMS, Message: "The requestState is none of this server's, or has expired."}
}

// sealer prevents a client from changing the state that it sends back.
type sealer []byte

func newSealer() sealer { return sealer(rand.Text()) }

type sealed struct {
	What    string    `json:"what"`
	Expires time.Time `json:"expires"`
}

func (k sealer) seal(what string) string {
	doc, err := json.Marshal(sealed{what, time.Now().Add(time.Minute)})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(doc) + "." + k.mac(doc)
}

// open returns the sealed text, or "" if state was not sealed.
func (k sealer) open(state string) string {
	text, mac, _ := strings.Cut(state, ".")
	doc, err := base64.RawURLEncoding.DecodeString(text)
	var s sealed
	if err != nil || !hmac.Equal([]byte(mac), []byte(k.mac(doc))) || json.Unmarshal(doc, &s) != nil || time.Now().After(s.Expires) {
		return ""
	}
	return s.What
}

func (k sealer) mac(doc []byte) string {
	h := hmac.New(sha256.New, k)
	h.Write(doc)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
