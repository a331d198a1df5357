package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns the pages that people read.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out[file] = string(text)
		}
	}
	return out
}

// fileBlock matches a YAML example whose first line names its file.
var fileBlock = regexp.MustCompile("(?s)```yaml\n# (\\S+\\.yaml)\n(.*?)```")

var (
	goTest  = regexp.MustCompile("`go test \\./([^ `]*)([^`]*)`")
	named   = regexp.MustCompile(`-(run|bench|fuzz) (\w+)`)
	link    = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	docFile = regexp.MustCompile(`\bdocs/[a-z-]+\.md\b`)
)

// Every test or benchmark named in a page exists.
func TestPagesNameExistingTests(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{"run": `\nfunc (Test|Example)`, "bench": `\nfunc Benchmark`, "fuzz": `\nfunc Fuzz`}
	for file, text := range pages(t) {
		for _, m := range goTest.FindAllStringSubmatch(text, -1) {
			source := testSource(t, m[1])
			for _, n := range named.FindAllStringSubmatch(m[2], -1) {
				name := regexp.MustCompile(kinds[n[1]] + `\w*` + strings.TrimPrefix(n[2], "Test"))
				if n[2] != "xxx" && !name.MatchString(source) {
					t.Errorf("%s: %s names no such test", file, m[0])
				}
			}
		}
	}
}

// Links between pages point to existing files and headings.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	known := map[string][]string{} // anchors by page
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md", "packaging/*.md", "packaging/*/*.md"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
				target, anchor := file, m[2]
				if m[1] != "" {
					target = filepath.Join(filepath.Dir(file), m[1])
				}
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s links to %s, which does not exist", file, m[1])
				} else if anchor != "" {
					if known[target] == nil {
						known[target] = anchors(t, target)
					}
					if !slices.Contains(known[target], anchor) {
						t.Errorf("%s links to %s#%s, but there is no such heading", file, m[1], anchor)
					}
				}
			}
		}
	}
}

// anchors returns the link fragments of a page's headings.
func anchors(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
		out = append(out, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return out
}

// Pages named by code, help texts and packaging files exist.
func TestPagesThatCodeNames(t *testing.T) {
	t.Parallel()
	var found int
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == ".tmp" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !slices.Contains([]string{".go", ".txtar", ".md", ".yaml", ""}, filepath.Ext(path)) || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, page := range docFile.FindAllString(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join("..", "..", page)); err != nil {
				t.Errorf("%s names %s, which does not exist", path, page)
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d names of pages found, %v", found, err)
	}
}

// testSource returns the test source of a package, or of all packages for "...".
func testSource(t *testing.T, dir string) string {
	t.Helper()
	if dir == "..." {
		return ""
	}
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("the package %s has no tests: %v", dir, err)
	}
	var b strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(source)
	}
	return b.String()
}
