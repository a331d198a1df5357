package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// configFlag is the --config flag of every command that judges, or looks at what a
// judgement needs.
type configFlag struct {
	Config string `name:"config" placeholder:"FILE" help:"Configuration file (YAML or JSON): settings, sources of evidence, issuers. See gavel config."`
}

// sources are the declared sources of evidence. A nil one stands for no --config.
type sources struct{ manager *evidence.Manager }

// open reads the configuration file; without one the result is nil. Nothing is
// fetched. What would fail if it were fetched now is logged.
func (f configFlag) open(log *slog.Logger) (*sources, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	file, err := config.Load(f.Config)
	if err != nil {
		return nil, badConfig(err)
	}
	declared, err := evidence.ParseConfig(file.Section(config.SectionEvidence))
	if err != nil {
		return nil, badConfig(err)
	}
	manager, err := evidence.New(declared, evidence.Options{Watcher: thisProgram()})
	if err != nil {
		return nil, badConfig(err)
	}
	hideSecrets()
	for _, warning := range manager.Warnings() {
		log.Warn("evidence", "config", f.Config, "issue", warning)
	}
	return &sources{manager}, nil
}

// thisProgram is where the running program lies; "" when that cannot be told. On Linux
// the kernel's own link is right even after an upgrade.
func thisProgram() string {
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

// badConfig tells every mistake of a configuration file, with its line.
func badConfig(err error) error {
	issues, ok := errors.AsType[document.Errors](err)
	if !ok {
		return term.UsageErrorf("", "%w", err)
	}
	f := &term.Failure{Code: term.ExitUsage, Err: errors.New("the configuration file has a mistake")}
	if len(issues) > 1 {
		f.Err = errors.New("the configuration file has mistakes")
	}
	for _, issue := range issues {
		f.Lines = append(f.Lines, issue.Error())
	}
	return f
}

// names are the sources that definitions may ask for: nil when that is not known.
func (s *sources) names() []string {
	if s == nil {
		return nil
	}
	return append([]string{}, s.manager.Names()...)
}

// readOnly are the names of the sources that only look; nil when that is not known.
func (s *sources) readOnly() []string {
	if s == nil {
		return nil
	}
	var out []string
	for _, i := range s.manager.List() {
		if i.ReadOnly {
			out = append(out, i.Name)
		}
	}
	return out
}

// fetcher is what the judge fetches with; nil when there is none.
func (s *sources) fetcher() judge.Fetcher {
	if s == nil {
		return nil
	}
	return s.manager
}

// Close ends what is being fetched.
func (s *sources) Close() {
	if s != nil {
		s.manager.Close()
	}
}
