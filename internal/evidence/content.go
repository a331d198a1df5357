package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// maxResultDepth leaves room for what the value is put into afterwards.
const maxResultDepth = 56

// failedFetch is a Fetched without content.
func failedFetch(f judge.EvidenceFailure, format string, args ...any) judge.Fetched {
	return judge.Fetched{Failure: f, Detail: fmt.Sprintf(format, args...)}
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

// pointer is a JSON pointer (RFC 6901).
type pointer struct {
	text   string
	tokens []string
}

func parsePointer(text string) (pointer, error) {
	if text == "" {
		return pointer{}, nil
	}
	if text[0] != '/' {
		return pointer{}, errors.New("a JSON pointer begins with a slash, such as /exitCode")
	}
	p := document.Pointer(text)
	if !p.IsValid() {
		return pointer{}, errors.New(`a "~" in a JSON pointer is written ~0, a "/" within a name ~1`)
	}
	return pointer{text, slices.Collect(p.Tokens())}, nil
}

// selectParts takes the parts of content that say whether two results are the same: an
// object of those that are there, by pointer. nil, for all of content, when none is.
func selectParts(content json.RawMessage, pointers []pointer) json.RawMessage {
	if len(pointers) == 0 {
		return nil
	}
	root, err := document.ReadJSON(content, document.Limits{Bytes: len(content)})
	if err != nil {
		return nil // all of it: never fewer differences than there are
	}
	var d objectWriter
	for _, p := range pointers {
		if part := root.At(p.tokens...); part.Kind() != 0 {
			d.set(p.text, json.RawMessage(part.Canonical()))
		}
	}
	if d.b.Len() == 0 {
		return nil
	}
	return d.end()
}

// cleanOutput makes text of what a program wrote for a terminal: valid UTF-8 without
// escape sequences and without control characters but line ends and tabs.
func cleanOutput(b []byte) string {
	var out strings.Builder
	out.Grow(len(b))
	broken := false
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1:
			if !broken { // one mark for a row of them
				out.WriteRune(utf8.RuneError)
			}
			broken, b = true, b[1:]
			continue
		case r == 0x1B:
			size += escapeLength(b[1:])
		case r == 0x9B: // the one-character form of ESC [
			size += controlLength(b[size:])
		case r == '\n' || r == '\t' || !unicode.IsControl(r):
			out.Write(b[:size])
		}
		broken, b = false, b[size:]
	}
	return out.String()
}

// escapeLength is the length of an escape sequence behind its ESC.
func escapeLength(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '[':
		return 1 + controlLength(b[1:])
	case ']', 'P', 'X', '^', '_':
		// A string for the terminal. One without an end takes no more than its line.
		for i := 1; i < len(b); i++ {
			switch {
			case b[i] == '\n':
				return i
			case b[i] == 0x07:
				return i + 1
			case b[i] == 0x1B && i+1 < len(b) && b[i+1] == '\\':
				return i + 2
			}
		}
		return len(b)
	}
	n := 0
	for n < len(b) && b[n] >= 0x20 && b[n] <= 0x2F {
		n++
	}
	if n < len(b) && b[n] >= 0x30 && b[n] <= 0x7E {
		n++
	}
	return n
}

// controlLength is the length of a control sequence behind its introducer.
func controlLength(b []byte) int {
	n := 0
	for n < len(b) && b[n] >= 0x20 && b[n] <= 0x3F {
		n++
	}
	if n < len(b) && b[n] >= 0x40 && b[n] <= 0x7E {
		n++
	}
	return n
}
