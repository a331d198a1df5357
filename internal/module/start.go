package module

import (
	"context"
	"io"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Program is the running program.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	// Execute parses the arguments and runs their command. Its error is meant for a person.
	Execute func(context.Context) error
}

// Guard runs the program for a command that must always answer in its own format. It returns the exit code.
type Guard func(context.Context, Program) (exit int)

// FindGuard returns the guard of a command line; nil if it has none.
func FindGuard(args []string) Guard {
	for _, m := range modules {
		if m.Guard != nil {
			if guard := m.Guard(args); guard != nil {
				return guard
			}
		}
	}
	return nil
}

// Approval is the content of a configuration file and its definitions that a person approved.
type Approval interface {
	// Text returns the approved text of the configuration file.
	Text() []byte
	// Definitions returns the definitions matching patterns that are unchanged since their approval.
	Definitions(con *Console, patterns []string) Definitions
}

// FindApproval returns the approval that applies to a command. It is nil if no module has one; then the files are
// used as they are. flag returns the value of a command's flag. The console has no log yet.
func FindApproval(ctx context.Context, con *Console, command string, flag func(name string) string) (Approval, error) {
	for _, m := range modules {
		if m.Approved == nil {
			continue
		}
		if a, err := m.Approved(ctx, con, command, flag); a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil //nolint:nilnil // the common case
}

// Definitions maps the absolute paths of files to their parsed definitions.
type Definitions map[string]*workflow.Definition

// Judging holds the flags of a command that judges moves, by a server or over a store with the configured model and
// sources. The program sets fields of this type that are tagged embed.
type Judging interface {
	Place() Place
}

// Place holds the values of Judging flags.
type Place struct {
	Server string // "" for the store
	StoreFlags
	Definitions []string // patterns
}

// Server is a client of a gavel server.
type Server interface {
	// Post returns the body of a successful response. Error responses are returned as errors.
	Post(ctx context.Context, path string, body []byte) ([]byte, error)
	Close()
}
