package mcpface

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// answer is what a tool says: one line for a reader, everything for a program.
type answer struct {
	line    string
	content any
	// refused marks a move that did not happen.
	refused bool
	// asks is sent instead of an answer: it asks the client for more first.
	asks *mcp.CallToolResult
}

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
	Current   *engine.Position `json:"current,omitempty"`
	Issues    []workflow.Issue `json:"issues,omitempty"`
}

// maxCopy is how much of an answer, in bytes, its text repeats. No model reads
// more, and programs have the structured content.
const maxCopy = 1 << 20

// result encodes an answer. The text says it in one line and then holds the
// structured content as it is, for clients that read only text.
func (a answer) result() (*mcp.CallToolResult, error) {
	if a.asks != nil {
		return a.asks, nil
	}
	doc, err := document.Marshal(a.content)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	text := string(doc)
	if len(text) > maxCopy {
		text = fmt.Sprintf("The whole answer, %d bytes, is the structured content. Ask for fewer entries to have it as text.", len(text))
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{mcp.NewTextContent(oneLine(a.line)), mcp.NewTextContent(text)},
		StructuredContent: json.RawMessage(doc),
		IsError:           a.refused,
	}, nil
}

// oneLine keeps a line one line, and of a length that is read: what workflows and
// scripts say is in it.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	const most = 2000
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// recoverError turns a panic into an error, so that one defect costs one answer and its
// text stays in the log.
func recoverError(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// answerError is what a tool answers for an error.
func (f *Face) answerError(ctx context.Context, op *operation.Operation, err error) answer {
	e := f.explain(ctx, op.Tool.Name, err)
	content := errorContent{Position: e.Current, Error: errorAnswer{
		Code: e.Code, Message: e.Message, Hint: e.Hint, Path: e.Path,
		Retryable: operation.CodeInfo(e.Code).Retryable, Current: e.Current, Issues: e.Issues,
	}}
	if op == operation.ConfigureJudge.Operation {
		content.Success, content.Message = new(bool), e.Error()
	}
	return answer{line: fmt.Sprintf("ERROR %s: %s", e.Code, e.Error()), content: content, refused: true}
}

// explain is an error as clients see it. A defect is logged here.
func (f *Face) explain(ctx context.Context, what string, err error) *engine.Error {
	e, defect := operation.Explain(err)
	if defect {
		f.cfg.Logger.ErrorContext(ctx, "could not answer", "asked", what, "code", string(e.Code), "cause", fmt.Sprint(e.Err))
	}
	return e
}
