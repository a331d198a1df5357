package main

import (
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/expose"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// openExposure reads which workflows a configuration file exposes; those that it exposes later are
// taken over. It is nil without a file.
func (f configFlag) openExposure() (*gavel.Exposure, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	x, err := gavel.OpenExposure(f.Config)
	return x, badConfig(err)
}

// watchExposure takes over what else is exposed, of the chains that there will be.
func watchExposure(x *gavel.Exposure, path string) *configPart {
	p := &configPart{section: config.SectionExpose}
	if x != nil {
		p.prepare = func(ctx context.Context, next *configChange) (take func(), err error) {
			return x.Prepare(ctx, path, next.chains.procedures())
		}
	}
	return p
}

// checkExposure finds what can be told of a file's section expose, and logs what it warns of: a
// store may hold more definitions than the files do.
func checkExposure(path string, definitions []string, log *slog.Logger) error {
	file, err := config.Load(path)
	if err != nil {
		return badConfig(err)
	}
	cfg, err := expose.ParseConfig(file.Section(config.SectionExpose))
	if err != nil {
		return badConfig(err)
	}
	files, _ := definitionFiles(definitions) // checkFiles reports what cannot be read, and gavel lint what is in it
	var all []*workflow.Definition
	for _, name := range files {
		if d, err := parseDefinition(name); err == nil {
			all = append(all, d)
		}
	}
	var chains []operation.Procedure
	if section, err := readChains(path, nil); err == nil { // checkChains reports what is wrong with it
		chains = section.procedures()
	}
	_, bad, missing := cfg.Select(all, chains)
	if len(bad) > 0 {
		return badConfig(bad)
	}
	for _, issue := range missing {
		if len(all)+len(chains) > 0 {
			log.Warn("exposed workflows and chains", "issue", issue.Error())
		}
	}
	return nil
}
