package module

import (
	"context"
	"log/slog"
	"maps"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// Asking are the flags of a command that performs operations: at a server, or over a store of this machine.
// A field of this type, tagged embed, is set by the program.
type Asking interface {
	// Open returns what to ask, and what to call at the end.
	Open(context.Context, *Console) (ask operation.Caller, end func(), err error)
	// Again repeats the flags on another command line.
	Again() string
	// LocalConfig is the configuration file of a store of this machine, "" for none.
	LocalConfig() string
}

// Models are the flags of a command that asks a model for something else than a judgement. A field of this type,
// tagged embed, is set by the program.
type Models interface {
	// Open makes the client of the configured models. The asker is nil where none is configured.
	Open(*slog.Logger) (asker judge.Asker, names []string, end func(), err error)
}

// OperationCommand is a command that performs an operation: its fields are the arguments and flags.
type OperationCommand struct {
	Operation *operation.Operation
	// Positional names the fields that are arguments, in their order.
	Positional []string
	// Bad are the errors that say nothing against the command: exit code 1.
	Bad []engine.Code
	// Rows is the table of a list with its heading, None what to say of an empty one, Spare the columns that a
	// narrow terminal omits.
	Rows  func(res any) [][]string
	None  string
	Spare []string
	// Text prints the result where Rows is nil.
	Text func(con *Console, res any)
}

// TokenUser is what an extension provides that asks for tokens: nil where callers need none.
type TokenUser interface {
	UseTokens(func() (*auth.Tokens, error))
}

// Format is a file format with its JSON Schema.
type Format struct {
	Name, About string
	Schema      func() any
}

// Formats returns the file formats of all modules.
func Formats() (all []Format) {
	for _, m := range modules {
		all = append(all, m.Formats...)
	}
	return all
}

// Services are what the operations of modules ask.
func (all Extensions) Services() map[string]any {
	services := map[string]any{}
	for _, x := range all {
		maps.Copy(services, x.Services)
	}
	return services
}

// Procedures are those that a configuration file declares, of all modules.
func Procedures(file *config.File) (all []operation.Procedure) {
	for _, m := range modules {
		if m.Procedures != nil {
			all = append(all, m.Procedures(file)...)
		}
	}
	return all
}

// Print prints a result: as JSON, or as text does.
func (c *Console) Print(asJSON bool, result any, text func()) error {
	if asJSON {
		return c.Out.JSON(result)
	}
	text()
	return nil
}
