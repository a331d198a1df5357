// Package module is the registry of modules. A module is a folder of internal/modules, linked by one line in
// cmd/gavel/modules/modules.go. All other code gets modules from this registry.
//
// Promises:
//   - the program works with any set of modules, including none
//   - each name is registered once
//
// This package must never name a module.
package module

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Module describes a module and its parts.
type Module struct {
	// Name is the name of its folder in internal/modules.
	Name string
	// Commands are its commands on the command line.
	Commands []Command
	// Sections are added to the configuration file, in their order on the reference page.
	Sections []Section
	// Schemas is a JSON object with a JSON Schema for each section.
	Schemas []byte
	// Procedures returns the procedures that a configuration file declares.
	Procedures func(*config.File) []operation.Procedure
	// Formats are its other file formats.
	Formats []Format
	// Check validates a configuration file.
	Check func(Check) error
	// Lint is the module's rules for definitions.
	Lint []LintRule
	// Serve returns a service that runs next to a server; nil for none.
	Serve func(Host) (*Service, error)
	// Extend returns the module's extension of a system; nil for none. It is called once for each opened system.
	Extend func(Setup) *Extension
	// Processes run instead of the program if its name (argv[0]) or its first argument is one of these words. They get
	// the remaining arguments. They are not documented.
	Processes map[string]Process
	// OpenFetcher opens the sources of evidence that a file declares; see OpenFetcher.
	OpenFetcher func(file *config.File, watcher string) (Fetcher, error)
	// Guard returns the guard of a command line; nil if the module does not guard it.
	Guard func(args []string) Guard
	// Approved finds the approval that applies to a command; see FindApproval.
	Approved func(ctx context.Context, command string, flag func(name string) string) (Approval, error)
	// NextStep returns the command that sets up a coding agent for a configuration file, to be run in its folder; "" if
	// there is none.
	NextStep func(client, config string) string
	// Demo is a part of gavel demo, with the name of the module. It returns once ctx has ended.
	Demo func(context.Context, Demo) error
}

// Demo is what a module's part of gavel demo runs with.
type Demo struct {
	// Store is the path of a store that does not exist yet.
	Store    string
	In       io.Reader
	Out, Err *term.Terminal
	Log      *slog.Logger
}

// Command is a command of the command line.
type Command struct {
	Name, Help string
	// Parent is the name of the command to which this subcommand belongs; "" for a top-level command.
	Parent string
	// Group is the group of a top-level command in the overview: start, serve, watch, agents, judge or store.
	Group string
	// First describes the result for a newcomer. The overview begins with such commands. Usually "".
	First string
	// New returns a pointer to a struct. Its tags declare the flags; its method Run gets a context.Context and a
	// *cli.Console. A command with subcommands needs none.
	New func() any
	// Detail is the text of --help, if New has no method Help.
	Detail string
	// Unconfigured commands have no flags that are settings of the configuration file.
	Unconfigured bool
}

// Section is a section of the configuration file.
type Section struct {
	Name string
	// About introduces it on the reference page. If it does not contain "A change applies", the page adds that a change
	// applies at once.
	About string
	// Show returns what gavel config print shows for the section. If nil, only the names of its keys are
	// shown.
	Show func(*document.Node) ([]Shown, error)
}

// Shown is a key of a section with its value.
type Shown struct {
	Key   string
	Value any
}

// Host is the server that a service runs next to.
type Host struct {
	Engine *engine.Engine
	Store  store.Store
	Log    *slog.Logger
	// ReviewBase begins the address of the page of a review, whose id follows; "" if the server has none.
	ReviewBase string
}

// Service runs next to a server.
type Service struct {
	// Sections of the configuration file are applied together while the service runs. Files lists other files that
	// these sections name.
	Sections []string
	Files    func(*config.File) []string
	// Prepare reads and checks a configuration; nil for none. take applies it.
	Prepare func(context.Context, *config.File) (take func(), err error)
	// Run starts the service. stop waits until it has ended.
	Run func(context.Context) (stop func())
	// Metrics writes the service's metrics.
	Metrics func(telemetry.MetricFunc)
}

// Process runs instead of the program and returns the exit code.
type Process func(ctx context.Context, args []string, in io.Reader, out io.Writer) int

var modules []Module

// Register adds a module. Call it from an init function.
func Register(m Module) {
	if IsRegistered(m.Name) {
		panic(fmt.Sprintf("module %q is registered twice", m.Name))
	}
	for _, s := range m.Sections {
		config.AddSection(s.Name)
	}
	modules = append(modules, m)
	slices.SortFunc(modules, func(a, b Module) int { return cmp.Compare(a.Name, b.Name) })
}

// All returns the modules sorted by name.
func All() []Module { return modules }

// Sections returns the sections of all modules.
func Sections() []Section {
	var all []Section
	for _, m := range modules {
		all = append(all, m.Sections...)
	}
	return all
}

// NextStep returns the command that sets up a coding agent for a configuration file; "" if no module has one.
func NextStep(client, config string) string {
	for _, m := range modules {
		if m.NextStep != nil {
			return m.NextStep(client, config)
		}
	}
	return ""
}

// Commands returns all modules' subcommands of parent; "" means top-level commands.
func Commands(parent string) []Command {
	var all []Command
	for _, m := range modules {
		for _, c := range m.Commands {
			if c.Parent == parent {
				all = append(all, c)
			}
		}
	}
	return all
}

// FindDemo returns a module's part of gavel demo; nil if there is none.
func FindDemo(name string) func(context.Context, Demo) error {
	for _, m := range modules {
		if m.Name == name {
			return m.Demo
		}
	}
	return nil
}

// IsRegistered reports whether a module is registered.
func IsRegistered(name string) bool {
	return slices.ContainsFunc(modules, func(m Module) bool { return m.Name == name })
}

// FindProcess returns the process that a word starts; nil if there is none.
func FindProcess(word string) Process {
	for _, m := range modules {
		if p, ok := m.Processes[word]; ok {
			return p
		}
	}
	return nil
}

// ConfigError turns an error about a configuration file into an exit error with one line per mistake.
func ConfigError(err error) error {
	if _, told := errors.AsType[*term.ExitError](err); err == nil || told {
		return err
	}
	issues, ok := errors.AsType[document.Errors](err)
	if !ok {
		return term.UsageErrorf("", "%w", err)
	}
	f := &term.ExitError{Code: term.ExitUsage, Err: errors.New("the configuration file has a mistake")}
	if len(issues) > 1 {
		f.Err = errors.New("the configuration file has mistakes")
	}
	for _, issue := range issues {
		f.Lines = append(f.Lines, issue.Error())
	}
	return f
}
