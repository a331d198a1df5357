package operation

import (
	"errors"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
)

// Explain is an error as callers see it: the text of one that is not an *engine.Error
// stays in the log. defect says that it belongs there.
func Explain(err error) (e *engine.Error, defect bool) {
	if !errors.As(err, &e) {
		e = &engine.Error{Code: engine.CodeOf(err), Message: "An internal error kept gavel from answering.", Hint: "The log has the details.", Err: err}
		if e.Code == engine.CodeCancelled {
			e.Message, e.Hint = "The request ended before gavel could answer.", "Check the status before trying again."
		}
	}
	return e, e.Code == engine.CodeInternal || e.Code == engine.CodeUnavailable || e.Code == engine.CodeUntrustedRules || e.Code == engine.CodeValuesUnreadable
}

// CodeInfo documents a code of the engine; one that it does not know is a defect.
func CodeInfo(code engine.Code) engine.CodeInfo {
	if i := slices.IndexFunc(engine.Codes, func(c engine.CodeInfo) bool { return c.Code == code }); i >= 0 {
		return engine.Codes[i]
	}
	return engine.CodeInfo{Code: code, Meaning: "An error without a description."}
}

// Objections are the reasoning, which says what is wrong and what to do, and the
// violations that it leaves out.
func Objections(d engine.Decision) string {
	text := endSentence(d.Reasoning)
	for _, v := range d.Violations {
		if !strings.Contains(d.Reasoning, v) {
			text = strings.TrimSpace(text + " " + endSentence(v))
		}
	}
	return text
}

// endSentence ends a text as a sentence does.
func endSentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}
