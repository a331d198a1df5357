package module

import (
	"log/slog"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Check is what a module gets to check a configuration file. It fetches nothing and reads no variables.
type Check struct {
	File *config.File
	// Definitions are the workflows that the file names, as far as they can be read: a store may have others.
	Definitions map[string]*workflow.Definition
	// Procedures are those that the file declares.
	Procedures []operation.Procedure
	// Log takes warnings.
	Log *slog.Logger
}

// LintRule compares definitions with a configuration file.
type LintRule struct {
	// Name is how gavel lint names it.
	Name string
	// Read reads what definitions are compared with. check returns document.Errors.
	Read func(*config.File) (check func(*workflow.Definition) error, err error)
}

// LintRules returns the rules of all modules.
func LintRules() (rules []LintRule) {
	for _, m := range modules {
		rules = append(rules, m.Lint...)
	}
	return rules
}
