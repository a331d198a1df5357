package upstream

import (
	"net/url"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
)

// patterns returns the rule's patterns for a kind.
func (r Rule) patterns(kind Kind) []string {
	switch kind {
	case KindTool:
		return r.Tools
	case KindPrompt:
		return r.Prompts
	default:
		return r.Resources
	}
}

// isFor reports whether the rule applies to a principal.
func (r Rule) isFor(p engine.Principal) bool {
	return p.ID != "" && (len(r.Roles) == 0 || slices.Contains(r.Roles, p.Role)) && (len(r.Principals) == 0 || matchesAny(r.Principals, p.ID))
}

// allows reports whether a principal may use an item of the upstream.
func (s Server) allows(p engine.Principal, kind Kind, name string) bool {
	return slices.ContainsFunc(s.Allow, func(r Rule) bool { return r.isFor(p) && matchesAny(r.patterns(kind), name) })
}

// AllowsAnybody reports whether some principal may use an item of the upstream.
func (s Server) AllowsAnybody(kind Kind, name string) bool {
	return slices.ContainsFunc(s.Allow, func(r Rule) bool { return matchesAny(r.patterns(kind), name) })
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return engine.MatchName(pattern, name) })
}

// isPlainURI reports whether a URI that fills a template means exactly what its text shows. Such a URI has no dot
// segments, no backslashes, no control characters, and nothing hidden by double percent-encoding. Otherwise, a pattern
// that allows file:///data/* would also match file:///data/../etc.
func isPlainURI(uri string) bool {
	for round := range 4 {
		if strings.ContainsFunc(uri, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7F }) {
			return false
		}
		for segment := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune("/?#:;&=", r) }) {
			if segment == "." || segment == ".." {
				return false
			}
		}
		next, err := url.PathUnescape(uri)
		if err != nil || next == uri {
			return err == nil || round > 0
		}
		uri = next
	}
	return false
}
