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

// errorContent is the structured content of an error: why nothing was decided
// or done, and where the instance is, in the fields of every other answer.
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
	// Retryable: the same call may succeed later.
	Retryable bool             `json:"retryable"`
	Issues    []workflow.Issue `json:"issues,omitempty"`
}

// maxText is how long, in bytes, a text may be that holds an answer. No model reads more, and
// some clients end where a message is several times as long.
const maxText = 1 << 20

// answer is what a tool answers with; refused marks a move that did not happen. The text is the JSON of the content, unless
// that is longer than maxText. The content is also structured content where its text is not the JSON, and where the tool is
// listed with an output schema, for which the protocol demands it.
func (f *Face) answer(content any, refused bool) (*mcp.CallToolResult, error) {
	doc, err := document.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	text, structured := string(doc), f.cfg.OutputSchemas
	if len(text) > maxText {
		text, structured = fmt.Sprintf("The whole answer, %d bytes, is the structured content. Ask for fewer entries to have it as text.", len(text)), true
	}
	result := &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(text)}, IsError: refused}
	if structured {
		result.StructuredContent = json.RawMessage(doc)
	}
	return result, nil
}

// recoverError turns a panic into an error, so that one defect costs one answer and its
// text stays in the log.
func recoverError(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// answerError is what a tool answers for an error.
func (f *Face) answerError(ctx context.Context, op *operation.Operation, err error) (*mcp.CallToolResult, error) {
	e := f.explain(ctx, op.Tool.Name, err)
	content := errorContent{Error: errorAnswer{
		Code: e.Code, Message: e.Message, Hint: e.Hint, Path: e.Path, Retryable: operation.CodeInfo(e.Code).Retryable, Issues: e.Issues,
	}}
	if e.Current != nil {
		at := operation.BriefPosition(*e.Current)
		content.Position = &at
	}
	if len(e.Issues) > 0 { // they say it
		content.Error.Message, content.Error.Path = "The definition is not valid; the issues say why.", ""
	}
	if op == operation.ConfigureJudge.Operation {
		content.Success, content.Message = new(bool), e.Error()
	}
	return f.answer(content, true)
}

// explain is an error as clients see it. A defect is logged here.
func (f *Face) explain(ctx context.Context, what string, err error) *engine.Error {
	e, defect := operation.Explain(err)
	if defect {
		f.cfg.Logger.ErrorContext(ctx, "could not answer", "asked", what, "code", string(e.Code), "cause", fmt.Sprint(e.Err))
	}
	return e
}
