package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
)

// DefinitionFiles expands patterns to a sorted list of files without duplicates. A pattern is a file, a
// folder (its .json, .yaml and .yml files) or a glob. Test files are left out. A pattern that matches no
// file is an error.
func DefinitionFiles(patterns []string) ([]string, error) {
	all, err := collectFiles(patterns, filesIn)
	files := slices.DeleteFunc(slices.Clone(all), IsTestFile)
	if len(all) > 0 && len(files) == 0 {
		return nil, term.UsageErrorf("gavel test runs it", "%s holds tests of a workflow, not a definition", all[0])
	}
	return files, err
}

// TestEndings are the file name endings of tests, which are stored next to definitions.
var TestEndings = []string{".test.yaml", ".test.yml", ".test.json"}

// IsTestFile reports whether a file next to definitions contains tests.
func IsTestFile(path string) bool {
	return slices.ContainsFunc(TestEndings, func(end string) bool { return strings.HasSuffix(strings.ToLower(path), end) })
}

// collectFiles expands patterns; inFolder lists the files if a pattern is a folder.
func collectFiles(patterns []string, inFolder func(dir string) ([]string, error)) ([]string, error) {
	var out []string
	for _, pattern := range patterns {
		files, err := expandPattern(pattern, inFolder)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func expandPattern(pattern string, inFolder func(dir string) ([]string, error)) ([]string, error) {
	info, err := os.Stat(pattern)
	switch {
	case err == nil && info.IsDir():
		return inFolder(pattern)
	case err == nil:
		return []string{filepath.Clean(pattern)}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, term.UnknownErrorf("", "cannot read %s: %w", pattern, err)
	}
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil, term.UsageErrorf(`in a pattern, * matches any part of a name, ? one character, [ab] one of those characters`, "invalid pattern %s: %w", pattern, err)
	}
	var files []string
	for _, path := range matches {
		if isFile(path) {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		if strings.ContainsAny(pattern, "*?[") {
			return nil, term.UsageErrorf("", "no file matches %s", pattern)
		}
		return nil, term.UsageErrorf("", "there is no file %s", pattern)
	}
	return files, nil
}

// FindFiles returns the files that paths name. Folders are searched recursively for files with these endings. noun
// describes the files in errors.
func FindFiles(paths []string, noun string, endings ...string) ([]string, error) {
	return collectFiles(paths, func(dir string) (files []string, err error) {
		err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(name, end) }) {
				files = append(files, filepath.Clean(name))
			}
			return err
		})
		if err != nil {
			return nil, term.UnknownErrorf("", "cannot look through %s: %w", dir, err)
		}
		if len(files) == 0 {
			return nil, term.UsageErrorf("their names end in "+OrList(endings), "%s holds no %s", dir, noun)
		}
		return files, nil
	})
}

// OrList formats words as "a, b or c".
func OrList(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// filesIn lists the definitions in a folder.
func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot read the folder: %w", err)
	}
	var files []string
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); HasDefinitionEnding(path) && isFile(path) && !IsTestFile(path) {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, term.UsageErrorf("", "the folder %s has no definition: no .json, .yaml or .yml file", dir)
	}
	return files, nil
}

// HasDefinitionEnding reports whether a file may be a definition, by its name.
func HasDefinitionEnding(path string) bool {
	return slices.Contains([]string{".json", ".yaml", ".yml"}, strings.ToLower(filepath.Ext(path)))
}

// IsEmptyFolder reports whether a pattern is a folder without definitions, such as one that another program
// will fill.
func IsEmptyFolder(pattern string) bool {
	info, err := os.Stat(pattern)
	if err != nil || !info.IsDir() {
		return false
	}
	_, err = os.ReadDir(pattern)
	files, none := filesIn(pattern)
	return err == nil && none != nil && len(files) == 0
}

// IssueLine formats an issue as compilers do: file:line: severity: message.
func IssueLine(file string, i workflow.Issue) string {
	at := file
	if i.Line > 0 {
		at = fmt.Sprintf("%s:%d", file, i.Line)
	}
	path := i.Path
	if path != "" {
		path += ": "
	}
	return fmt.Sprintf("%s: %s: %s%s [%s]", at, i.Severity, path, i.Message, i.Rule)
}

// IssueLines formats issues in the order of their lines, one per line.
func IssueLines(file string, issues []workflow.Issue) []string {
	SortIssues(issues)
	lines := make([]string, len(issues))
	for i, issue := range issues {
		lines[i] = IssueLine(file, issue)
	}
	return lines
}

// SortIssues sorts issues by line.
func SortIssues(issues []workflow.Issue) {
	slices.SortStableFunc(issues, func(a, b workflow.Issue) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
