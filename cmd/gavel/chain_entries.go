package main

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/chain"
)

// warnEntries says what is wrong with the chains that states of the stored workflows start. c is nil where no
// chains are configured.
func warnEntries(ctx context.Context, log *slog.Logger, sys *system, c *chains) error {
	stored, err := sys.Store.Definitions(ctx)
	if err != nil {
		return term.UnknownErrorf("", "cannot read the store: %w", err)
	}
	var starting []*workflow.Definition
	for _, newest := range stored {
		d, err := sys.Store.Definition(ctx, newest.Name, newest.Version)
		if err != nil {
			return term.UnknownErrorf("", "cannot read the store: %w", err)
		}
		if !d.Operator || !bytes.Contains(d.Document, []byte(`"onEnter":{`)) { // documents are compact JSON
			continue
		}
		if parsed, err := workflow.Parse(d.Name, d.Document); err == nil {
			starting = append(starting, parsed)
		}
	}
	known := map[string]*chain.Definition{}
	if c != nil {
		known = c.catalogue.list()
	}
	for name, issues := range chain.CheckEntries(starting, known) {
		for _, issue := range issues {
			log.WarnContext(ctx, "a state starts a chain that does not fit", "workflow", name, "path", issue.Path, "issue", issue.Message)
		}
	}
	return nil
}

// checkEntries compares the states of some definitions with the chains of a configuration file.
func checkEntries(path string, files []lintFile) error {
	section, err := readChains(path, nil)
	if err != nil {
		return err
	}
	known := map[string]*chain.Definition{}
	if section != nil {
		known = section.byName
	}
	var all []*workflow.Definition
	for _, f := range files {
		if f.definition != nil {
			all = append(all, f.definition)
		}
	}
	found := chain.CheckEntries(all, known)
	for i, f := range files {
		files[i].Issues = append(f.Issues, found[f.Name]...)
	}
	return nil
}
