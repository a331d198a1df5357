package document

import (
	"iter"
	"strings"
)

// Pointer is a JSON pointer (RFC 6901), as in encoding/json/jsontext.
type Pointer string

var (
	tokenEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	tokenUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// PointerOf returns the pointer with the given decoded tokens.
func PointerOf(tokens ...string) Pointer {
	var p Pointer
	for _, t := range tokens {
		p = p.AppendToken(t)
	}
	return p
}

// IsValid reports whether p is "", or begins with a slash and contains "~" only as ~0 or ~1.
func (p Pointer) IsValid() bool {
	for i := range len(p) {
		if p[i] == '~' && (i+1 == len(p) || p[i+1] != '0' && p[i+1] != '1') {
			return false
		}
	}
	return p == "" || p[0] == '/'
}

// AppendToken returns p extended by one decoded token.
func (p Pointer) AppendToken(token string) Pointer {
	return p + "/" + Pointer(tokenEscaper.Replace(token))
}

// Tokens returns the decoded tokens.
func (p Pointer) Tokens() iter.Seq[string] {
	return func(yield func(string) bool) {
		if p == "" {
			return
		}
		for token := range strings.SplitSeq(strings.TrimPrefix(string(p), "/"), "/") {
			if !yield(tokenUnescaper.Replace(token)) {
				return
			}
		}
	}
}

// Parent returns p without its last token.
func (p Pointer) Parent() Pointer { return p[:max(strings.LastIndexByte(string(p), '/'), 0)] }
