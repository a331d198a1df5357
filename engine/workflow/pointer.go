package workflow

import (
	"errors"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// splitPointer decodes a JSON pointer (RFC 6901) into its tokens. The pointer to
// the whole document, "", is refused: no setting of a definition means it.
func splitPointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, errors.New("a JSON pointer names at least one key, such as /customer/id")
	}
	if pointer[0] != '/' {
		return nil, errors.New("a JSON pointer begins with a slash, such as /customer/id")
	}
	if strings.Contains(pointer+"/", "//") {
		return nil, errors.New("a JSON pointer has a name after every slash, such as /customer/id")
	}
	p := document.Pointer(pointer)
	if !p.IsValid() {
		return nil, errors.New(`a "~" in a JSON pointer is written ~0, a "/" within a name ~1`)
	}
	return slices.Collect(p.Tokens()), nil
}

// joinPointer extends a JSON pointer by decoded tokens.
func joinPointer(pointer string, tokens ...string) string {
	return pointer + string(document.PointerOf(tokens...))
}

// parentPointer cuts the last token off.
func parentPointer(pointer string) string { return string(document.Pointer(pointer).Parent()) }
