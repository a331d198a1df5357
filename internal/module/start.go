package module

import (
	"context"
	"io"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Program is the program as it was started.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	// Execute parses the arguments and runs their command. The error is what a person is told.
	Execute func(context.Context) error
}

// Guard runs the program for a command that answers in its own form whatever happens, and returns the
// exit code.
type Guard func(context.Context, Program) (exit int)

// FindGuard returns the guard of a command line, nil for one that has none.
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

// Approval is what a person approved a configuration file and its definitions to be.
type Approval interface {
	// Text is that of the configuration file.
	Text() []byte
	// Definitions returns those of the patterns' definitions that are as they were approved.
	Definitions(con *Console, patterns []string) Definitions
}

// FindApproval asks every module for the approval that a command goes by; nil without one: then the
// files count as they are. flag is the value of a flag of the command. The console has no log yet.
func FindApproval(ctx context.Context, con *Console, command string, flag func(name string) string) (Approval, error) {
	for _, m := range modules {
		if m.Approved == nil {
			continue
		}
		if a, err := m.Approved(ctx, con, command, flag); a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil //nolint:nilnil // the common answer
}

// Definitions are parsed definitions by the absolute names of their files.
type Definitions map[string]*workflow.Definition

// Judging are the flags of a command that has moves judged, by a server or over a store with the model and
// the sources that the flags configure. A field of this type, tagged embed, is set by the program.
type Judging interface {
	Place() Place
}

// Place is what flags of Judging say.
type Place struct {
	Server string // "" for the store
	StoreFlags
	Definitions []string // patterns
}

// Server is a server of gavel.
type Server interface {
	// Post returns the body of an answer that is not an error.
	Post(ctx context.Context, path string, body []byte) ([]byte, error)
	Close()
}
