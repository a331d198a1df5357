package httpapi

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Update makes the golden files anew.
var Update = flag.Bool("update", false, "write the golden files anew")

const module = "github.com/gavel-mcp/gavel/"

// source is what the comments and constants of this module say, so that the document says
// it in the same words.
type source struct {
	t        testing.TB
	packages map[string]*words
}

// words are those of one package.
type words struct {
	types  map[string]string
	fields map[string]string   // by "Type.Field"
	values map[string][]string // the constants of a string type
}

// of reads a package of this module once.
func (s *source) of(pkg string) *words {
	if w, ok := s.packages[pkg]; ok {
		return w
	}
	w := &words{types: map[string]string{}, fields: map[string]string{}, values: map[string][]string{}}
	s.packages[pkg] = w
	dir, ours := strings.CutPrefix(pkg, module)
	if !ours {
		return w
	}
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no sources of %s: %v", pkg, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				w.read(g)
			}
		}
	}
	return w
}

func (w *words) read(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch one := spec.(type) {
		case *ast.TypeSpec:
			doc := one.Doc
			if doc == nil {
				doc = g.Doc
			}
			w.types[one.Name.Name] = said(doc)
			if st, ok := one.Type.(*ast.StructType); ok {
				w.readFields(one.Name.Name, st)
			}
		case *ast.ValueSpec:
			name, ok := one.Type.(*ast.Ident)
			if g.Tok != token.CONST || !ok {
				continue
			}
			for _, v := range one.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil && text != "" {
						w.values[name.Name] = append(w.values[name.Name], text)
					}
				}
			}
		}
	}
}

func (w *words) readFields(of string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		doc := said(f.Doc)
		if doc == "" {
			doc = said(f.Comment)
		}
		for _, n := range f.Names {
			w.fields[of+"."+n.Name] = doc
		}
	}
}

func said(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}

// aboutType is the comment of a type without its name, which readers of JSON do not know.
func (s *source) aboutType(t reflect.Type) string {
	text := s.of(t.PkgPath()).types[t.Name()]
	return sentenceOf(withoutName(text, t.Name()))
}

// aboutField is the comment of a field, with the name that it has in JSON.
func (s *source) aboutField(t reflect.Type, f reflect.StructField, name string) string {
	text := s.of(t.PkgPath()).fields[t.Name()+"."+f.Name]
	text = strings.TrimPrefix(withoutName(text, f.Name), f.Name+": ")
	text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, name)
	return sentenceOf(text)
}

// withoutName turns "State is where it is" into "where it is", and leaves "Data of the
// action" as it is.
func withoutName(text, name string) string {
	rest, ok := strings.CutPrefix(text, name+" ")
	if !ok || strings.HasPrefix(rest, "of ") || strings.HasPrefix(rest, "in ") || strings.HasPrefix(rest, "and ") || strings.HasPrefix(rest, "with ") {
		return text
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return rest
}

func (s *source) valuesOf(t reflect.Type) []string { return s.of(t.PkgPath()).values[t.Name()] }

// sentenceOf begins with a capital letter and ends with a point.
func sentenceOf(text string) string {
	text = strings.TrimSuffix(strings.TrimSpace(text), ";")
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
