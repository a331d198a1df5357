package evidence

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/egress"
)

// addressTemplate is a URL in which path segments and query values may contain arguments. The scheme, host, number of
// segments and query keys are fixed.
type addressTemplate struct {
	scheme, host string
	segments     []template
	query        []queryPart
	patterned    map[string]bool // arguments that have a pattern
}

type queryPart struct {
	key   string // as sent
	bare  bool   // without "="
	value template
}

var errWhere = errors.New("arguments may appear only in path segments and query values")

func parseAddress(s string) (*addressTemplate, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7F || strings.ContainsRune("\\\"<>^`", r) }) {
		return nil, errors.New("the address contains a character that must be percent-encoded (in a host name: punycode)")
	}
	if strings.Contains(s, "#") {
		return nil, errors.New("the address has a fragment, which is never sent; remove it")
	}
	scheme, rest, ok := strings.Cut(s, "://")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if strings.Contains(scheme+authority, "{{") {
		return nil, errWhere
	}
	if scheme = strings.ToLower(scheme); !ok || scheme != "https" && scheme != "http" {
		return nil, errors.New("the address must begin with https:// (or http://, in a private network)")
	}
	host, err := egress.ParseAuthority(authority)
	if err != nil {
		return nil, err
	}
	path, query, hasQuery := strings.Cut(rest[end:], "?")
	a := &addressTemplate{scheme: scheme, host: host}
	if a.segments, err = parsePath(path); err != nil {
		return nil, err
	}
	if hasQuery {
		a.query, err = parseQuery(query)
	}
	return a, err
}

func parsePath(path string) ([]template, error) {
	var out []template
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		t, err := parseTemplate(segment)
		if err != nil {
			return nil, err
		}
		for _, p := range t {
			if _, err := url.PathUnescape(p.text); err != nil {
				return nil, errors.New(`invalid percent-encoding in the path`)
			}
		}
		if text, err := url.PathUnescape(segment); t.isFixed() && (err != nil || isPathTraversal(text)) {
			return nil, errors.New(`the path has a "." or ".." segment; write the resolved path`)
		}
		out = append(out, t)
	}
	return out, nil
}

func parseQuery(query string) ([]queryPart, error) {
	var out []queryPart
	for part := range strings.SplitSeq(query, "&") {
		key, value, ok := strings.Cut(part, "=")
		if strings.Contains(key, "{{") {
			return nil, errWhere
		}
		t, err := parseTemplate(value)
		if err != nil {
			return nil, err
		}
		for _, text := range append(fixedTexts(t), key) {
			if _, err := url.QueryUnescape(text); err != nil || strings.Contains(text, ";") {
				return nil, errors.New(`the query contains a ";" or an invalid percent-encoding`)
			}
		}
		out = append(out, queryPart{key: key, bare: !ok, value: t})
	}
	return out, nil
}

func fixedTexts(t template) []string {
	var out []string
	for _, p := range t {
		out = append(out, p.text)
	}
	return out
}

// arguments returns the names of all arguments in the address.
func (a *addressTemplate) arguments() []string {
	var out []string
	for _, s := range a.segments {
		out = append(out, s.arguments()...)
	}
	for _, q := range a.query {
		out = append(out, q.value.arguments()...)
	}
	return out
}

// expand inserts values into the address. problem describes a value that does not fit, or is "".
func (a *addressTemplate) expand(values map[string]string) (u *url.URL, problem string) {
	var b strings.Builder
	b.WriteString(a.scheme + "://" + a.host)
	for _, t := range a.segments {
		segment := t.expand(values, url.PathEscape)
		if !t.isFixed() {
			plain, err := url.PathUnescape(segment)
			if err != nil || plain == "" || isPathTraversal(plain) {
				return nil, fmt.Sprintf("the argument %q would lead to another path", t.arguments()[0])
			}
			if a.spansSegments(t, values) {
				return nil, fmt.Sprintf("the argument %q would be more than one segment of the path", t.arguments()[0])
			}
		}
		b.WriteString("/" + segment)
	}
	for i, q := range a.query {
		b.WriteByte("?&"[min(i, 1)])
		b.WriteString(q.key)
		if !q.bare {
			b.WriteString("=" + q.value.expand(values, url.QueryEscape))
		}
	}
	u, err := url.Parse(b.String())
	if err != nil || u.Scheme != a.scheme || u.Host != a.host || u.User != nil || u.Fragment != "" {
		return nil, "the arguments do not produce an address of the declared form"
	}
	return u, ""
}

// spansSegments reports whether the values for a segment contain a slash that no pattern allows. The slash is sent
// encoded, but servers that decode it first would serve another resource.
func (a *addressTemplate) spansSegments(segment template, values map[string]string) bool {
	var b strings.Builder
	for _, name := range segment.arguments() {
		if !a.patterned[name] {
			b.WriteString(values[name])
		}
	}
	return afterDecoding(b.String(), func(s string) bool { return strings.ContainsAny(s, `/\`) })
}

// isPathTraversal reports whether a text, used as part of a path, would lead to another path: as it is, or after
// extra decodings by a proxy or server.
func isPathTraversal(text string) bool {
	return afterDecoding(text, func(s string) bool {
		parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' })
		return slices.ContainsFunc(parts, func(p string) bool {
			p, _, _ = strings.Cut(p, ";") // some servers remove parameters: "..;x"
			return p == "." || p == ".."
		})
	})
}

// afterDecoding reports whether a text is wrong as it is or after up to three decodings.
func afterDecoding(text string, wrong func(string) bool) bool {
	for range 4 {
		if wrong(text) {
			return true
		}
		next, err := url.PathUnescape(text)
		if err != nil || next == text {
			return false
		}
		text = next
	}
	return true // nothing legitimate is encoded this often
}
