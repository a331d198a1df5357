package module

import (
	"maps"

	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
)

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
