package cli

import (
	"context"
	"log/slog"
	"os"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
)

// ConfigFlag is the flag of every command that reads the configuration file.
type ConfigFlag struct {
	Config string `name:"config" placeholder:"FILE" help:"Configuration file (YAML or JSON): settings, sources of evidence, upstreams, gates, issuers. See gavel config."`
}

// Load reads the file. It returns nil if none is configured.
func (f ConfigFlag) Load() (*config.File, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // a nil file has no sections
	}
	file, err := config.Load(f.Config)
	return file, module.ConfigError(err)
}

// Open opens the sources in the configuration file; nil without a file or without the module that fetches evidence. It
// fetches nothing, and logs warnings about sources that would fail now.
func (f ConfigFlag) Open(log *slog.Logger) (module.Fetcher, error) {
	file, err := f.Load()
	if file == nil || err != nil {
		return nil, err
	}
	fetcher, err := module.OpenFetcher(file, ThisProgram())
	if fetcher == nil || err != nil {
		return nil, module.ConfigError(err)
	}
	HideSecrets()
	for _, warning := range fetcher.Warnings() {
		log.Warn("evidence", "config", f.Config, "issue", warning)
	}
	return fetcher, nil
}

// OpenAlone is Open for a command without a system; it also opens the parts of modules. end closes both.
func (f ConfigFlag) OpenAlone(ctx context.Context, log *slog.Logger) (fetcher module.Fetcher, end func(), err error) {
	fetcher, err = f.Open(log)
	if err != nil || f.Config == "" {
		return nil, func() {}, err
	}
	closeFetcher := func() {
		if fetcher != nil {
			fetcher.Close()
		}
	}
	file, err := f.Load()
	var modules module.Extensions
	if err == nil {
		modules, err = module.Extend(ctx, module.Setup{File: file, OnDemand: true, Watcher: ThisProgram(), Version: ReadBuild().Version, Log: log})
	}
	if err != nil {
		closeFetcher()
		return nil, nil, module.ConfigError(err)
	}
	if fetcher != nil {
		fetcher.Connect(modules)
	}
	return fetcher, func() { closeFetcher(); modules.Close() }, nil
}

// ListSources returns the names of a fetcher's sources; nil without a fetcher.
func ListSources(fetcher module.Fetcher) []string {
	if fetcher == nil {
		return nil
	}
	return fetcher.Names()
}

// ThisProgram returns the path of the running program; "" if it is unknown. On Linux it uses the kernel's link, which
// is correct even after an upgrade.
func ThisProgram() string {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self
	}
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}
