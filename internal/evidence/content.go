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

// maxResultDepth leaves room for what the value is put into afterwards.
const maxResultDepth = 56

// failedFetch is a FetchResult without content.
func failedFetch(f judge.EvidenceFailure, format string, args ...any) judge.FetchResult {
	return judge.FetchResult{Failure: f, Detail: fmt.Sprintf(format, args...)}
}

// objectWriter is a JSON object that is written key by key.
type objectWriter struct{ b bytes.Buffer }

func (d *objectWriter) set(key string, value any) {
	d.b.WriteByte("{,"[min(d.b.Len(), 1)])
	d.write(key)
	d.b.WriteByte(':')
	d.write(value)
}

func (d *objectWriter) write(value any) {
	text, _ := document.Marshal(value) // texts, numbers and checked JSON only: it does not fail
	d.b.Write(text)
}

func (d *objectWriter) end() json.RawMessage {
	d.b.WriteByte('}')
	return d.b.Bytes()
}

// checkJSON says what is wrong with a JSON value, without quoting it.
func checkJSON(raw []byte, limit int) (problem string) {
	err := document.CheckJSON(raw, document.Limits{Bytes: limit, Depth: maxResultDepth})
	if issue, ok := err.(*document.Issue); ok { //nolint:errorlint // CheckJSON promises this very type
		return fmt.Sprintf("is no JSON that can be taken (%s at line %d, column %d)", issue.Rule, issue.Line, issue.Column)
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

// selectParts takes the parts of content that say whether two results are the same: an
// object of those that are there, by pointer. nil, for all of content, when none is.
func selectParts(content json.RawMessage, pointers []document.Pointer) json.RawMessage {
	if len(pointers) == 0 {
		return nil
	}
	root, err := document.ReadJSON(content, document.Limits{Bytes: len(content)})
	if err != nil {
		return nil // all of it: never fewer differences than there are
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

// escapes are what programs write for a terminal: control sequences, strings (one without an
// end takes no more than its line), and all others.
var escapes = regexp.MustCompile(`\x1b(?:\[[ -?]*[@-~]?|[\]PX^_](?:[^\n]*?(?:\x07|\x1b\\)|[^\n]*)|[ -/]*[0-~]?)`)

// cleanOutput makes text of what a program wrote for a terminal: valid UTF-8 without
// escape sequences and without control characters but line ends and tabs.
func cleanOutput(b []byte) string {
	const oneCharacter, introducer = "\u009b", "\x1b[" // two forms of the same
	text := strings.ReplaceAll(string(bytes.ToValidUTF8(b, []byte("\uFFFD"))), oneCharacter, introducer)
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, escapes.ReplaceAllString(text, ""))
}
