package gate

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/text/unicode/norm"
)

// foldPath maps the spellings that a file system may treat as the same name to one text. Some file systems ignore
// case, and some compose letters.
func foldPath(name string) string { return strings.ToLower(norm.NFC.String(name)) }

// MaxName is the maximum length of a file name, in bytes. No system opens a longer one.
const MaxName = 4096

// covers reports whether a pattern matches a path or one of its parent folders. If below is set and the path is a
// folder, it also reports whether the pattern may match something inside it.
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
		default: // the path may be a parent of the project's folder
			return below && strings.HasPrefix(folder, strings.TrimSuffix(name, "/")+"/")
		}
	})
}

// rootsOf returns the folders that relative patterns start from for a path. If the path's repository was not looked
// up and the path is outside the session's project, any folder above it may be a root.
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

// covers compares a pattern with a name of the same form: both absolute, or both relative to the same folder.
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

// escapePattern returns a pattern that matches only the given name.
func escapePattern(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`).Replace(name)
}
