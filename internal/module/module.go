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
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Module is what a module provides.
type Module struct {
	// Name is that of its folder in internal/modules.
	Name string
	// Commands are its commands of the command line.
	Commands []Command
	// Sections are those that it adds to the configuration file, in their order on the reference page.
	Sections []Section
	// Schemas is a JSON object with a JSON Schema for each section.
	Schemas []byte
	// Check finds what is wrong with a configuration file.
	Check func(Check) error
	// Lint are rules for definitions.
	Lint []LintRule
	// Serve makes what runs next to a server; nil for nothing.
	Serve func(Host) (*Service, error)
	// Extend makes what takes part in a system, once for each that is opened; nil for nothing.
	Extend func(Setup) *Extension
	// Processes are what the program becomes when its first argument is one of these words. The
	// others are passed on. They are not documented.
	Processes map[string]Process
}

// Command is a command of the command line.
type Command struct {
	Name, Help string
	// Parent is the command of the program that it is a subcommand of, "" for none.
	Parent string
	// First says what a newcomer sees with it; the overview begins with that. Usually "".
	First string
	// New returns a pointer to a struct whose tags declare the flags and whose method Run gets a
	// context.Context and a *Console.
	New func() any
	// Unconfigured commands have no flag that is a setting of the configuration file.
	Unconfigured bool
}

// Section is a section of the configuration file.
type Section struct {
	Name string
	// About introduces it on the reference page.
	About string
}

// Host is the server that a service runs next to.
type Host struct {
	Engine *engine.Engine
	Store  store.Store
	Log    *slog.Logger
}

// Service runs next to a server.
type Service struct {
	// Sections of the configuration file are taken over together while it runs. Files lists the other
	// files that they name.
	Sections []string
	Files    func(*config.File) []string
	// Prepare reads and checks a configuration, nil for none; take puts it in force.
	Prepare func(context.Context, *config.File) (take func(), err error)
	// Run begins; stop waits for the end.
	Run func(context.Context) (stop func())
	// Metrics writes its figures.
	Metrics func(telemetry.Tell)
}

// ConfigFlag is the flag of every command that reads the configuration file.
type ConfigFlag struct {
	Config string `name:"config" placeholder:"FILE" help:"Configuration file (YAML or JSON): settings, sources of evidence, upstreams, gates, issuers. See gavel config."`
}

// Load reads the file, nil without one.
func (f ConfigFlag) Load() (*config.File, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // a nil file has no sections
	}
	file, err := config.Load(f.Config)
	return file, BadConfig(err)
}

// StoreFlags are the flags of a command that opens a store.
type StoreFlags struct {
	ConfigFlag
	Store    string `name:"store" placeholder:"PATH" help:"Store file, the URL of a PostgreSQL database, or \"memory\" for none. Default: ./.workflows/gavel.db, in your data directory if the working directory cannot be written."`
	StoreKey string `name:"store-key" placeholder:"FILE" help:"The key that seals a database's secrets, from gavel store init. The variable may hold the key itself."`
}

// Opened is a store that a command opened, with an engine over it.
type Opened struct {
	Engine *engine.Engine
	Store  store.Store
	Close  func() error
}

// Process runs in place of the program and returns the exit code.
type Process func(ctx context.Context, args []string, in io.Reader, out io.Writer) int

// Console is what a command reads from and writes to, and what the program shows in one way
// everywhere.
type Console struct {
	// Out is for results, Err for everything else that a person reads.
	Out, Err *term.Terminal
	// Open opens an existing store, to be read or to be changed.
	Open func(ctx context.Context, flags StoreFlags, write bool) (*Opened, error)
	// List prints result as JSON, or rows behind their heading; none is what to say without any.
	List func(asJSON bool, result any, rows [][]string, none string) error
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
	for _, s := range m.Sections {
		config.AddSection(s.Name)
	}
	modules = append(modules, m)
	slices.SortFunc(modules, func(a, b Module) int { return cmp.Compare(a.Name, b.Name) })
}

// All returns the modules in the order of their names.
func All() []Module { return modules }

// Sections returns the sections of all modules.
func Sections() []Section {
	var all []Section
	for _, m := range modules {
		all = append(all, m.Sections...)
	}
	return all
}

// Commands returns the commands of all modules below a command of the program, "" for those at the top.
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

// FindProcess returns the process that a word starts, nil if there is none.
func FindProcess(word string) Process {
	for _, m := range modules {
		if p, ok := m.Processes[word]; ok {
			return p
		}
	}
	return nil
}

// BadConfig is the error of a command about every mistake of a configuration file, with its line.
func BadConfig(err error) error {
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
