package evidence

import (
	"errors"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

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
