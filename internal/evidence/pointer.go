package evidence

import (
	"errors"
	"strconv"
	"strings"

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
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(t), "~") {
			return pointer{}, errors.New(`a "~" in a JSON pointer is written ~0, a "/" within a name ~1`)
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return pointer{text, tokens}, nil
}

func escapeToken(t string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(t) }

// at is the value that the pointer leads to, nil when there is none.
func (p pointer) at(n *document.Node) *document.Node {
	for _, token := range p.tokens {
		if n = child(n, token); n == nil {
			return nil
		}
	}
	return n
}

func child(n *document.Node, token string) *document.Node {
	if n == nil || n.Kind != document.Array {
		return n.Get(token)
	}
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i >= len(n.Items) || strconv.Itoa(i) != token {
		return nil
	}
	return n.Items[i]
}
