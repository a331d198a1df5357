package operation

import (
	"errors"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
)

// Explain returns an error as callers see it: the text of an error that is not an *engine.Error stays in the log.
// defect reports that the error must be logged.
func Explain(err error) (e *engine.Error, defect bool) {
	if !errors.As(err, &e) {
		e = &engine.Error{Code: engine.CodeOf(err), Message: "An internal error kept gavel from answering.", Hint: "The log has the details.", Err: err}
		if e.Code == engine.CodeCancelled {
			e.Message, e.Hint = "The request ended before gavel could answer.", "Check the status before trying again."
		}
	}
	return e, e.Code == engine.CodeInternal || e.Code == engine.CodeUnavailable || e.Code == engine.CodeUntrustedRules || e.Code == engine.CodeValuesUnreadable
}

// CodeInfo returns the documentation of an engine's code, or a generic text for an unknown code.
func CodeInfo(code engine.Code) engine.CodeInfo {
	if i := slices.IndexFunc(engine.Codes, func(c engine.CodeInfo) bool { return c.Code == code }); i >= 0 {
		return engine.Codes[i]
	}
	return engine.CodeInfo{Code: code, Meaning: "An error without a description."}
}

// DescribeRefusal returns the reasoning of a decision, followed by the violations that the reasoning does not contain.
func DescribeRefusal(d engine.Decision) string {
	text := endSentence(d.Reasoning)
	for _, v := range d.Violations {
		if !strings.Contains(d.Reasoning, v) {
			text = strings.TrimSpace(text + " " + endSentence(v))
		}
	}
	return text
}

// endSentence ends a text with a full stop unless it already ends as a sentence.
func endSentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}
