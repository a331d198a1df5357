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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
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
	// Procedures are those that a configuration file declares.
	Procedures func(*config.File) []operation.Procedure
	// Formats are its other file formats.
	Formats []Format
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
	// Guard returns the guard of a command line, nil for one that it does not run.
	Guard func(args []string) Guard
	// Approved finds the approval that a command goes by; see FindApproval.
	Approved func(ctx context.Context, con *Console, command string, flag func(name string) string) (Approval, error)
	// NextStep returns the command that sets up a coding agent for a configuration file, "" where there is none.
	NextStep func(client, config string) string
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
	// Operation is what it performs, in place of New; commands below it take the place of both.
	Operation *OperationCommand
	// Detail is what --help says, where New has no method Help.
	Detail string
	// Unconfigured commands have no flag that is a setting of the configuration file.
	Unconfigured bool
}

// Section is a section of the configuration file.
type Section struct {
	Name string
	// About introduces it on the reference page.
	About string
	// Show returns what gavel config print shows of it; nil for the names of its keys.
	Show func(*document.Node) ([]Shown, error)
}

// Shown is a key of a section with its value.
type Shown struct {
	Key   string
	Value any
}

// Host is the server that a service runs next to.
type Host struct {
	Operator engine.Principal // whose definitions agents cannot loosen
	Engine   *engine.Engine
	Store    store.Store
	Log      *slog.Logger
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
	// Routes are what gavel serve answers at for it.
	Routes []Route
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

// TokensFlag is the flag of every command that opens tokens.
type TokensFlag struct {
	Tokens string `name:"tokens" placeholder:"FILE" help:"The file of tokens. Default: gavel.tokens next to the store; a database keeps its own."`
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
	In      io.Reader
	Log     *slog.Logger
	// Operator has the definitions of this machine, which agents cannot loosen.
	Operator engine.Principal
	// Approval is what the command goes by; nil where the files count as they are.
	Approval Approval
	// FindUser returns who a person at this machine is, or the one that is named.
	FindUser func(principal *string) (engine.Principal, error)
	// FindAgent returns who an agent at this machine is.
	FindAgent func(role, id string) (engine.Principal, error)
	// ListMistakes gives an error a line for each mistake.
	ListMistakes func(error) error
	// CheckConfig finds what can be told of a configuration file.
	CheckConfig func(path string) error
	// Places are the store and the definitions that a configuration file names, seen from the working folder.
	Places func(*config.File) (store string, definitions []string)
	// ReadDefinitions reads what patterns name. The error is about what is missing in the result.
	ReadDefinitions func(patterns []string) (Definitions, error)
	// Define loads definitions as the operator's.
	Define func(context.Context, *engine.Engine, Definitions) error
	// Look opens an existing store to be read, without its key; nil where nothing was ever written to it.
	Look func(context.Context, StoreFlags) (store.Store, error)
	// Make opens a store, or makes it. Moves that need a person wait for one.
	Make func(context.Context, StoreFlags) (*Opened, error)
	// OpenToJudge is Make with what judges; a store that was lost is not made again.
	OpenToJudge func(context.Context, Judging) (*Opened, error)
	// Connect returns the server that flags name.
	Connect func(Judging) (Server, error)
	// ConnectWith returns a server that is shown a token, ReadToken the token in a file.
	ConnectWith func(server, token string) (Server, error)
	ReadToken   func(file string) (string, error)
	// Tokens opens those of a store; release ends that.
	Tokens func(context.Context, TokensFlag, StoreFlags) (tokens *auth.Tokens, release func() error, err error)
	// Page is List of a page: more is the flag that continues it, "" at the end. A narrow terminal does without the
	// spare columns.
	Page func(asJSON bool, result any, rows [][]string, none, more string, spare ...string) error
	// Place is what Asking.Open returns.
	Place func(context.Context, Asking) (operation.Caller, func(), error)
	// Failure gives an error of the engine its exit code: 1 for some codes.
	Failure func(err error, bad ...engine.Code) error
	// Object reads a JSON object of a flag, or of the file that it names.
	Object func(flag, value string) (json.RawMessage, error)
	// Watcher is Setup.Watcher. HideSecrets keeps secrets of the environment from programs that are started.
	Watcher     string
	HideSecrets func()
	Args        []string // of the program
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

// NextStep returns the command that sets up a coding agent for a configuration file, "" where no module has one.
func NextStep(client, config string) string {
	for _, m := range modules {
		if m.NextStep != nil {
			return m.NextStep(client, config)
		}
	}
	return ""
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
