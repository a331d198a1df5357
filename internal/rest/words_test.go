package rest

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// Update regenerates the golden files.
var Update = flag.Bool("update", false, "write the golden files anew")

const module = "github.com/gavel-mcp/gavel/"

// words are the texts of the schemas. They do not come from Go comments, which mention names and values that JSON
// does not have.
type words struct {
	t      testing.TB
	said   map[string]string // by "Type", "Type.member" and "member"
	own    map[string]bool   // those of words.txt; true once used
	values map[string]map[string][]string
}

const wordsFile = "testdata/words.txt"

func readWords(t testing.TB) *words {
	w := &words{t: t, said: map[string]string{}, own: map[string]bool{}, values: map[string]map[string][]string{}}
	for _, file := range []string{"../mcp/face/help.txt", wordsFile} { // later ones override earlier ones
		text, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, said, ok := strings.Cut(strings.TrimSpace(line), ": ")
			if !ok || strings.HasPrefix(name, "#") {
				continue
			}
			if file == wordsFile {
				if _, twice := w.own[name]; twice || w.said[name] == said {
					t.Errorf("%s says %s twice, or as the other file does", wordsFile, name)
				}
				w.own[name] = false
			}
			w.said[name] = said
		}
	}
	return w
}

// find returns the text of the first of these names that has one.
func (w *words) find(names ...string) string {
	for _, name := range names {
		if text, ok := w.said[name]; ok {
			if _, own := w.own[name]; own {
				w.own[name] = true
			}
			return text
		}
	}
	w.t.Errorf("%s lacks a line for %s", wordsFile, names[0])
	return ""
}

// unused returns the lines of words.txt that were not used.
func (w *words) unused() []string {
	var out []string
	for name, used := range w.own {
		if !used {
			out = append(out, name)
		}
	}
	return out
}

// valuesOf returns the constants of a string type of this module.
func (w *words) valuesOf(t reflect.Type) []string {
	dir, ours := strings.CutPrefix(t.PkgPath(), module)
	if !ours {
		return nil
	}
	if w.values[dir] == nil {
		w.values[dir] = w.readValues(dir)
	}
	return w.values[dir][t.Name()]
}

func (w *words) readValues(dir string) map[string][]string {
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
	if err != nil || len(files) == 0 {
		w.t.Fatalf("no sources of %s: %v", dir, err)
	}
	values := map[string][]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			w.t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GenDecl); ok && g.Tok == token.CONST {
				addValues(values, g)
			}
			_, function := n.(*ast.FuncDecl)
			return !function
		})
	}
	return values
}

func addValues(values map[string][]string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		one, _ := spec.(*ast.ValueSpec)
		of, ok := one.Type.(*ast.Ident)
		if !ok {
			continue
		}
		for _, v := range one.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && text != "" {
					values[of.Name] = append(values[of.Name], text)
				}
			}
		}
	}
}
