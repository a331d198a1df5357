package module

import (
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// Fetcher fetches evidence from the sources that a configuration file declares. Close it after the system that uses it.
type Fetcher interface {
	judge.Fetcher
	// Names lists the sources, ReadOnlyNames those without side effects. Both are sorted.
	Names() []string
	ReadOnlyNames() []string
	// Sources describes the sources for callers: their names, not their addresses.
	Sources() []operation.Source
	// Warnings returns sentences about fetches that would fail now.
	Warnings() []string
	// Connect gives the sources what other modules provide. Call it before the first Fetch.
	Connect(Extensions)
	// KeepResults stores results of background commands next to a store, under the store's key.
	KeepResults(store string, key []byte) error
	Close()
}

// OpenFetcher opens the sources of evidence that a file declares; nil if no module has any. watcher is Setup.Watcher.
// Mistakes in the file are returned as document.Errors.
func OpenFetcher(file *config.File, watcher string) (Fetcher, error) {
	for _, m := range modules {
		if m.OpenFetcher != nil {
			return m.OpenFetcher(file, watcher)
		}
	}
	return nil, nil //nolint:nilnil // a program without such a module
}
