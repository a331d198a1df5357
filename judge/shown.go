package judge

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
)

// masked is what stands for a confidential value (engine/workflow writes it).
const masked = "[masked]"

// The shortest quote that counts when it is not a whole value, and how much of one
// is looked up, in runes.
const (
	minQuote    = 3
	maxEvidence = 500
)

// shown is exactly what a model was shown of a case.
type shown struct{ documents []shownDocument }

// holds reports whether evidence is in what was shown: the JSON pointer of a value
// that is there, or a verbatim quote out of a value or of several, as their JSON
// stands there. Runs of white space count as one space; nothing else is forgiven. A
// key alone, punctuation, a note that something was cut and a masked value are no
// evidence. Of long evidence the beginning is looked up. When not, it says why.
func (s shown) holds(evidence string) (bool, string) {
	plain := startOfQuote(collapseSpace(evidence))
	inner := startOfQuote(unwrapQuote(evidence))
	switch {
	case inner == "":
		return false, "no evidence was given"
	case !strings.ContainsFunc(inner, letterOrDigit):
		return false, "the quote has neither a letter nor a digit"
	}
	values := s.values()
	found, why := s.findPointer(inner)
	if found || slices.Contains(values, plain) {
		return true, ""
	}
	if why != "" {
		return false, why
	}
	for _, quote := range []string{plain, inner} {
		if containsQuote(values, quote) || s.inJSON(quote) {
			return true, ""
		}
	}
	for _, value := range s.withoutKeys(inner) {
		if containsQuote(values, unwrapQuote(value)) {
			return true, ""
		}
	}
	return false, "the quote is not in what the model was shown"
}

// startOfQuote is as much of a quote as is looked up. What opened it and is closed only
// behind that is taken off.
func startOfQuote(s string) string {
	r := []rune(s)
	if len(r) <= maxEvidence {
		return s
	}
	return strings.TrimLeft(string(r[:maxEvidence]), "\"'`“„« ")
}

// unwrapQuote is a quote without what models put around it.
func unwrapQuote(s string) string {
	s = collapseSpace(s)
	for {
		before := s
		for _, w := range [][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"„", "“"}, {"«", "»"}} {
			if len(s) > len(w[0])+len(w[1]) && strings.HasPrefix(s, w[0]) && strings.HasSuffix(s, w[1]) {
				s = strings.TrimSpace(s[len(w[0]) : len(s)-len(w[1])])
			}
		}
		if s == before {
			return s
		}
	}
}

// collapseSpace is s with every run of white space and control characters as one space,
// and none around it: an answer's control characters have become spaces already.
func collapseSpace(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

func letterOrDigit(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// containsQuote reports whether the values hold the quote: in one piece, as JSON would
// escape it, or in pieces around an ellipsis, all of one value and in order.
func containsQuote(values []string, quote string) bool {
	if inOne(values, []string{quote}) {
		return true
	}
	var unescaped string
	if strings.Contains(quote, `\`) && json.Unmarshal([]byte(`"`+quote+`"`), &unescaped) == nil && inOne(values, []string{collapseSpace(unescaped)}) {
		return true
	}
	if pieces := piecesOf(quote); len(pieces) > 0 {
		return inOne(values, pieces)
	}
	return false
}

// piecesOf are the parts around ellipses, nil when there is no ellipsis.
func piecesOf(quote string) []string {
	parts := strings.Split(strings.ReplaceAll(quote, "...", "…"), "…")
	if len(parts) < 2 {
		return nil
	}
	var out []string
	for _, p := range parts {
		if p = unwrapQuote(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// inOne reports whether one value holds all pieces in order, each of which says
// something.
func inOne(values, pieces []string) bool {
	for _, p := range pieces {
		if !strings.ContainsFunc(p, letterOrDigit) {
			return false
		}
	}
	for _, v := range values {
		rest, all := v, true
		for _, p := range pieces {
			at := strings.Index(rest, p)
			if at < 0 || v != p && len([]rune(p)) < minQuote {
				all = false
				break
			}
			rest = rest[at+len(p):]
		}
		if all {
			return true
		}
	}
	return false
}

// values are all scalars that were shown, white space collapsed. Notes of what
// was cut away and masked values are not among them.
func (s shown) values() []string {
	var out []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if v != masked {
				out = append(out, collapseSpace(v))
			}
		case clipped:
			out = append(out, collapseSpace(v.text))
		case json.Number:
			out = append(out, v.String())
		case bool:
			out = append(out, strconv.FormatBool(v))
		case array:
			for _, item := range v.items {
				walk(item)
			}
		case object:
			for _, p := range v.pairs {
				walk(p.value)
			}
		}
	}
	for _, d := range s.documents {
		walk(d.root)
	}
	return out
}

// member is a quote that names the key before the value: comments: "text", or
// "comments": "text", perhaps with more of the line behind it.
var member = regexp.MustCompile(`^[{,\s]*"?([^":=]{1,100}?)"?\s*[:=]\s*(.+?)[},\s]*$`)

// withoutKeys are the values of a quote that names keys which were shown.
func (s shown) withoutKeys(quote string) []string {
	m := member.FindStringSubmatch(quote)
	if m == nil || !s.hasKey(strings.TrimSpace(m[1])) {
		return nil
	}
	return []string{m[2], strings.TrimPrefix(m[2], `"`)} // the quote may end inside of the value
}

// hasKey reports whether an object that was shown has the key; a path of keys
// counts by its last one.
func (s shown) hasKey(key string) bool {
	if at := strings.LastIndexAny(key, "./"); at >= 0 {
		key = key[at+1:]
	}
	var has func(any) bool
	has = func(v any) bool {
		switch v := v.(type) {
		case array:
			for _, item := range v.items {
				if has(item) {
					return true
				}
			}
		case object:
			for _, p := range v.pairs {
				if p.key == key || has(p.value) {
					return true
				}
			}
		}
		return false
	}
	for _, d := range s.documents {
		if key == d.name || has(d.root) {
			return true
		}
	}
	return false
}

// findPointer looks evidence up as a JSON pointer (RFC 6901), with or without the
// name of the document before it; behind a # also as a URI fragment, with percent
// signs. A text that leads nowhere may still be a quote: then both results are empty.
func (s shown) findPointer(evidence string) (bool, string) {
	path, isFragment := strings.CutPrefix(evidence, "#")
	if !strings.HasPrefix(path, "/") {
		return false, ""
	}
	v, ok := s.resolve(path)
	if plain, err := url.PathUnescape(path); isFragment && !ok && err == nil {
		v, ok = s.resolve(plain)
	}
	switch {
	case !ok:
		return false, ""
	case !isEvidence(v):
		return false, "what " + path + " points at is empty or was cut away"
	}
	return true, ""
}

// resolve follows a pointer: in the document that it names, else in the data, else in
// the context.
func (s shown) resolve(path string) (any, bool) {
	steps := slices.Collect(document.Pointer(path).Tokens())
	for _, d := range s.documents {
		if steps[0] == d.name && len(steps) > 1 {
			if v, ok := followPointer(d.root, steps[1:]); ok {
				return v, true
			}
		}
	}
	for i := len(s.documents) - 1; i >= 0; i-- { // the data first
		if v, ok := followPointer(s.documents[i].root, steps); ok {
			return v, true
		}
	}
	return nil, false
}

// isEvidence reports whether a value is more than a place where one could be.
func isEvidence(v any) bool {
	switch v := v.(type) {
	case nil, truncated:
		return false
	case string:
		return strings.ContainsFunc(v, letterOrDigit)
	case clipped:
		return strings.ContainsFunc(v.text, letterOrDigit)
	case array:
		return slices.ContainsFunc(v.items, isEvidence)
	case object:
		return slices.ContainsFunc(v.pairs, func(p pair) bool { return isEvidence(p.value) })
	}
	return true
}

// followPointer follows a pointer.
func followPointer(v any, steps []string) (any, bool) {
	for _, t := range steps {
		switch c := v.(type) {
		case array:
			i, ok := document.Index(t)
			if !ok || i >= len(c.items) {
				return nil, false
			}
			v = c.items[i]
		case object:
			found := false
			for _, p := range c.pairs {
				if p.key == t {
					v, found = p.value, true
					break
				}
			}
			if !found {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return v, true
}
