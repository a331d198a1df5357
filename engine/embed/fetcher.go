package embed

import (
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
)

// Fetcher fetches evidence from the sources that an operator declared. Close it after the System.
type Fetcher = evidence.Manager

// OpenFetcher reads the section evidence of a configuration file. Nothing is fetched. Watcher is
// a program that ends the commands of sources when this one is killed, as gavel does for itself;
// "" leaves them to the kernel, on Linux. The error is document.Errors where the file has mistakes.
func OpenFetcher(file, watcher string) (*Fetcher, error) {
	f, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	declared, err := evidence.ParseConfig(f.Section(config.SectionEvidence))
	if err != nil {
		return nil, err
	}
	return evidence.New(declared, evidence.Options{Watcher: watcher})
}
