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

// Asking holds the flags of a command that performs operations, at a server or over a store on this
// machine. The program sets fields of this type that are tagged embed.
type Asking interface {
	// Open returns what performs the operations. Callers must call end when done.
	Open(context.Context, *Console) (ask operation.Caller, end func(), err error)
	// Again repeats the flags on another command line.
	Again() string
	// LocalConfig returns the configuration file of a store on this machine, or "".
	LocalConfig() string
}

// Models holds the flags of a command that sends a model requests other than judgements. The program sets
// fields of this type that are tagged embed.
type Models interface {
	// Open creates the client of the configured models. The asker is nil if none is configured.
	Open(*slog.Logger) (asker judge.Asker, names []string, end func(), err error)
}

// OperationCommand is a command that performs an operation: the fields of the operation are its arguments
// and flags.
type OperationCommand struct {
	Operation *operation.Operation
	// Positional names the fields that are positional arguments, in order.
	Positional []string
	// Bad lists the codes of errors that are a negative result, not a failure of the command: exit code 1.
	Bad []engine.Code
	// Rows returns the table of a list with its heading. None is printed for an empty list. Spare are the
	// columns that a narrow terminal omits.
	Rows  func(res any) [][]string
	None  string
	Spare []string
	// Text prints the result if Rows is nil.
	Text func(con *Console, res any)
}

// TokenUser is implemented by Extension.Provides if the extension uses tokens. The function is nil if
// callers need no tokens.
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

// Services returns the services that the operations of all modules use.
func (all Extensions) Services() map[string]any {
	services := map[string]any{}
	for _, x := range all {
		maps.Copy(services, x.Services)
	}
	return services
}

// Procedures returns the procedures that a configuration file declares, for all modules.
func Procedures(file *config.File) (all []operation.Procedure) {
	for _, m := range modules {
		if m.Procedures != nil {
			all = append(all, m.Procedures(file)...)
		}
	}
	return all
}

// Print prints a result as JSON, or by calling text.
func (c *Console) Print(asJSON bool, result any, text func()) error {
	if asJSON {
		return c.Out.JSON(result)
	}
	text()
	return nil
}
