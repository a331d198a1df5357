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

// at is the value that the pointer leads to, nil when there is none.
func (p pointer) at(n *document.Node) *document.Node {
	for _, token := range p.tokens {
		if n = childNode(n, token); n == nil {
			return nil
		}
	}
	return n
}

func childNode(n *document.Node, token string) *document.Node {
	if n == nil || n.Kind != document.Array {
		return n.Get(token)
	}
	if i, ok := document.Index(token); ok && i < len(n.Items) {
		return n.Items[i]
	}
	return nil
}
