package main

import (
	"bytes"
	"context"
	"log/slog"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/term"
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

type chainCancelEntryCmd struct {
	Instance string `arg:"" name:"instance" help:"The instance that waits."`
	storeFlag
}

func (chainCancelEntryCmd) Help() string {
	return `An instance in a state with onEnter and wait: true waits for its chain. Where no server ever ran
that chain, this frees the instance, as if the chain had failed: its onFailure is performed.
A run that has begun is ended with gavel chain cancel.

Examples:

    gavel chain cancel-entry wf-019d0a11 --store gavel.db

Exit codes: 0 freed, 1 it does not wait for a chain that never ran, 2 wrong usage, 3 could not
find out.`
}

func (c *chainCancelEntryCmd) Run(ctx context.Context, con *console) error {
	sys, err := openForWriting(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	name, err := chain.CancelEntry(ctx, sys.Engine, localCLI, c.Instance)
	if err != nil {
		return engineFailure(err)
	}
	con.out.Printf("%s no longer waits for the chain %s\n", c.Instance, name)
	return nil
}

// entryDefiner refuses definitions with states that start a chain which the configuration file does not have: nothing
// would move their instances on.
type entryDefiner struct {
	definer
	config string
}

// Define implements definer.
func (d entryDefiner) Define(ctx context.Context, p engine.Principal, req engine.DefineRequest) (engine.DefineResult, error) {
	if parsed, err := workflow.ParseWithFiles(req.Source, req.Document, req.Files); err == nil && bytes.Contains(req.Document, []byte("onEnter")) {
		file := []lintFile{{Name: parsed.Name, definition: parsed}}
		if err := checkEntries(d.config, file); err == nil { // what is wrong with the chains is said where they are opened
			missing := slices.DeleteFunc(file[0].Issues, func(i workflow.Issue) bool { return i.Rule != chain.RuleUnknownChain })
			if len(missing) > 0 {
				return engine.DefineResult{}, &engine.Error{Code: engine.CodeInvalidDefinition, Message: "A state starts a chain that does not exist.", Issues: missing}
			}
		}
	}
	return d.definer.Define(ctx, p, req)
}

// checkEntries compares the states of some definitions with the chains of a configuration file.
func checkEntries(path string, files []lintFile) error {
	var section *chainSection
	if path != "" {
		var err error
		if section, err = readChains(path, nil); err != nil {
			return err
		}
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
