package gavel

import (
	"errors"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
)

// Fetcher fetches evidence from sources declared by an operator. Close it after the System.
type Fetcher = module.Fetcher

// FetcherConfig holds a Fetcher's options in addition to its file.
type FetcherConfig struct {
	// Watcher is a program that ends the commands of sources when this program is killed, as gavel does for
	// itself. If it is "", the kernel does so, on Linux only.
	Watcher string
}

// ErrNoSources means that the program is built without sources of evidence.
var ErrNoSources = errors.New("this program is built without the module that fetches evidence")

// OpenFetcher reads the evidence section of a configuration file. It fetches nothing. Sources that are tools of
// other servers need a System with the same Config.File. Mistakes in the file are returned as document.Errors.
func OpenFetcher(file string, cfg FetcherConfig) (Fetcher, error) {
	f, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	fetcher, err := module.OpenFetcher(f, cfg.Watcher)
	if fetcher == nil && err == nil {
		err = ErrNoSources
	}
	return fetcher, err
}
