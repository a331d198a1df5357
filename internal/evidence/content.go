package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// maxResultDepth limits the nesting of a result. It leaves room for the structures that embed the result.
const maxResultDepth = 56

// failedFetch returns a FetchResult without content.
func failedFetch(f judge.EvidenceFailure, format string, args ...any) judge.FetchResult {
	return judge.FetchResult{Failure: f, Detail: fmt.Sprintf(format, args...)}
}

// objectWriter writes a JSON object key by key.
type objectWriter struct{ b bytes.Buffer }

func (w *objectWriter) set(key string, value any) {
	w.b.WriteByte("{,"[min(w.b.Len(), 1)])
	w.write(key)
	w.b.WriteByte(':')
	w.write(value)
}

func (w *objectWriter) write(value any) {
	text, _ := document.Marshal(value) // cannot fail: the values are strings, numbers and checked JSON
	w.b.Write(text)
}

func (w *objectWriter) end() json.RawMessage {
	w.b.WriteByte('}')
	return w.b.Bytes()
}

// checkJSON describes what is wrong with a JSON value, without quoting it, or returns "".
func checkJSON(raw []byte, limit int) (problem string) {
	err := document.CheckJSON(raw, document.Limits{Bytes: limit, Depth: maxResultDepth})
	if issue, ok := err.(*document.Issue); ok { //nolint:errorlint // CheckJSON returns this type or nil
		return fmt.Sprintf("is not acceptable JSON (%s at line %d, column %d)", issue.Rule, issue.Line, issue.Column)
	}
	return ""
}

func parsePointer(text string) (document.Pointer, error) {
	p := document.Pointer(text)
	if !p.IsValid() {
		return "", errors.New(`a JSON pointer begins with a slash, such as /exitCode; a "~" in it is written ~0, a "/" within a name ~1`)
	}
	return p, nil
}

// selectParts returns the parts of content to compare, as an object by pointer. It omits missing parts, and returns
// nil, which selects all of content, if no part exists.
func selectParts(content json.RawMessage, pointers []document.Pointer) json.RawMessage {
	if len(pointers) == 0 {
		return nil
	}
	root, err := document.ReadJSON(content, document.Limits{Bytes: len(content)})
	if err != nil {
		return nil // compare everything, so that no difference is missed
	}
	var d objectWriter
	for _, p := range pointers {
		if part := root.At(slices.Collect(p.Tokens())...); part.Kind() != 0 {
			d.set(string(p), json.RawMessage(part.Canonical()))
		}
	}
	if d.b.Len() == 0 {
		return nil
	}
	return d.end()
}

// escapes matches terminal output that is not text: control sequences, strings (an unterminated one extends at most
// to the end of its line), and other escapes.
var escapes = regexp.MustCompile(`\x1b(?:\[[ -?]*[@-~]?|[\]PX^_](?:[^\n]*?(?:\x07|\x1b\\)|[^\n]*)|[ -/]*[0-~]?)`)

// cleanOutput converts terminal output to plain text: valid UTF-8 without escape sequences, and without control
// characters except line ends and tabs.
func cleanOutput(b []byte) string {
	const oneCharacter, introducer = "\u009b", "\x1b[" // two encodings of the same control sequence introducer
	text := strings.ReplaceAll(string(bytes.ToValidUTF8(b, []byte("\uFFFD"))), oneCharacter, introducer)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, escapes.ReplaceAllString(text, ""))
}
