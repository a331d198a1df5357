package author

import (
	"cmp"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// templates holds a folder for each template of gavel init: the files for flows/, and gavel.yaml if the template is
// for the hooks of a coding agent.
//
//go:embed templates
var templates embed.FS

// SettingsFile is the name of the configuration file that gavel init writes.
const SettingsFile = "gavel.yaml"

// project is what templates need to know about the project in a folder.
type project struct {
	name    string
	markers []string // files that identify it
	test    []string // the test command
	frozen  []string // patterns of its tests, and of the files that decide which tests run and how
}

// projects are the kinds of projects that gavel init recognises. The templates are written for the first one.
var projects = []project{
	{"Go", []string{"go.mod"}, []string{"go", "test", "./..."}, []string{"**/*_test.go", "**/testdata/**", "**/.gitignore"}},
	{"Node", []string{"package.json"}, []string{"npm", "test"}, []string{
		"**/*.test.*", "**/*.spec.*", "**/__tests__/**", "**/__snapshots__/**", "test/**", "tests/**", "package.json", "jest.config.*", "vitest.config.*", "**/.gitignore",
	}},
	{"Python", []string{"pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt"}, []string{"python3", "-m", "pytest"}, []string{
		"**/test_*.py", "**/*_test.py", "**/conftest.py", "test/**", "tests/**", "pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini", "**/.gitignore",
	}},
}

// otherProject is used for a folder that has none of the markers.
var otherProject = project{"", nil, []string{"make", "test"}, []string{
	"**/*_test.*", "**/test_*", "**/*.test.*", "**/*.spec.*", "**/testdata/**", "test/**", "tests/**", "Makefile", "**/.gitignore",
}}

// findProject returns the kind of project that a folder belongs to: that of the folder, or of the next one up to the
// root of the repository.
func findProject(folder string) project {
	top := folder
	for dir := folder; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			top = dir
			break
		}
	}
	for dir := folder; ; dir = filepath.Dir(dir) {
		for _, p := range projects {
			for _, marker := range p.markers {
				if _, err := os.Stat(filepath.Join(dir, marker)); err == nil {
					return p
				}
			}
		}
		if dir == top {
			return otherProject
		}
	}
}

// settingTexts returns the project's command and patterns as they appear in settings.
func (p project) settingTexts() []string {
	quote := func(before string) string {
		return `"` + before + strings.Join(p.frozen, `", "`+before) + `"`
	}
	return []string{"[" + strings.Join(p.test, ", ") + "]", quote(""), quote(":(glob)"), quote(":(glob,exclude)")}
}

// fitSettings adapts the settings of a template, which are written for the first of projects.
func (p project) fitSettings(settings string) string {
	var pairs []string
	for i, word := range projects[0].settingTexts() {
		pairs = append(pairs, word, p.settingTexts()[i])
	}
	return strings.NewReplacer(pairs...).Replace(settings)
}

// readTemplate returns the files of a template, with the settings and the workflow first.
func readTemplate(name string, p project) (files []newFile, err error) {
	root := path.Join("templates", name)
	if !fs.ValidPath(root) || strings.Contains(name, "/") || name == "" {
		root = "templates/none"
	}
	err = fs.WalkDir(templates, root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := templates.ReadFile(at)
		f := newFile{"flows" + strings.TrimPrefix(at, root), string(text), "a validator"}
		switch {
		case path.Base(at) == SettingsFile:
			f = newFile{SettingsFile, p.fitSettings(f.text), "settings, and the gates on the agent's tools"}
			if test := p.settingTexts()[0]; strings.Contains(f.text, test) {
				f.about += "; tests are run with " + strings.Join(p.test, " ")
				if p.name == "" {
					f.about += ": change it there if yours differ"
				}
			}
		case cli.IsTestFile(at):
			f.about = "its tests: gavel test flows"
		case path.Ext(at) == ".yaml":
			f.about = "the workflow"
		}
		files = append(files, f)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		all, _ := templates.ReadDir("templates")
		names := make([]string, len(all))
		for i, entry := range all {
			names[i] = entry.Name()
		}
		return nil, term.UsageErrorf("templates: "+strings.Join(names, ", "), "there is no template %q", name)
	}
	slices.SortStableFunc(files, func(a, b newFile) int {
		return cmp.Or(cmp.Compare(strings.Count(a.path, "/"), strings.Count(b.path, "/")), cmp.Compare(len(a.path), len(b.path)))
	})
	return files, err
}
