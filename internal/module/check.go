package module

import (
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Check is the input of a module's check of a configuration file. Checking fetches nothing and reads no environment
// variables.
type Check struct {
	File *config.File
	// Definitions are the parsable workflows that the file names. A store may have others.
	Definitions map[string]*workflow.Definition
	// Procedures are the procedures that the file declares.
	Procedures []operation.Procedure
	// Log receives warnings.
	Log *slog.Logger
}

// LintRule compares definitions with a configuration file.
type LintRule struct {
	// Name identifies the rule in gavel lint. Modules that share a section may both have its rule; it runs
	// only once.
	Name string
	// Read reads the part of the configuration to compare with definitions. check returns document.Errors.
	Read func(*config.File) (check func(*workflow.Definition) error, err error)
}

// LintRules returns the rules of all modules.
func LintRules() (rules []LintRule) {
	for _, m := range modules {
		for _, rule := range m.Lint {
			if !slices.ContainsFunc(rules, func(have LintRule) bool { return have.Name == rule.Name }) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}
