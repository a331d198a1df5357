package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrInput reports an invalid Batch or document: an input that is too long or is not a JSON object, or too
// many scripts. It is the caller's mistake, never the script's.
var ErrInput = errors.New("script input rejected")

// maxNesting limits the nesting of brackets in a source, and so the cost of the parser's recursion in the
// worker. Honest scripts need fewer than 10 levels.
const maxNesting = 64

// checkSource checks a source without parsing it. It returns the problem, or "" if the source may go to a
// worker. Parsing in this process would be unsafe: 21 bytes can make a JavaScript compiler allocate until
// the process is killed.
func checkSource(s Script, maxSource, maxSchema int) string {
	if s.Kind == Schema {
		maxSource = maxSchema
	}
	switch {
	case s.Kind != Validator && s.Kind != Condition && s.Kind != Schema:
		return fmt.Sprintf("unknown script kind %q; use %q or %q", Clean(string(s.Kind), 32), Validator, Condition)
	case strings.TrimSpace(s.Source) == "":
		return "the source is empty; " + describeForm(s.Kind)
	case len(s.Source) > maxSource:
		return fmt.Sprintf("the source has %d bytes, more than the %d allowed; move constant tables into the data or split the checks", len(s.Source), maxSource)
	case !utf8.ValidString(s.Source):
		return "the source is not valid UTF-8"
	case strings.IndexByte(s.Source, 0) >= 0:
		return "the source contains a NUL character; write \\u0000 inside a string instead"
	}
	if countBracketDepth(s.Source) > maxNesting {
		return fmt.Sprintf("brackets nest deeper than %d levels; split the script into smaller functions", maxNesting)
	}
	return ""
}

// countBracketDepth returns the maximum nesting of brackets. It does not recognise strings, comments or
// regular expressions, so brackets in them count too. It stops simple attacks early; the length limit
// bounds crafted ones.
func countBracketDepth(source string) int {
	depth, most := 0, 0
	for i := 0; i < len(source); i++ {
		switch source[i] {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return most
}

// describeForm returns a sentence that explains how to write a script of a kind.
func describeForm(k Kind) string {
	switch k {
	case Schema:
		return "write a JSON Schema, for example {\"type\": \"object\", \"required\": [\"total\"]}"
	case Condition:
		return "write one expression over data, context, evidence and call that is true or false, for example context.total > 100"
	}
	return "write one function, for example (data, context) => ({ valid: data.total > 0, reason: 'total must be positive' })"
}

// checkInput rejects input that is too long to send. The worker's decoder checks that it is JSON.
func checkInput(name string, raw json.RawMessage, limit int) error {
	if len(raw) > limit {
		return fmt.Errorf("%w: %s has %d bytes, more than the %d allowed", ErrInput, name, len(raw), limit)
	}
	return nil
}
