// Package module is where modules register what they provide. A module is a folder of
// internal/modules, linked by one line of cmd/gavel/modules.go; everything else asks this package
// what is registered.
//
// It promises that the program works with any set of modules, none included, and that a name is
// registered once. It must never name a module.
package module

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Module is what a module provides.
type Module struct {
	// Name is that of its folder in internal/modules.
	Name string
	// Commands are its commands of the command line.
	Commands []Command
	// Processes are what the program becomes when its first argument is one of these words. The
	// others are passed on. They are not documented.
	Processes map[string]Process
}

// Command is a command of the command line.
type Command struct {
	Name, Help string
	// New returns a pointer to a struct whose tags declare the flags and whose method Run gets a
	// context.Context and a *Console.
	New func() any
	// Unconfigured commands have no flag that is a setting of the configuration file.
	Unconfigured bool
}

// Process runs in place of the program and returns the exit code.
type Process func(ctx context.Context, args []string, in io.Reader, out io.Writer) int

// Console is what a command reads from and writes to, and what the program shows in one way
// everywhere.
type Console struct {
	// Out is for results.
	Out *term.Terminal
	// Env is the environment without the variables that are settings of gavel.
	Env []string
	// Version is the program's.
	Version string
	// HistoryTables returns the tables that show a history.
	HistoryTables func(engine.HistoryResult) [][][]string
}

var modules []Module

// Register adds a module. An init function calls it.
func Register(m Module) {
	if slices.ContainsFunc(modules, func(have Module) bool { return have.Name == m.Name }) {
		panic(fmt.Sprintf("module %q is registered twice", m.Name))
	}
	modules = append(modules, m)
	slices.SortFunc(modules, func(a, b Module) int { return cmp.Compare(a.Name, b.Name) })
}

// Commands returns the commands of all modules.
func Commands() []Command {
	var all []Command
	for _, m := range modules {
		all = append(all, m.Commands...)
	}
	return all
}

// FindProcess returns the process that a word starts, nil if there is none.
func FindProcess(word string) Process {
	for _, m := range modules {
		if p, ok := m.Processes[word]; ok {
			return p
		}
	}
	return nil
}
