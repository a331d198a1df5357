package hook

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// listFolders returns the folder of the project that a working folder is in, and those of the
// projects around it, from the inside out.
func listFolders(working string) (folders []string) {
	working = resolveLinks(filepath.Clean(working))
	for at := working; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			folders = append(folders, at)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if folders == nil {
		return []string{working}
	}
	return folders
}

// project is the folder that the work of a session is about.
func (e Event) project() string { return cmp.Or(e.Project, e.Folder) }

// ProjectVariable is the variable of the environment in which a client tells a hook the folder that
// the session began in, "" for none.
func ProjectVariable(client string) string {
	return map[string]string{"claude-code": "CLAUDE_PROJECT_DIR", "cursor": "CURSOR_PROJECT_DIR", "gemini": "GEMINI_PROJECT_DIR"}[client]
}

// NewUse makes of an event what gates look at. script is what its command runs.
//
// Files are named as the file system has them now: one that another program moves meanwhile, or that
// has a second name (a hard link), is not seen.
func NewUse(e Event, script shell.Script) gate.Use {
	home, _ := os.UserHomeDir() // without one, ~ is a name like any other
	r := resolver{working: resolveLinks(e.Folder), home: home, folders: map[string]string{}}
	u := gate.Use{Tool: e.Builtin, Script: script, URL: e.URL}
	for _, folder := range append(listFolders(e.project()), listFolders(e.Folder)...) {
		if folder = filepath.ToSlash(folder); !slices.Contains(u.Folders, folder) {
			u.Folders = append(u.Folders, folder)
		}
	}
	if home != "" {
		u.Home = filepath.ToSlash(resolveLinks(home))
	}
	for _, name := range e.Paths {
		u.Paths = append(u.Paths, r.listNames(name)...)
		if trimmed := strings.TrimFunc(name, isBlank); trimmed != name && trimmed != "" { // as some clients do
			u.Paths = append(u.Paths, r.listNames(trimmed)...)
		}
	}
	u.Named = map[string][]gate.Path{}
	for _, command := range script.Commands {
		words := gate.FileWords(command)
		if len(command.Words) > 0 {
			words = append(words, command.Resolve(command.Words[0]))
		}
		for _, word := range words {
			if word.Known && u.Named[word.Text] == nil {
				u.Named[word.Text] = r.listNames(word.Text)
			}
		}
	}
	return u
}

// isBlank reports whether JavaScript trims a character.
func isBlank(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' }

// resolver finds files by the names that are used in a working folder.
type resolver struct {
	working, home string
	folders       map[string]string // without links, by how they are written
}

// listNames returns the names that a file has: as it is written, with the links of its folder
// resolved (what is removed or replaced), and with its own (what is written).
func (r *resolver) listNames(name string) (paths []gate.Path) {
	if name = filepath.ToSlash(name); name == "~" {
		name = "~/"
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok && r.home != "" {
		name = filepath.ToSlash(r.home) + "/" + rest
	}
	if !filepath.IsAbs(name) {
		name = filepath.ToSlash(r.working) + "/" + name
	}
	if len(name) > gate.MaxName { // a client that opens it cleans it first
		name = path.Clean(name)
	}
	if len(name) > gate.MaxName {
		return nil
	}
	name = cmp.Or(strings.TrimRight(name, "/"), "/")
	parent, base := name[:strings.LastIndexByte(name, '/')+1], path.Base(name)
	folder, ok := r.folders[parent]
	if !ok {
		folder = resolveLinks(parent)
		r.folders[parent] = folder
	}
	file := followLinks(folder, base)
	info, err := os.Stat(file)
	for _, n := range []string{path.Clean(name), path.Join(filepath.ToSlash(folder), base), filepath.ToSlash(file)} {
		p := gate.Path{Name: n, Below: err == nil && info.IsDir()}
		if !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	return paths
}

// resolveLinks returns an absolute name without symbolic links, as far as its folders exist.
func resolveLinks(name string) string {
	volume := filepath.VolumeName(name)
	return followLinks(volume+string(filepath.Separator), name[len(volume):])
}

// maxLinks is how many links a name may lead over; no system opens a file after more.
const maxLinks = 255

// followLinks is resolveLinks for a name in a folder without links.
func followLinks(folder, name string) string {
	parts := strings.Split(filepath.ToSlash(name), "/")
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		next := filepath.Join(folder, part) // of "" and ".", the folder; of "..", the one around it
		if part == "" || part == "." || part == ".." {
			folder = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil || links == maxLinks { // no link, or no such file
			folder = next
			continue
		}
		links++
		if volume := filepath.VolumeName(target); filepath.IsAbs(target) {
			folder, target = volume+string(filepath.Separator), target[len(volume):]
		}
		parts = append(strings.Split(filepath.ToSlash(target), "/"), parts...)
	}
	return folder
}
