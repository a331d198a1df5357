package schema

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

func escapeToken(token string) string { return string(document.PointerOf(token)[1:]) }

func unescapeToken(token string) string {
	for plain := range document.Pointer("/" + token).Tokens() {
		return plain
	}
	return ""
}

// decodeLocation turns one of the library's locations, which are URL fragments, into a
// JSON pointer.
func decodeLocation(location string) string {
	if !strings.Contains(location, "%") {
		return location
	}
	segments := strings.Split(location, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = plain
		}
	}
	return strings.Join(segments, "/")
}

// missing is the result of lookup when nothing is there.
type missing struct{}

// lookup returns the value at a JSON pointer of a decoded document.
func lookup(doc any, path string) any {
	if path == "" {
		return doc
	}
	for token := range strings.SplitSeq(path[1:], "/") {
		switch v := doc.(type) {
		case map[string]any:
			sub, ok := v[unescapeToken(token)]
			if !ok {
				return missing{}
			}
			doc = sub
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return missing{}
			}
			doc = v[i]
		default:
			return missing{}
		}
	}
	return doc
}

// cutLast splits the last segment off a path.
func cutLast(path string) (before, last string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// clip shortens text to about n bytes, between characters.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
