package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Read returns the Go files of the module whose root is fsys, whatever their build tags. Like the go command, it
// skips testdata, vendor, nested modules, and folders whose name starts with "." or "_". It does read the root's own
// testdata package, the only one that can be imported.
func Read(fsys fs.FS) ([]File, error) {
	var files []File
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipFolder(fsys, name)
		case path.Ext(name) != ".go" || strings.HasPrefix(path.Base(name), "_"):
			return nil
		}
		f, err := readFile(fsys, name)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the module's tree: %w", err)
	}
	return files, nil
}

// skipFolder returns nil if the walk must enter a folder, or fs.SkipDir.
func skipFolder(fsys fs.FS, name string) error {
	if name == "." || name == "testdata" {
		return nil
	}
	base := path.Base(name)
	switch {
	case base == "testdata", base == "vendor", base == "node_modules",
		strings.HasPrefix(base, "."), strings.HasPrefix(base, "_"),
		strings.HasPrefix(name, "testdata/"):
		return fs.SkipDir
	}
	switch _, err := fs.Stat(fsys, path.Join(name, "go.mod")); {
	case err == nil:
		return fs.SkipDir
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

func readFile(fsys fs.FS, name string) (File, error) {
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return File{}, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return File{}, err
	}
	f := File{
		Path:    name,
		Package: path.Dir(name),
		Test:    strings.HasSuffix(name, "_test.go"),
		Lines:   bytes.Count(src, []byte("\n")),
	}
	f.Engines = findEngines(parsed)
	f.External = f.Test && strings.HasSuffix(parsed.Name.Name, "_test")
	for _, spec := range parsed.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		f.Imports = append(f.Imports, imp)
	}
	return f, nil
}

// maxAsked is how many methods with an engine.Principal an interface may have before it counts as the engine's. A
// consumer that needs less declares its own interface.
const maxAsked = 3

// findEngines returns the names of interfaces in a file that duplicate the engine's.
func findEngines(file *ast.File) []string {
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		asked := 0
		if i, ok := spec.Type.(*ast.InterfaceType); ok {
			for _, m := range i.Methods.List {
				if takesPrincipal(m.Type) {
					asked++
				}
			}
		}
		if asked > maxAsked {
			names = append(names, spec.Name.Name)
		}
		return true
	})
	return names
}

func takesPrincipal(method ast.Expr) bool {
	f, ok := method.(*ast.FuncType)
	return ok && slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool {
		t, ok := p.Type.(*ast.SelectorExpr)
		return ok && t.Sel.Name == "Principal"
	})
}
