package gate

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"
)

// foldPath makes one text of the spellings that a file system may take for one name: some tell
// no case apart, and some compose letters.
func foldPath(name string) string { return strings.ToLower(norm.NFC.String(name)) }

// place is a path as patterns see it.
type place struct {
	Path
	folder, home string
}

// matches reports whether a pattern covers a path: it matches the path, or a folder that the path is in.
func (p place) matches(pattern string) bool {
	pattern, name, ok := p.relate(pattern)
	if !ok {
		return false
	}
	for ; name != "." && name != "/" && name != ""; name = path.Dir(name) {
		if doublestar.MatchUnvalidated(pattern, name) {
			return true
		}
	}
	return pattern == "." || pattern == "/" || pattern == "**" || pattern == "/**"
}

// reaches reports whether a pattern covers a path or, of a folder, what may be in it.
func (p place) reaches(pattern string) bool {
	if p.matches(pattern) {
		return true
	}
	if !p.Below {
		return false
	}
	pattern, name, ok := p.relate(pattern)
	if !ok { // a folder around the project's
		return isWithin(foldPath(p.folder), foldPath(p.Name))
	}
	folders := splitPath(name)
	for i, part := range splitPath(pattern) {
		if i == len(folders) || part == "**" {
			return true
		}
		if !doublestar.MatchUnvalidated(part, folders[i]) {
			return false
		}
	}
	return false
}

// relate gives a pattern and the path in the form in which they are compared: both absolute, or both
// from the project's folder. A path outside of that has no such form.
func (p place) relate(pattern string) (absolute, name string, ok bool) {
	name = foldPath(path.Clean(p.Name))
	switch {
	case pattern == "~" || strings.HasPrefix(pattern, "~/"):
		if p.home == "" {
			return "", "", false
		}
		return escapePattern(strings.TrimSuffix(foldPath(p.home), "/")) + pattern[1:], name, true
	case strings.HasPrefix(pattern, "/") || len(pattern) > 1 && pattern[1] == ':': // C:/
		return pattern, name, true
	}
	folder := foldPath(p.folder)
	if !isWithin(name, folder) {
		return "", "", false
	}
	if name = strings.TrimPrefix(name[len(folder):], "/"); name == "" {
		name = "."
	}
	return pattern, name, true
}

// isWithin reports whether a path is a folder or in it.
func isWithin(name, folder string) bool {
	rest, ok := strings.CutPrefix(name, folder)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(folder, "/"))
}

func splitPath(name string) []string {
	if name = strings.Trim(name, "/"); name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// escapePattern makes a pattern of a name that matches nothing else.
func escapePattern(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`).Replace(name)
}
