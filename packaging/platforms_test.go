package packaging_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var platforms = flag.String("platforms", "", "check that all packages, tests included, compile for these, such as windows/amd64,darwin/arm64")

// listed is a package from `go list`.
type listed struct {
	ImportPath, Dir, Name string
	GoFiles               []string
	ImportMap             map[string]string
	Standard              bool
	Module                *struct {
		Main      bool
		GoVersion string
	}

	parsed []*ast.File
}

func (p *listed) ours() bool { return p.Module != nil && p.Module.Main }

// TestPlatforms type-checks everything for each platform. It does not compile dependencies, most of which have
// other files on another platform: that takes minutes and finds nothing more.
func TestPlatforms(t *testing.T) {
	if *platforms == "" {
		t.Skip("asked for with -platforms")
	}
	for _, platform := range strings.Split(*platforms, ",") {
		t.Run(platform, func(t *testing.T) {
			goos, arch, _ := strings.Cut(platform, "/")
			packages := listPackages(t, goos, arch)
			files := token.NewFileSet()
			parsePackages(t, files, packages)
			checked := map[string]*types.Package{"unsafe": types.Unsafe}
			ours := 0
			for _, p := range packages {
				if p.ImportPath == "unsafe" || p.Name == "main" && strings.HasSuffix(p.ImportPath, ".test") {
					continue // package unsafe has no sources, test mains are generated
				}
				if p.ours() {
					ours++
				}
				checked[p.ImportPath] = checkPackage(t, files, p, arch, checked)
			}
			if ours < 50 {
				t.Errorf("only %d packages and tests of this module", ours)
			}
		})
	}
}

// listPackages returns all packages of the module with their tests, each after its imports.
func listPackages(t *testing.T, goos, arch string) (packages []*listed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-json=ImportPath,Dir,Name,GoFiles,ImportMap,Standard,Module", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, &p)
	}
}

// parsePackages parses the files of packages. For packages of other modules it skips function bodies.
func parsePackages(t *testing.T, files *token.FileSet, packages []*listed) {
	t.Helper()
	work := make(chan *listed)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range work {
				for _, name := range p.GoFiles {
					file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
					if err != nil {
						t.Error(err)
						continue
					}
					if !p.ours() {
						dropBodies(file)
					}
					p.parsed = append(p.parsed, file)
				}
			}
		})
	}
	for _, p := range packages {
		if p.Name != "main" || !strings.HasSuffix(p.ImportPath, ".test") {
			work <- p
		}
	}
	close(work)
	workers.Wait()
}

func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			f.Body.List = nil
		}
	}
}

// importedOf resolves a package's imports among checked packages.
type importedOf struct {
	of      *listed
	checked map[string]*types.Package
}

// Import implements types.Importer.
func (i importedOf) Import(path string) (*types.Package, error) {
	if actual := i.of.ImportMap[path]; actual != "" {
		path = actual
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not listed", path)
}

func checkPackage(t *testing.T, files *token.FileSet, p *listed, arch string, checked map[string]*types.Package) *types.Package {
	t.Helper()
	config := types.Config{
		Importer: importedOf{p, checked}, Sizes: types.SizesFor("gc", arch),
		IgnoreFuncBodies: !p.ours(), DisableUnusedImportCheck: !p.ours(),
		Error: func(err error) { t.Errorf("%s: %v", p.ImportPath, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	done, _ := config.Check(path, files, p.parsed, nil) // reported by Error
	p.parsed = nil
	return done
}
