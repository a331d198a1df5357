package face

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// errorContent is the structured content of an error: why nothing was decided or done, and the position of the
// instance in the same fields as in every other answer.
type errorContent struct {
	// Success is false for a refused judge.config, and absent otherwise.
	Success *bool       `json:"success,omitempty"`
	Message string      `json:"message,omitempty"`
	Error   errorAnswer `json:"error"`
	*engine.Position
}

type errorAnswer struct {
	Code    engine.Code `json:"code"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
	Path    string      `json:"path,omitempty"`
	// Retryable reports whether the same call may succeed later.
	Retryable bool             `json:"retryable"`
	Issues    []workflow.Issue `json:"issues,omitempty"`
}

// maxText limits the text of an answer, in bytes. No model reads more, and some clients exit on messages several
// times as long.
const maxText = 1 << 20

// newResult returns the answer of a tool; refused marks a move that did not happen. The text is the content as JSON,
// unless that exceeds maxText. Structured content is returned too if the text is not the JSON, or if the tool is listed
// with an output schema: the protocol then requires it.
func (f *Face) newResult(content any, refused bool) (*mcp.CallToolResult, error) {
	doc, err := document.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	text, structured := string(doc), f.cfg.OutputSchemas
	if len(text) > maxText {
		text, structured = fmt.Sprintf("The whole answer (%d bytes) is in the structured content. Request fewer entries to get it as text.", len(text)), true
	}
	result := &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(text)}, IsError: refused}
	if structured {
		result.StructuredContent = json.RawMessage(doc)
	}
	return result, nil
}

// recoverError converts a panic into an error, so that a defect fails only one request and its details stay in the
// log.
func recoverError(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// newErrorResult returns the answer of a tool for an error.
func (f *Face) newErrorResult(ctx context.Context, op *operation.Operation, err error) (*mcp.CallToolResult, error) {
	e := f.explain(ctx, op.Tool.Name, err)
	content := errorContent{Error: errorAnswer{
		Code: e.Code, Message: e.Message, Hint: e.Hint, Path: e.Path, Retryable: operation.CodeInfo(e.Code).Retryable, Issues: e.Issues,
	}}
	if e.Current != nil {
		at := operation.BriefPosition(*e.Current)
		content.Position = &at
	}
	if len(e.Issues) > 0 { // the issues contain the details
		content.Error.Message, content.Error.Path = "The definition is not valid; see issues.", ""
	}
	if op == operation.ConfigureJudge.Operation {
		content.Success, content.Message = new(bool), e.Error()
	}
	return f.newResult(content, true)
}

// explain returns an error as clients see it, and logs it if it is a defect.
func (f *Face) explain(ctx context.Context, what string, err error) *engine.Error {
	e, defect := operation.Explain(err)
	if defect {
		f.cfg.Logger.ErrorContext(ctx, "could not answer", "asked", what, "code", string(e.Code), "cause", fmt.Sprint(e.Err))
	}
	return e
}
