package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// maxLines is the maximum length of a Go file that is not a test. A longer file does more than one thing.
const maxLines = 800

// File holds the properties of one Go file that the rules check.
type File struct {
	// Path is the file, relative to the module's root, with slashes.
	Path string
	// Package is the file's folder, relative to the module's root.
	Package string
	// Imports are its import paths.
	Imports []string
	// Test marks a _test.go file; External marks one whose package clause ends in _test.
	Test, External bool
	// Lines is its number of lines.
	Lines int
	// Engines names its interfaces that have too many of the engine's methods.
	Engines []string
}

// engineDeclarer is the only face or service that may declare the engine's interface.
const engineDeclarer = "internal/operation"

// Check returns one sentence for each violation of the rules in f, or none. External test files are exempt from the
// import law, because they use the package from outside, as its users do.
func Check(f File) []string {
	law, listed := findPackage(f.Package)
	if !listed {
		return []string{fmt.Sprintf("%s: package %q is not in the import law: give it a row in Packages", f.Path, f.Package)}
	}
	var out []string
	if !f.Test && f.Lines > maxLines {
		out = append(out, fmt.Sprintf("%s: %d lines; split it: the limit is %d", f.Path, f.Lines, maxLines))
	}
	if f.External {
		return out
	}
	if len(f.Engines) > 0 && f.Package != engineDeclarer && !strings.HasPrefix(f.Package, moduleFolder) && (strings.HasPrefix(f.Package, "internal/") || strings.HasPrefix(f.Package, "cmd/")) {
		out = append(out, fmt.Sprintf("%s: the interface %s is the engine's; only %s declares it: use operation.Engine", f.Path, f.Engines[0], engineDeclarer))
	}
	for _, imp := range f.Imports {
		if rel, own := strings.CutPrefix(imp+"/", Module+"/"); own {
			out = append(out, checkOwn(f, law, path.Clean(rel))...)
			continue
		}
		for _, d := range Doors {
			if d.covers(imp) && !slices.Contains(d.Doors, f.Package) && !(d.Tests && f.Test) {
				out = append(out, fmt.Sprintf("%s: imports %s, whose door is %s: %s", f.Path, imp, d.where(), d.Why))
			}
		}
	}
	return out
}

// checkOwn checks an import of a package of this module.
func checkOwn(f File, law Package, rel string) []string {
	if module := moduleOf(rel); module != "" && module != moduleOf(f.Package) && f.Path != moduleList && !(f.Test && (f.Package == programFolder || isTestOf(module, f))) {
		return []string{fmt.Sprintf("%s: imports %s, a module: only %s names modules, so that each can be removed", f.Path, rel, moduleList)}
	}
	if f.Test && moduleOf(rel) != "" && isTestOf(moduleOf(rel), f) {
		return nil
	}
	if rel == f.Package || rel == Ground || slices.Contains(law.May, rel) {
		return nil
	}
	if f.Test && isSupportFor(rel, law) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s may not import %s: the import law does not list it", f.Path, f.Package, rel)}
}

// isTestOf reports whether the name of a test file says that it is about a module, so that it is removed with the module.
func isTestOf(module string, f File) bool {
	name := path.Base(f.Path)
	return name == module+"_test.go" || strings.HasPrefix(name, module+"_")
}

// isSupportFor reports whether rel is test support code that gives the tests of law's package no dependency that the
// package itself may not have.
func isSupportFor(rel string, law Package) bool {
	target, listed := findPackage(rel)
	return listed && target.TestOnly && !slices.ContainsFunc(target.May, func(dep string) bool {
		return dep != law.Path && !slices.Contains(law.May, dep)
	})
}

// moduleOf returns the name of the module that a package belongs to, or "".
func moduleOf(pkg string) string {
	rest, _ := strings.CutPrefix(pkg, moduleFolder)
	if rest == pkg {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func findPackage(path string) (Package, bool) {
	i := slices.IndexFunc(Packages, func(p Package) bool { return p.Path == path })
	if i < 0 {
		return Package{}, false
	}
	return Packages[i], true
}

// covers reports whether imp is one of the door's dependencies or a package below one.
func (d Door) covers(imp string) bool {
	return slices.ContainsFunc(d.Deps, func(dep string) bool {
		return imp == dep || strings.HasPrefix(imp, dep+"/")
	})
}

func (d Door) where() string {
	if len(d.Doors) == 0 {
		return "closed"
	}
	return strings.Join(d.Doors, ", ")
}
