package gate

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"
)

// foldPath makes one text of the spellings that a file system may take for one name: some tell
// no case apart, and some compose letters.
func foldPath(name string) string { return strings.ToLower(norm.NFC.String(name)) }

// MaxName is how long the name of a file may be, in bytes: no system opens one by a longer name.
const MaxName = 4096

// covers reports whether a pattern covers a path: it matches the path, or a folder that the path
// is in. With below it also does where it may match something in the path, a folder.
func (u Use) covers(pattern string, p Path, below bool) bool {
	below = below && p.Below
	name := path.Clean(p.Name)
	if len(name) > MaxName {
		return false
	}
	pattern, name = foldPath(pattern), foldPath(name)
	switch {
	case pattern == "~" || strings.HasPrefix(pattern, "~/"):
		home := strings.TrimSuffix(foldPath(u.Home), "/")
		return home != "" && covers(escapePattern(home)+pattern[1:], name, below)
	case isAbsolute(pattern):
		return covers(pattern, name, below)
	}
	return slices.ContainsFunc(u.rootsOf(p), func(folder string) bool {
		folder = strings.TrimSuffix(foldPath(folder), "/")
		switch {
		case name == folder:
			return covers(pattern, ".", below)
		case strings.HasPrefix(name, folder+"/"):
			return covers(pattern, name[len(folder)+1:], below)
		default: // a folder around the project's
			return below && strings.HasPrefix(folder, strings.TrimSuffix(name, "/")+"/")
		}
	})
}

// rootsOf are the folders that relative patterns begin in for a file. Where nobody looked up its
// repository and it is outside of the session's project, every folder above it may be one.
func (u Use) rootsOf(p Path) []string {
	inside := func(folder string) bool { return strings.HasPrefix(p.Name+"/", strings.TrimSuffix(folder, "/")+"/") }
	if p.Roots != nil || slices.ContainsFunc(u.Folders, inside) {
		return slices.Concat(u.Folders, p.Roots)
	}
	roots := slices.Clone(u.Folders)
	for at := path.Dir(path.Clean(p.Name)); ; at = path.Dir(at) {
		roots = append(roots, at)
		if at == "/" || at == "." {
			return roots
		}
	}
}

func isAbsolute(pattern string) bool {
	return strings.HasPrefix(pattern, "/") || len(pattern) > 1 && pattern[1] == ':' // C:/
}

// covers compares a pattern with a path in the same form: both absolute, or both from a folder on.
func covers(pattern, name string, below bool) bool {
	if pattern == "." || pattern == "/" {
		return true
	}
	if name != "." && (doublestar.MatchUnvalidated(pattern, name) || doublestar.MatchUnvalidated(pattern+"/**", name)) {
		return true
	}
	if !below {
		return false
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
