package mcpface

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
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
	doc, err := readable(a.content)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	text := string(doc)
	if len(text) > maxCopy {
		text = fmt.Sprintf("The whole answer, %d bytes, is the structured content. Ask for fewer entries to have it as text.", len(text))
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{mcp.NewTextContent(oneLine(a.line)), mcp.NewTextContent(text)},
		StructuredContent: doc,
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

// readable is compact JSON that leaves <, > and & as they are.
func readable(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it was
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// caught turns a panic into an error, so that one defect costs one answer and its
// text stays in the log.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// failed is what a tool answers for an error.
func (f *Face) failed(ctx context.Context, op operation.Any, err error) answer {
	e := f.explain(ctx, op.Info().Tool.Name, err)
	content := errorContent{Position: e.Current, Error: errorAnswer{
		Code: e.Code, Message: e.Message, Hint: e.Hint, Path: e.Path,
		Retryable: retryable(e.Code), Current: e.Current, Issues: e.Issues,
	}}
	if op == operation.Any(operation.ConfigureJudge) {
		content.Success, content.Message = new(bool), e.Error()
	}
	return answer{line: fmt.Sprintf("ERROR %s: %s", e.Code, e.Error()), content: content, refused: true}
}

// explain is the one mapping of errors to what a client sees. The text of an
// error that is not an *engine.Error stays in the log.
func (f *Face) explain(ctx context.Context, what string, err error) *engine.Error {
	var e *engine.Error
	if !errors.As(err, &e) {
		e = &engine.Error{Code: engine.CodeOf(err), Message: "An internal error kept gavel from answering.", Hint: "The log has the details.", Err: err}
		if e.Code == engine.CodeCancelled {
			e.Message, e.Hint = "The request ended before gavel could answer.", "Check the status before trying again."
		}
	}
	if e.Code == engine.CodeInternal || e.Code == engine.CodeUnavailable || e.Code == engine.CodeUntrustedRules {
		f.cfg.Logger.ErrorContext(ctx, "could not answer", "asked", what, "code", string(e.Code), "cause", fmt.Sprint(e.Err))
	}
	return e
}

func retryable(code engine.Code) bool {
	i := slices.IndexFunc(engine.Codes, func(c engine.CodeInfo) bool { return c.Code == code })
	return i >= 0 && engine.Codes[i].Retryable
}
