package archtest_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.yaml.in/yaml/v4"

	"github.com/gavel-mcp/gavel/internal/archtest"
)

// root is the module's root, relative to this package's folder.
const root = "../.."

func TestTreeObeysTheLaw(t *testing.T) {
	t.Parallel()
	files, err := archtest.Read(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("read no Go file: the root is wrong")
	}
	for _, f := range files {
		for _, breach := range archtest.Check(f) {
			t.Error(breach)
		}
	}
}

// Each case adds one file to an otherwise empty module, and has the expected message, or "" for none.
func TestPlanted(t *testing.T) {
	t.Parallel()
	const module, root = `"` + archtest.Module + `/`, `"` + archtest.Module + `"`
	const asks = "A(ctx context.Context, p engine.Principal); B(engine.Principal); C(engine.Principal, string) error; D(_ context.Context, _ engine.Principal)"
	cases := []struct {
		name, file, source, want string
	}{
		{"downward", "engine/a.go", "package engine; import " + module + `judge"`, ""},
		{"upward", "judge/a.go", "package judge; import " + module + `engine"`, "judge may not import engine"},
		{"sideways", "internal/mcp/face/a.go", "package face; import " + module + `internal/rest"`, "internal/mcp/face may not import internal/rest"},
		{"leaf", "prompts/a.go", "package prompts; import " + module + `judge"`, "prompts may not import judge"},
		{"the ground", "prompts/a.go", "package prompts; import " + module + `validators/document"`, ""},
		{"the ground imports nothing", "validators/document/a.go", "package document; import " + module + `internal/fairshare"`, "validators/document may not import internal/fairshare"},
		{"the sandbox's inside", "engine/a.go", "package engine; import " + module + `validators/script/worker"`, "may not import validators/script/worker"},
		{"wiring for programs", "a.go", "package gavel; import " + module + `internal/mcp/face"`, ""},
		{"the root in the engine", "engine/suite/a.go", "package suite; import " + root, "engine/suite may not import ."},
		{"the root in the command", "cmd/gavel/a.go", "package main; import " + root, ""},
		{"wiring", "cmd/gavel/a.go", "package main; import " + module + `internal/config"`, ""},
		{"a driver", "internal/modules/postgres/a.go", "package postgres; import (" + module + `engine/store"; ` + module + `engine/record")`, ""},
		{"a driver that knows the engine", "engine/store/sqlite/a.go", "package sqlite; import " + module + `engine"`, "engine/store/sqlite may not import engine"},
		{"a driver that knows definitions", "engine/store/memory/a.go", "package memory; import " + module + `engine/workflow"`, "engine/store/memory may not import engine/workflow"},
		{"a core that audits", "engine/a.go", "package engine; import " + module + `engine/audit"`, "engine may not import engine/audit"},
		{"a module in a test of its own", "engine/demo_a_test.go", "package engine; import " + module + `internal/modules/demo"`, ""},
		{"an import that audits", "internal/modules/transfer/portable/a.go", "package portable; import " + module + `engine/audit"`, "internal/modules/transfer/portable may not import engine/audit"},
		{"an audit of the engine", "engine/audit/a.go", "package audit; import " + module + `engine"`, ""},
		{"a store that knows the engine", "engine/store/a.go", "package store; import " + module + `engine"`, "engine/store may not import engine"},
		{"in-package test, upward", "judge/a_test.go", "package judge; import " + module + `engine"`, "judge may not import engine"},
		{"external test, upward", "judge/a_test.go", "package judge_test; import " + module + `engine"`, ""},
		{"any build tag", "judge/a_plan9.go", "//go:build ignore\n\npackage judge; import " + module + `engine"`, "judge may not import engine"},

		{"a command in another", "cmd/gavel/internal/review/a.go", "package review; import " + module + `cmd/gavel/internal/instance"`, "may not import"},
		{"a command in what commands share", "internal/cli/a.go", "package cli; import " + module + `cmd/gavel/internal/serve"`, "may not import"},
		{"what commands share", "cmd/gavel/internal/admin/a.go", "package admin; import " + module + `internal/cli"`, ""},
		{"the list of modules", "cmd/gavel/modules/modules.go", "package modules; import _ " + module + `internal/modules/demo"`, ""},
		{"a module in the program", "cmd/gavel/a.go", "package main; import " + module + `internal/modules/demo"`, "only cmd/gavel/modules/modules.go names modules"},
		{"a module in a test of the program", "cmd/gavel/a_test.go", "package main; import " + module + `internal/modules/demo"`, ""},
		{"a module in the core", "engine/a.go", "package engine; import " + module + `internal/modules/demo"`, "only cmd/gavel/modules/modules.go names modules"},
		{"a module in a test of the core", "engine/a_test.go", "package engine; import " + module + `internal/modules/demo"`, "only cmd/gavel/modules/modules.go names modules"},
		{"a module in the registry", "internal/module/a.go", "package module; import " + module + `internal/modules/demo"`, "only cmd/gavel/modules/modules.go names modules"},
		{"a module in another", "internal/modules/demo/a.go", "package demo; import " + module + `internal/modules/other"`, "only cmd/gavel/modules/modules.go names modules"},
		{"a module on a face", "internal/modules/demo/a.go", "package demo; import " + module + `internal/rest"`, "internal/modules/demo may not import internal/rest"},

		{"door", "validators/script/worker/a.go", `package worker; import "github.com/dop251/goja/parser"`, ""},
		{"second door", "engine/workflow/a.go", `package workflow; import "github.com/dop251/goja"`, "whose door is validators/script/worker"},
		{"second door, other major version", "judge/a.go", `package judge; import "github.com/sony/gobreaker/v2"`, "whose door is judge/llm"},
		{"second door, blank import", "cmd/gavel/a.go", `package main; import _ "modernc.org/sqlite"`, "whose door is engine/store/sqlite"},
		{"the protocol library in a face without MCP", "internal/rest/a.go", `package rest; import "github.com/mark3labs/mcp-go/mcp"`, "whose door is internal/mcp/wire"},
		{"the protocol library in the program", "cmd/gavel/a.go", `package main; import "github.com/mark3labs/mcp-go/mcp"`, "whose door is internal/mcp/wire"},
		{"the protocol library in the demo", "internal/modules/demo/a.go", `package demo; import "github.com/mark3labs/mcp-go/mcp"`, ""},
		{"second door, in-package test", "engine/a_test.go", `package engine; import "github.com/mark3labs/mcp-go/mcp"`, "whose door is internal/mcp/wire"},
		{"second door, external test", "engine/a_test.go", `package engine_test; import "github.com/mark3labs/mcp-go/mcp"`, ""},
		{"closed door", "engine/store/sqlite/a.go", `package sqlite; import _ "github.com/mattn/go-sqlite3"`, "whose door is closed"},
		{"a name that only begins alike", "engine/a.go", `package engine; import "github.com/dop251/gojason"`, ""},
		{"test library in a test", "engine/a_test.go", `package engine; import "pgregory.net/rapid"`, ""},
		{"test library in the product", "engine/a.go", `package engine; import "pgregory.net/rapid"`, "must not reach a user's binary"},
		{"testing in the product", "engine/a.go", `package engine; import "testing"`, "must not reach a user's binary"},

		{"support code in the product", "engine/store/memory/a.go", "package memory; import " + module + `engine/storetest"`, "may not import engine/storetest"},
		{"support code in a test", "judge/a_test.go", "package judge; import " + module + `judge/llmtest"`, ""},
		{"a suite of drivers that knows more than they do", "engine/storetest/a.go", "package storetest; import " + module + `judge"`, "engine/storetest may not import judge"},
		{"support code that would bring an arrow", "judge/a_test.go", "package judge; import " + module + `engine/storetest"`, "judge may not import engine/storetest"},
		{"fixtures in a test", "prompts/a_test.go", "package prompts; import " + module + `testdata"`, ""},
		{"fixtures in the product", "engine/a.go", "package engine; import " + module + `testdata"`, "may not import testdata"},
		{"fixtures know nothing", "testdata/a.go", "package testdata; import " + module + `judge"`, "testdata may not import judge"},

		{"an engine of a face", "internal/mcp/face/a.go", "package face; type Engine interface {" + asks + "}", "only internal/operation declares it"},
		{"an engine of a program", "cmd/gavel/a.go", "package main; type answerer interface {" + asks + "}", "only internal/operation declares it"},
		{"the engine of all faces", "internal/operation/a.go", "package operation; type Engine interface {" + asks + "}", ""},
		{"one thing that is asked", "internal/mcp/face/a.go", "package face; type definer interface { Define(p engine.Principal) error }", ""},

		{"unlisted package", "internal/util/a.go", "package util", "is not in the import law"},
		{"unlisted package, tests only", "e2e/a_test.go", "package e2e_test", "is not in the import law"},
		{"nested testdata", "engine/testdata/a.go", "package whatever; import " + module + `cmd/gavel"`, ""},
		{"nested module", "tools/a.go", "package tools; import " + module + `engine"`, ""},

		{"long file", "engine/a.go", "package engine" + strings.Repeat("\n//", 800) + "\n", "801 lines"},
		{"file at the limit", "engine/a.go", "package engine" + strings.Repeat("\n//", 799) + "\n", ""},
		{"long test", "engine/a_test.go", "package engine" + strings.Repeat("\n//", 900) + "\n", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files, err := archtest.Read(fstest.MapFS{
				"go.mod":       {Data: []byte("module " + archtest.Module)},
				"tools/go.mod": {Data: []byte("module example.com/tools")},
				c.file:         {Data: []byte(c.source)},
			})
			if err != nil {
				t.Fatal(err)
			}
			var breaches []string
			for _, f := range files {
				breaches = append(breaches, archtest.Check(f)...)
			}
			switch {
			case c.want == "" && len(breaches) > 0:
				t.Errorf("lawful, yet: %q", breaches)
			case c.want != "" && (len(breaches) != 1 || !strings.Contains(breaches[0], c.want)):
				t.Errorf("got %q, want one breach saying %q", breaches, c.want)
			}
		})
	}
}

// Every dependency is rejected in all packages but its doors, and every import that the law does not list is a
// violation.
func TestEveryRowBites(t *testing.T) {
	t.Parallel()
	breaches := func(p archtest.Package, imp string) int {
		file := p.Path + "/modules.go"
		if p.Path == "cmd/gavel" { // its tests may name modules, and its row lists them
			file = "cmd/gavel/modules/modules.go"
		}
		return len(archtest.Check(archtest.File{Path: file, Package: p.Path, Imports: []string{imp}}))
	}
	for _, p := range archtest.Packages {
		for _, d := range archtest.Doors {
			for _, dep := range d.Deps {
				if want := !slices.Contains(d.Doors, p.Path); (breaches(p, dep+"/x") > 0) != want {
					t.Errorf("%s imports %s: a breach should be %v", p.Path, dep, want)
				}
			}
		}
		for _, other := range archtest.Packages {
			want := other.Path != p.Path && other.Path != archtest.Ground && !slices.Contains(p.May, other.Path)
			if (breaches(p, path.Join(archtest.Module, other.Path)) > 0) != want {
				t.Errorf("%s imports %s: a breach should be %v", p.Path, other.Path, want)
			}
		}
	}
}

// Rules that hold whatever rows are added.
func TestFoundations(t *testing.T) {
	t.Parallel()
	for _, p := range archtest.Packages {
		inCore := p.Path == "engine" || p.Path == "engine/workflow" || p.Path == "engine/record" || p.Path == "engine/store"
		for _, dep := range p.May {
			switch {
			case p.Path == archtest.Ground:
				t.Errorf("the ground may import %s", dep)
			case strings.HasSuffix(p.Path, "store") && strings.HasPrefix(p.Path, "engine/") && p.Path != "engine/store" && !slices.Contains([]string{"engine/store", "engine/store/rows", "engine/record", "internal/sharedcache"}, dep):
				t.Errorf("the driver %s may import %s", p.Path, dep)
			case inCore && (strings.HasPrefix(dep, "engine/audit") || strings.HasPrefix(dep, "engine/suite")):
				t.Errorf("the core's %s may import %s", p.Path, dep)
			case isFace(p.Path) && isFace(dep):
				t.Errorf("the face %s may import the face %s", p.Path, dep)
			}
		}
	}
}

func isFace(path string) bool {
	return slices.Contains([]string{"internal/mcp/face", "internal/rest"}, path)
}

func TestReadNamesTheFileThatDoesNotParse(t *testing.T) {
	t.Parallel()
	_, err := archtest.Read(fstest.MapFS{"engine/a.go": {Data: []byte("packag engine")}})
	if err == nil || !strings.Contains(err.Error(), "engine/a.go") {
		t.Errorf("got %v, want an error that names engine/a.go", err)
	}
}

// The law itself has no duplicate row, no unlisted package, no cycle, and no door in an unlisted package.
func TestLawIsConsistent(t *testing.T) {
	t.Parallel()
	rows := map[string]archtest.Package{}
	for _, p := range archtest.Packages {
		if _, twice := rows[p.Path]; twice {
			t.Errorf("package %s has two rows", p.Path)
		}
		rows[p.Path] = p
	}
	reached := map[string]int{} // 1 on the way down, 2 done
	var visit func(path string, way []string)
	visit = func(path string, way []string) {
		row, listed := rows[path]
		switch {
		case !listed:
			t.Errorf("%s may import %s, which has no row", way[len(way)-1], path)
			return
		case reached[path] == 1:
			t.Errorf("the law runs in a circle: %v", append(way, path))
			return
		case reached[path] == 2:
			return
		}
		reached[path] = 1
		for _, dep := range row.May {
			visit(dep, append(way, path))
		}
		reached[path] = 2
	}
	for path := range rows {
		visit(path, nil)
	}
	for _, d := range archtest.Doors {
		for _, p := range d.Doors {
			if _, listed := rows[p]; !listed {
				t.Errorf("door %s: package %s has no row", d.Name, p)
			}
		}
	}
}

// The linter's copy of Doors, which editors use, is equal.
func TestLinterHasTheSameDoors(t *testing.T) {
	t.Parallel()
	type rule struct {
		Files []string `yaml:"files"`
		Deny  []struct {
			Pkg  string `yaml:"pkg"`
			Desc string `yaml:"desc"`
		} `yaml:"deny"`
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	raw, err := os.ReadFile(root + "/.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	rules := config.Linters.Settings.Depguard.Rules
	for _, d := range archtest.Doors {
		r, ok := rules[d.Name]
		if !ok {
			t.Errorf("door %s has no depguard rule", d.Name)
			continue
		}
		delete(rules, d.Name)
		files := []string{"$all", "!$test"}
		for _, p := range d.Doors {
			files = append(files, "!**/"+p+"/*.go")
		}
		if !slices.Equal(r.Files, files) {
			t.Errorf("depguard rule %s: files %q, want %q", d.Name, r.Files, files)
		}
		deps := make([]string, len(r.Deny))
		for i, deny := range r.Deny {
			deps[i] = deny.Pkg
			if deny.Desc != d.Why {
				t.Errorf("depguard rule %s: %s says %q, want %q", d.Name, deny.Pkg, deny.Desc, d.Why)
			}
		}
		if !slices.Equal(deps, d.Deps) {
			t.Errorf("depguard rule %s: denies %q, want %q", d.Name, deps, d.Deps)
		}
	}
	for name := range rules {
		t.Errorf("depguard rule %s is no door", name)
	}
}
