package wire_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

// addQuestions adds tools that ask the client, which servers could do before protocol version 2026-07-28.
func (f *fixtures) addQuestions() {
	f.AddTool(mcp.NewTool("test_sampling", mcp.WithDescription("Asks the client's model"), mcp.WithString("prompt", mcp.Required())),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			raw, err := wire.Ask(ctx, string(mcp.MethodSamplingCreateMessage), samples(r.GetString("prompt", ""), 100))
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			var said struct{ Content mcp.TextContent }
			if err := json.Unmarshal(raw, &said); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("LLM response: " + said.Content.Text), nil
		})
	f.AddTool(mcp.NewTool("test_elicitation", mcp.WithDescription("Asks the user"), mcp.WithString("message", mcp.Required())),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return elicit(ctx, "User response", r.GetString("message", ""), map[string]any{
				"username": field("string", "description", "User's response"),
				"email":    field("string", "description", "User's email address"),
			}, "username", "email")
		})
	f.AddTool(mcp.NewTool("test_elicitation_sep1034_defaults", mcp.WithDescription("Asks with defaults")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return elicit(ctx, "Elicitation completed", "Provide your information", map[string]any{
				"name": field("string", "default", "John Doe"), "age": field("integer", "default", 30),
				"score":    field("number", "default", 95.5),
				"status":   field("string", "enum", []string{"active", "inactive", "pending"}, "default", "active"),
				"verified": field("boolean", "default", true),
			})
		})
	f.AddTool(mcp.NewTool("test_elicitation_sep1330_enums", mcp.WithDescription("Asks for choices")),
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			options := []string{"option1", "option2", "option3"}
			return elicit(ctx, "Elicitation completed", "Select options", map[string]any{
				"untitledSingle": field("string", "enum", options),
				"titledSingle":   field("string", "oneOf", titled("First Option", "Second Option")),
				"legacyEnum":     field("string", "enum", []string{"opt1", "opt2"}, "enumNames", []string{"Option One", "Option Two"}),
				"untitledMulti":  field("array", "items", field("string", "enum", options)),
				"titledMulti":    field("array", "items", map[string]any{"anyOf": titled("First Choice", "Second Choice")}),
			})
		})
}

// field returns a form field: its type, and pairs of keyword and value.
func field(kind string, pairs ...any) map[string]any {
	out := map[string]any{"type": kind}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

func titled(titles ...string) []any {
	var out []any
	for i, title := range titles {
		out = append(out, map[string]any{"const": fmt.Sprintf("value%d", i+1), "title": title})
	}
	return out
}

func elicit(ctx context.Context, what, message string, fields map[string]any, required ...string) (*mcp.CallToolResult, error) {
	form := map[string]any{"type": "object", "properties": fields}
	if len(required) > 0 {
		form["required"] = required
	}
	raw, err := wire.Ask(ctx, string(mcp.MethodElicitationCreate), mcp.ElicitationParams{Message: message, RequestedSchema: form})
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	var said mcp.ElicitationResponse
	if err := json.Unmarshal(raw, &said); err != nil {
		return nil, err
	}
	return mcp.NewToolResultText(fmt.Sprintf("%s: action=%s, content=%v", what, said.Action, said.Content)), nil
}
