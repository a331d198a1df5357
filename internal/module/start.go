package module

import (
	"context"
	"io"
	"log/slog"

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
	Definitions(log *slog.Logger, patterns []string) Definitions
}

// FindApproval returns the approval that applies to a command. It is nil if no module has one; then the files are
// used as they are. flag returns the value of a command's flag.
func FindApproval(ctx context.Context, command string, flag func(name string) string) (Approval, error) {
	for _, m := range modules {
		if m.Approved == nil {
			continue
		}
		if a, err := m.Approved(ctx, command, flag); a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil //nolint:nilnil // the common case
}

// Definitions maps the absolute paths of files to their parsed definitions.
type Definitions map[string]*workflow.Definition
