package gate

import (
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/shell"
)

// isRecursive reports whether a command acts on everything in the folders that it names. cp does not count: the name of
// the copy does not reveal what the folder contains.
func isRecursive(c shell.Command) bool {
	switch programName(c) {
	case "mv", "find", "rsync", "git":
		return true
	case "rm", "chmod", "chown", "chgrp":
		return slices.ContainsFunc(listArguments(c), func(w shell.Word) bool {
			short := strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--")
			return w.Text == "--recursive" || short && strings.ContainsAny(w.Text, "rR")
		})
	}
	return false
}

// fitGlob compares a shell pattern (te*, src/*.py) with a gate's pattern. The result is certain if the gate's pattern
// covers the folder, or names a single file that the shell pattern matches. If below is set, folders that the shell
// pattern may match also count with everything in them.
func (u Use) fitGlob(glob, pattern string, below bool) (f fit) {
	for _, p := range u.PathsOf(glob) {
		folder := Path{Name: path.Dir(p.Name), Roots: p.Roots}
		f = f.or(u.anyPath([]Path{folder}, []string{pattern}, false))
		for _, full := range u.expandPattern(pattern, p) {
			name := splitPath(foldPath(p.Name))
			switch wanted := splitPath(full); {
			case !strings.ContainsAny(full, `*?[{\`) && !slices.Contains(name, "**") && partsIntersect(name, wanted, false):
				f = f.or(u.anyPath([]Path{{Name: full, Roots: p.Roots}}, []string{pattern}, false))
			case partsIntersect(name, wanted, below):
				f = f.or(unknownBecause("The pattern `%s` may match a file that the gate covers. Write the file names.", glob))
			}
		}
	}
	return f
}

// expandPattern returns the absolute forms of a gate's pattern for a path.
func (u Use) expandPattern(pattern string, p Path) (all []string) {
	switch pattern = foldPath(pattern); {
	case pattern == "~" || strings.HasPrefix(pattern, "~/"):
		return []string{escapePattern(foldPath(u.Home)) + pattern[1:]}
	case isAbsolute(pattern):
		return []string{pattern}
	}
	for _, root := range u.rootsOf(p) {
		all = append(all, strings.TrimSuffix(escapePattern(foldPath(root)), "/")+"/"+pattern)
	}
	return all
}

// partsIntersect reports whether a name with shell patterns can be covered by a gate's pattern, as a whole or through
// a parent folder. If below is set, the name may also be a folder that can contain a covered file. The part **
// matches any number of folders on both sides.
func partsIntersect(name, pattern []string, below bool) bool {
	// row[j] reports whether name[i:] and pattern[j:] intersect.
	row := make([]bool, len(pattern)+1)
	for i := len(name); i >= 0; i-- {
		next := slices.Clone(row)
		for j := len(pattern); j >= 0; j-- {
			switch {
			case j == len(pattern):
				row[j] = true
			case i == len(name):
				row[j] = below || pattern[j] == "**" && row[j+1]
			case pattern[j] == "**":
				row[j] = row[j+1] || next[j]
			case name[i] == "**":
				row[j] = next[j] || row[j+1]
			default:
				part := pattern[j]
				if strings.ContainsAny(part, `{\`) {
					part = "*"
				}
				row[j] = next[j+1] && globsIntersect(name[i], part)
			}
		}
	}
	return row[0]
}

// maxGlob limits the length of compared patterns, in characters. File systems do not allow longer names.
const maxGlob = 255

// globsIntersect reports whether one name can match both patterns of *, ? and brackets (treated as ?).
func globsIntersect(a, b string) bool {
	one, other := splitGlob(a), splitGlob(b)
	if len(one) > maxGlob || len(other) > maxGlob {
		return true
	}
	// row[j] reports whether one[i:] and other[j:] intersect.
	row := make([]bool, len(other)+1)
	for i := len(one); i >= 0; i-- {
		below := slices.Clone(row)
		for j := len(other); j >= 0; j-- {
			switch {
			case i == len(one) && j == len(other):
				row[j] = true
			case i < len(one) && one[i] == '*':
				row[j] = below[j] || j < len(other) && row[j+1]
			case j < len(other) && other[j] == '*':
				row[j] = row[j+1] || i < len(one) && below[j]
			case i == len(one) || j == len(other):
				row[j] = false
			default:
				row[j] = (one[i] == '?' || other[j] == '?' || one[i] == other[j]) && below[j+1]
			}
		}
	}
	return row[0]
}

// splitGlob returns the characters of a pattern, with ? for each bracket expression.
func splitGlob(pattern string) (out []rune) {
	runes := []rune(pattern)
	for i := 0; i < len(runes); i++ {
		if end := slices.Index(runes[i:], ']'); runes[i] == '[' && end > 0 {
			out = append(out, '?')
			i += end
			continue
		}
		out = append(out, runes[i])
	}
	return out
}
