package gavel

import (
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
)

// Fetcher fetches evidence from the sources that an operator declared. Close it after the System.
type Fetcher = evidence.Manager

// FetcherConfig is what a Fetcher needs besides its file.
type FetcherConfig struct {
	// Watcher is a program that ends the commands of sources when this one is killed, as gavel does
	// for itself; "" leaves them to the kernel, on Linux.
	Watcher string
}

// OpenFetcher reads the section evidence of a configuration file. Nothing is fetched. Sources that are
// tools of other servers need a System with the same Config.File. The error is document.Errors where
// the file has mistakes.
func OpenFetcher(file string, cfg FetcherConfig) (*Fetcher, error) {
	f, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	declared, err := evidence.ParseConfig(f.Section(config.SectionEvidence))
	if err != nil {
		return nil, err
	}
	return evidence.New(declared, evidence.Options{Watcher: cfg.Watcher})
}
