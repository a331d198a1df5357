// Package module is the registry of modules. A module is a folder of internal/modules, linked by one line in
// cmd/gavel/modules.go. All other code gets modules from this registry.
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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/eval"
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
	// Processes run instead of the program if its first argument is one of these words. They get the remaining
	// arguments. They are not documented.
	Processes map[string]Process
	// Guard returns the guard of a command line; nil if the module does not guard it.
	Guard func(args []string) Guard
	// Approved finds the approval that applies to a command; see FindApproval.
	Approved func(ctx context.Context, con *Console, command string, flag func(name string) string) (Approval, error)
	// NextStep returns the command that sets up a coding agent for a configuration file; "" if there is none.
	NextStep func(client, config string) string
	// Reports are additional reports of gavel eval run.
	Reports Reports
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
	// *Console.
	New func() any
	// Operation is the operation that the command performs, instead of New. A command with subcommands
	// needs neither.
	Operation *OperationCommand
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

// ConfigFlag is the flag of every command that reads the configuration file.
type ConfigFlag struct {
	Config string `name:"config" placeholder:"FILE" help:"Configuration file (YAML or JSON): settings, sources of evidence, upstreams, gates, issuers. See gavel config."`
}

// Load reads the file. It returns nil if none is configured.
func (f ConfigFlag) Load() (*config.File, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // a nil file has no sections
	}
	file, err := config.Load(f.Config)
	return file, ConfigError(err)
}

// StoreFlags are the flags of a command that opens a store.
type StoreFlags struct {
	ConfigFlag
	Store    string `name:"store" placeholder:"PATH" help:"Store file, the URL of a PostgreSQL database, or \"memory\" for none. Default: ./.workflows/gavel.db, or in your data directory if the working directory is not writable."`
	StoreKey string `name:"store-key" placeholder:"FILE" help:"The key that seals a database's secrets, from gavel store init. The variable may hold the key itself."`
}

// TokensFlag is the flag of every command that opens tokens.
type TokensFlag struct {
	Tokens string `name:"tokens" placeholder:"FILE" help:"The file of tokens. Default: gavel.tokens next to the store; a database keeps its own."`
}

// Opened is a store opened for a command, with an engine over it.
type Opened struct {
	Engine *engine.Engine
	Store  store.Store
	Close  func() error
}

// Process runs instead of the program and returns the exit code.
type Process func(ctx context.Context, args []string, in io.Reader, out io.Writer) int

// Console holds a command's input and output, and the functions that the program provides to every command.
type Console struct {
	// Out is for results, Err for all other text for a person.
	Out, Err *term.Terminal
	// Open opens an existing store, for writing if write is set.
	Open func(ctx context.Context, flags StoreFlags, write bool) (*Opened, error)
	// List prints result as JSON, or rows with their heading. It prints none if there are no rows.
	List func(asJSON bool, result any, rows [][]string, none string) error
	// Env is the environment without gavel's own settings.
	Env []string
	// Version is the program's version.
	Version string
	In      io.Reader
	Log     *slog.Logger
	// Approval applies to the command; nil if the files are used as they are.
	Approval Approval
	// FindUser returns the principal of the local user, or the named one.
	FindUser func(principal *string) (engine.Principal, error)
	// FindAgent returns the principal of a local agent.
	FindAgent func(role, id string) (engine.Principal, error)
	// ListMistakes splits an error into one line per mistake.
	ListMistakes func(error) error
	// CheckConfig checks a configuration file.
	CheckConfig func(path string) error
	// Places returns the store and the definitions that a configuration file names, relative to the working
	// folder.
	Places func(*config.File) (store string, definitions []string)
	// ReadDefinitions parses the definitions that match patterns. The error covers those missing in the result.
	ReadDefinitions func(patterns []string) (Definitions, error)
	// Define registers definitions as the operator's.
	Define func(context.Context, *engine.Engine, Definitions) error
	// Look opens an existing store for reading, without its key. It returns nil if nothing was ever written to it.
	Look func(context.Context, StoreFlags) (store.Store, error)
	// Make opens a store, creating it if necessary. Moves that need a person are parked for review.
	Make func(context.Context, StoreFlags) (*Opened, error)
	// OpenToJudge is like Make, with the model and evidence sources. It does not recreate a lost store.
	OpenToJudge func(context.Context, Judging) (*Opened, error)
	// Connect returns a client of the server that the flags name.
	Connect func(Judging) (Server, error)
	// ConnectWith returns a client of a server that presents a token. ReadToken reads the token from a file.
	ConnectWith func(server, token string) (Server, error)
	ReadToken   func(file string) (string, error)
	// Tokens opens the tokens of a store. Callers must call release when done.
	Tokens func(context.Context, TokensFlag, StoreFlags) (tokens *auth.Tokens, release func() error, err error)
	// Page is like List, for one page: more is the flag that continues it, or "" at the end. A narrow terminal omits
	// the spare columns.
	Page func(asJSON bool, result any, rows [][]string, none, more string, spare ...string) error
	// Place implements Asking.Open.
	Place func(context.Context, Asking) (operation.Caller, func(), error)
	// Failure maps an engine's error to its exit code; the codes in bad give exit code 1.
	Failure func(err error, bad ...engine.Code) error
	// Object reads a JSON object from a flag, or from the file that the flag names.
	Object func(flag, value string) (json.RawMessage, error)
	// Watcher is Setup.Watcher. HideSecrets hides secrets in the environment from programs that are
	// started.
	Watcher     string
	HideSecrets func()
	Args        []string // of the program
	// FindDefinition returns the workflow of a golden case, and its criteria. file is that of the case.
	FindDefinition func(file string, ref json.RawMessage) (*workflow.Definition, eval.Criteria, error)
	// Converse prompts for lines of stdin and passes them to do. It returns when do is done or fails, when stdin
	// ends, or when ctx ends.
	Converse func(ctx context.Context, prompt string, do func(line string) (done bool, err error)) error
	// HistoryTables returns the tables that show a history.
	HistoryTables func(engine.HistoryResult) [][][]string
}

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
