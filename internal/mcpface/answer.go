package mcpface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// answer is what a tool says: one line for a reader, everything for a program.
type answer struct {
	line    string
	content any
	// refused marks a move that did not happen.
	refused bool
}

// errorAnswer is the structured content of an error: why nothing was decided.
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

// result encodes an answer. The text holds the same as the structured content,
// for clients that read only text.
func (a answer) result() (*mcp.CallToolResult, error) {
	doc, err := json.Marshal(a.content)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{mcp.NewTextContent(a.line + "\n" + string(doc))},
		StructuredContent: json.RawMessage(doc),
		IsError:           a.refused,
	}, nil
}

// handler runs one tool: arguments in, answer out, and every error as a result
// that a model can act on. Only a defect of this program is logged, once, here.
func (f *Face) handler(t tool) func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a, err := t.read(rawArguments(req))
		if err == nil {
			var out answer
			if out, err = t.run(ctx, f, a); err == nil {
				return out.result()
			}
		}
		return f.failed(ctx, t.name, err).result()
	}
}

// rawArguments are the bytes that the client sent.
func rawArguments(req mcp.CallToolRequest) json.RawMessage {
	if len(req.Params.RawArguments) > 0 {
		return req.Params.RawArguments
	}
	if req.Params.Arguments == nil {
		return nil
	}
	raw, err := json.Marshal(req.Params.Arguments)
	if err != nil {
		return nil
	}
	return raw
}

// failed is the one mapping of errors to what a client sees. The text of an
// error that is not an *engine.Error stays in the log.
func (f *Face) failed(ctx context.Context, tool string, err error) answer {
	var e *engine.Error
	if !errors.As(err, &e) {
		code := engine.CodeOf(err)
		e = &engine.Error{Code: code, Message: "An internal error kept gavel from answering.", Hint: "The log has the details."}
		if code == engine.CodeCancelled {
			e.Message, e.Hint = "The request ended before gavel could answer.", "Check the status before trying again."
		}
	}
	if e.Code == engine.CodeInternal || e.Code == engine.CodeUnavailable {
		f.cfg.Logger.ErrorContext(ctx, "tool failed", "tool", tool, "code", e.Code, "cause", fmt.Sprint(errors.Unwrap(e)), "error", err)
	}
	out := errorAnswer{Code: e.Code, Message: e.Message, Hint: e.Hint, Path: e.Path, Current: e.Current, Issues: e.Issues}
	for _, info := range engine.Codes {
		if info.Code == e.Code {
			out.Retryable = info.Retryable
		}
	}
	content := map[string]any{"error": out}
	if e.Current != nil { // the position also where every other answer has it
		content["state"], content["nextActions"] = e.Current.State, e.Current.NextActions
		content["progress"], content["complete"] = e.Current.Progress, e.Current.Complete
	}
	if tool == "workflow.judge.config" {
		content["success"], content["message"] = false, e.Error()
	}
	return answer{line: fmt.Sprintf("ERROR %s: %s", e.Code, e.Error()), content: content, refused: true}
}

// verdictLine tells a decision in one line: what was asked, what came of it, and
// when refused what to mend.
func verdictLine(what string, d engine.Decision, pos engine.Position) string {
	var b strings.Builder
	switch {
	case d.Outcome == judge.Escalate:
		fmt.Fprintf(&b, "ESCALATED %s: ", what)
	case d.Outcome == judge.Reject:
		fmt.Fprintf(&b, "REJECTED %s: ", what)
	default:
		fmt.Fprintf(&b, "APPROVED %s. ", what)
	}
	if d.Outcome == judge.Approve {
		b.WriteString(pos.Progress)
	} else {
		b.WriteString(objections(d))
		if d.Applied {
			b.WriteString(" The mode is shadow: the move happened all the same.")
		}
		fmt.Fprintf(&b, " %s", pos.Progress)
	}
	for _, w := range d.Warnings {
		fmt.Fprintf(&b, " Warning: %s", w)
	}
	fmt.Fprintf(&b, " (decided by %s, confidence %.2f, assurance %s)", d.DecidedBy, d.Confidence, d.Assurance)
	return b.String()
}

func objections(d engine.Decision) string {
	if len(d.Violations) == 0 {
		return sentence(d.Reasoning)
	}
	text := strings.Join(d.Violations, "; ")
	if !strings.Contains(d.Reasoning, d.Violations[0]) && d.Reasoning != "" {
		text += ". " + d.Reasoning
	}
	return sentence(text)
}

func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}
