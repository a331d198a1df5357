package agent

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

// Places is what the command on the client's machine looked up about the names in an event. It is sent to a
// server, which never looks up names given by a caller.
type Places struct {
	// Home replaces ~; "" if unknown.
	Home string `json:"home,omitempty"`
	// Projects holds the projects of the folders in which the event or its shell line acts. The key is the
	// absolute name of the folder as written.
	Projects map[string]Project `json:"projects,omitempty"`
	// Files holds the resolved names of files, by the name as written.
	Files map[string][]gate.Path `json:"files,omitempty"`
}

// Project is the folder that a workflow is about.
type Project struct {
	// Root is the main worktree of the repository that contains the folder, or the folder itself if there
	// is none.
	Root string `json:"root"`
	// Around lists the repositories that contain Root, innermost first.
	Around []string `json:"around,omitempty"`
	// Repository reports that Root is a repository.
	Repository bool `json:"repository,omitempty"`
}

// FindPlaces looks up the names in an event. It resolves symbolic links and finds repositories, but opens
// no file that the event names. Only the command that a client starts may call it.
//
// It reflects the file system at this moment: it cannot detect a file that another program moves
// concurrently, or a second name of a file (a hard link).
func FindPlaces(e Event) Places {
	home, _ := os.UserHomeDir() // without a home folder, ~ is an ordinary name
	p := Places{Projects: map[string]Project{}, Files: map[string][]gate.Path{}}
	if home != "" {
		p.Home = filepath.ToSlash(resolveLinks(home))
	}
	r := resolver{working: resolveLinks(e.Folder), home: home}
	for _, folder := range []string{e.Folder, e.project()} {
		p.Projects[cleanPath(folder)] = findProject(folder)
	}
	for _, name := range e.Paths {
		p.Files[name] = r.listNames(name)
		if trimmed := strings.TrimFunc(name, isBlank); trimmed != name && trimmed != "" { // some clients trim names
			p.Files[name] = append(p.Files[name], r.listNames(trimmed)...)
		}
	}
	var script shell.Script
	if e.Builtin == gate.BuiltinShell {
		script = shell.Read(e.Command)
	}
	for _, command := range script.Commands {
		for _, folder := range []shell.Word{command.Folder, command.Repository} {
			if folder.Known && folder.Text != "" {
				name := e.locate(folder.Text, p.Home)
				p.Projects[name] = findProject(name)
			}
		}
		for _, word := range gate.FileWords(command) {
			switch {
			case p.Files[word.Text] != nil:
			case word.Known:
				p.Files[word.Text] = r.listNames(word.Text)
			case word.Pattern:
				p.Files[word.Text] = r.listMatches(word.Text)
			}
		}
	}
	for _, paths := range p.Files { // a gate on a file uses the workflow of the file's own repository
		for _, file := range paths {
			if len(file.Roots) > 0 {
				p.Projects[file.Roots[0]] = findProject(filepath.FromSlash(file.Roots[0]))
			}
		}
	}
	return p
}

// locate returns the absolute name of a folder that a line names.
func (e Event) locate(name, home string) string {
	if rest, ok := strings.CutPrefix(name+"/", "~/"); ok && home != "" {
		name = home + "/" + rest
	}
	if !filepath.IsAbs(name) {
		name = e.Folder + "/" + name
	}
	return cleanPath(name)
}

func cleanPath(name string) string { return path.Clean(filepath.ToSlash(name)) }

// project returns the folder that a session's work is about.
func (e Event) project() string { return cmp.Or(e.Project, e.Folder) }

// findProject finds the repository that contains a folder. All worktrees of a repository are one project.
func findProject(folder string) Project {
	folder = resolveLinks(filepath.Clean(folder))
	roots := listRepositories(folder)
	if len(roots) == 0 {
		return Project{Root: filepath.ToSlash(folder)}
	}
	return Project{Root: filepath.ToSlash(findMainWorktree(roots[0])), Around: toSlashes(roots[1:]), Repository: true}
}

// listRepositories returns the repositories that contain a folder, innermost first. The folder must not contain
// symbolic links.
func listRepositories(folder string) (roots []string) {
	for at := folder; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			roots = append(roots, at)
		}
		if at == filepath.Dir(at) {
			return roots
		}
	}
}

// maxGitFile limits how much of a .git file is read; it holds a single name.
const maxGitFile = 4096

// findMainWorktree returns the main worktree of the repository to which a linked worktree belongs. It
// returns root itself if it is not a linked worktree, or the repository does not list it.
func findMainWorktree(root string) string {
	admin := readPointer(filepath.Join(root, ".git"), "gitdir: ") // MAIN/.git/worktrees/NAME
	if admin == "" {
		return root
	}
	if !filepath.IsAbs(admin) {
		admin = filepath.Join(root, admin)
	}
	back := readPointer(filepath.Join(admin, "gitdir"), "")
	if !filepath.IsAbs(back) {
		back = filepath.Join(admin, back)
	}
	common := filepath.Dir(filepath.Dir(admin))
	if filepath.Base(filepath.Dir(admin)) != "worktrees" || filepath.Base(common) != ".git" || resolveLinks(back) != filepath.Join(root, ".git") {
		return root
	}
	return resolveLinks(filepath.Dir(common))
}

// readPointer returns the name after a prefix in one of git's small files, or "" for any other content.
func readPointer(file, prefix string) string {
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxGitFile {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	name, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), prefix)
	if !ok || strings.ContainsAny(name, "\n\x00") {
		return ""
	}
	return filepath.FromSlash(name)
}

func toSlashes(names []string) (out []string) {
	for _, name := range names {
		out = append(out, filepath.ToSlash(name))
	}
	return out
}

// isBlank reports whether JavaScript's trim removes a character.
func isBlank(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' }

// resolver resolves names of files as seen from a working folder.
type resolver struct {
	working, home string
}

// listNames returns the names of a file: as written; with the links of its folder resolved, as for a
// removal; and with its own link resolved, as for a write.
func (r resolver) listNames(name string) (paths []gate.Path) {
	if name = filepath.ToSlash(name); name == "~" {
		name = "~/"
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok && r.home != "" {
		name = filepath.ToSlash(r.home) + "/" + rest
	}
	if !filepath.IsAbs(name) {
		name = filepath.ToSlash(r.working) + "/" + name
	}
	if len(name) > gate.MaxName { // a client that opens it cleans the name first
		name = path.Clean(name)
	}
	if len(name) > gate.MaxName {
		return nil
	}
	name = cmp.Or(strings.TrimRight(name, "/"), "/")
	parent, base := name[:strings.LastIndexByte(name, '/')+1], path.Base(name)
	folder := resolveLinks(parent)
	file := followLinks(folder, base)
	info, err := os.Stat(file)
	for _, n := range []string{path.Clean(name), path.Join(filepath.ToSlash(folder), base), filepath.ToSlash(file)} {
		p := gate.Path{Name: n, Below: err == nil && info.IsDir(), Roots: append([]string{}, toSlashes(listRepositories(filepath.FromSlash(n)))...)}
		if !slices.ContainsFunc(paths, func(other gate.Path) bool { return other.Name == n }) {
			paths = append(paths, p)
		}
	}
	return paths
}

// listMatches returns the names of a file pattern: the names of its folder, with the pattern appended.
func (r resolver) listMatches(pattern string) (paths []gate.Path) {
	folder, base := path.Split(pattern)
	if strings.ContainsAny(folder, "*?[") {
		return nil
	}
	for _, p := range r.listNames(cmp.Or(folder, ".")) {
		paths = append(paths, gate.Path{Name: path.Join(p.Name, base), Roots: p.Roots})
	}
	return paths
}

// resolveLinks returns an absolute name without symbolic links, as far as its folders exist.
func resolveLinks(name string) string {
	volume := filepath.VolumeName(name)
	return followLinks(volume+string(filepath.Separator), name[len(volume):])
}

// maxLinks limits how many links are followed; no system opens a file after more.
const maxLinks = 255

// followLinks is like resolveLinks for a name in a folder without links.
func followLinks(folder, name string) string {
	parts := strings.Split(filepath.ToSlash(name), "/")
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		next := filepath.Join(folder, part) // "" and "." give the folder, ".." its parent
		if part == "" || part == "." || part == ".." {
			folder = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil || links == maxLinks { // not a link, or no such file
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
