package gavel

import (
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
)

// Fetcher fetches evidence from sources declared by an operator. Close it after the System.
type Fetcher = evidence.Manager

// FetcherConfig holds a Fetcher's options in addition to its file.
type FetcherConfig struct {
	// Watcher is a program that ends the commands of sources when this program is killed, as gavel does for
	// itself. If it is "", the kernel does so, on Linux only.
	Watcher string
}

// OpenFetcher reads the evidence section of a configuration file. It fetches nothing. Sources that are tools of
// other servers need a System with the same Config.File. Mistakes in the file are returned as document.Errors.
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
