package cli

import (
	"context"
	"log/slog"
	"os"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
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

// Open opens the sources in the configuration file; nil without a file. It fetches nothing, and logs warnings about
// sources that would fail now.
func (f ConfigFlag) Open(log *slog.Logger) (*evidence.Manager, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	manager, err := OpenEvidence(f.Config)
	if err != nil {
		return nil, err
	}
	HideSecrets()
	for _, warning := range manager.Warnings() {
		log.Warn("evidence", "config", f.Config, "issue", warning)
	}
	return manager, nil
}

// OpenAlone is Open for a command without a system; it also opens the parts of modules. end closes both.
func (f ConfigFlag) OpenAlone(ctx context.Context, log *slog.Logger) (manager *evidence.Manager, end func(), err error) {
	if manager, err = f.Open(log); manager == nil {
		return nil, func() {}, err
	}
	file, err := config.Load(f.Config)
	var modules module.Extensions
	if err == nil {
		modules, err = module.Extend(ctx, module.Setup{File: file, OnDemand: true, Watcher: ThisProgram(), Version: ReadBuild().Version, Log: log})
	}
	if err != nil {
		manager.Close()
		return nil, nil, module.ConfigError(err)
	}
	if tools, ok := module.Find[evidence.Tools](modules); ok {
		manager.UseTools(tools)
	}
	return manager, func() { manager.Close(); modules.Close() }, nil
}

// OpenEvidence opens the evidence sources of a configuration file.
func OpenEvidence(path string) (*gavel.Fetcher, error) {
	declared, err := gavel.OpenFetcher(path, gavel.FetcherConfig{Watcher: ThisProgram()})
	return declared, module.ConfigError(err)
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

// Declared opens the configured sources without opening a store.
func (f ConfigFlag) Declared(ctx context.Context, log *slog.Logger) (manager *evidence.Manager, end func(), err error) {
	if f.Config == "" {
		return nil, nil, term.UsageErrorf("give it with --config FILE, or in GAVEL_CONFIG", "no configuration file was given, and it declares the sources of evidence")
	}
	return f.OpenAlone(ctx, log)
}
