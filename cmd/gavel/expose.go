package main

import (
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel/engine/embed"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/expose"
)

// openExposure reads which workflows a configuration file exposes; those that it exposes later are
// taken over. It is nil without a file.
func (f configFlag) openExposure() (*embed.Exposure, error) {
	if f.Config == "" {
		return nil, nil //nolint:nilnil // no configuration: a valid, common answer
	}
	x, err := embed.OpenExposure(f.Config)
	return x, badConfig(err)
}

func newExposureWatch(log *slog.Logger, x *embed.Exposure, path string) *sectionWatch {
	w := &sectionWatch{log: log, section: config.SectionExpose, files: []string{path}}
	if x != nil {
		w.load = func(ctx context.Context) error { return x.Load(ctx, path) }
	}
	return w.start()
}

// checkExposure finds what can be told of a file's section expose: a store may hold more
// definitions than the files do.
func checkExposure(path string, definitions []string) error {
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
	if _, bad, _ := cfg.Select(all); len(bad) > 0 {
		return badConfig(bad)
	}
	return nil
}
