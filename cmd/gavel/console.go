package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest/client"
	"github.com/gavel-mcp/gavel/internal/term"
)

// forModules returns the console for commands of modules.
func (con *console) forModules() *module.Console {
	c := &module.Console{
		In: con.stdin, Out: con.out, Err: con.err, Log: con.log, Env: withoutSettings(os.Environ()), Version: readBuild().Version,
		HistoryTables: historyTables, Open: con.openStore, Look: lookIntoStore, Make: con.makeStore, OpenToJudge: con.openToJudge,
		List: func(asJSON bool, result any, rows [][]string, none string) error {
			return con.printList(asJSON, result, rows, none, "")
		},
		Page: con.printList, Failure: badEnd, Object: jsonArgument, Watcher: thisProgram(), HideSecrets: hideSecrets, Args: con.args,
		Place: func(ctx context.Context, flags module.Asking) (operation.Caller, func(), error) {
			f, _ := flags.(*askingFlags)
			return f.placeFlags.open(ctx, con, openWithModules)
		},
		FindUser: findReviewer, FindAgent: agentPrincipal, ListMistakes: listMistakes, Places: listPlaces, ReadDefinitions: readDefinitions,
		CheckConfig: func(path string) error {
			_, err := con.checkConfig(path)
			return err
		},
		Define: func(ctx context.Context, to *engine.Engine, all module.Definitions) error {
			return defineParsed(ctx, con.log, to, all)
		},
		Connect: func(j module.Judging) (module.Server, error) {
			flags, _ := j.(*judgingFlags)
			return flags.connect(strings.NewReader(""))
		},
		ConnectWith: func(server, token string) (module.Server, error) {
			c, err := client.New(client.Config{Server: server, Token: token})
			if err != nil {
				return nil, term.UsageErrorf("", "--server: %w", err)
			}
			return c, nil
		},
		ReadToken: func(file string) (string, error) { return serverFlags{TokenFile: file}.token(strings.NewReader("")) },
		Tokens: func(ctx context.Context, f module.TokensFlag, store module.StoreFlags) (*auth.Tokens, func() error, error) {
			return tokensAt(ctx, con, tokensFlag(f), storeFlagOf(store), false)
		},
	}
	if con.settings != nil {
		c.Approval = con.settings.approval
	}
	return c
}

// agentPrincipal returns the principal of a local client.
func agentPrincipal(role, id string) (engine.Principal, error) {
	p := engine.Principal{ID: cmp.Or(id, "local:"+role), Role: engine.Role(role)}
	return p, checkAgent(p.ID)
}

// Place implements module.Judging.
func (f *judgingFlags) Place() module.Place {
	return module.Place{Server: f.Server, StoreFlags: f.storeFlag.forModules(), Definitions: f.Definitions}
}

func (f storeFlag) forModules() module.StoreFlags {
	return module.StoreFlags{ConfigFlag: module.ConfigFlag(f.configFlag), Store: f.Store, StoreKey: f.StoreKey}
}

func storeFlagOf(f module.StoreFlags) storeFlag {
	return storeFlag{configFlag: configFlag(f.ConfigFlag), Store: f.Store, StoreKey: f.StoreKey}
}

// listPlaces returns the store and the definition patterns that a configuration file names, resolved relative to
// it. Other keys are checked by the code that reads them.
func listPlaces(file *config.File) (store string, definitions []string) {
	values, _ := file.Values([]config.Setting{{Key: config.KeyDefinitions, Form: config.List}})
	definitions = values[config.KeyDefinitions].List
	for i, pattern := range definitions {
		definitions[i] = locatePath(file.Dir(), pattern)
	}
	return locatePath(file.Dir(), file.Text(config.KeyStore)), definitions
}

// readDefinitions parses the definitions that match patterns.
func readDefinitions(patterns []string) (module.Definitions, error) {
	all, problems := module.Definitions{}, []error(nil)
	for _, pattern := range patterns {
		files, err := module.DefinitionFiles([]string{pattern})
		problems = append(problems, err)
		for _, file := range files {
			name, err1 := module.LocateFile(file)
			d, err2 := parseDefinition(file)
			if err := errors.Join(err1, err2); err != nil {
				problems = append(problems, term.UsageErrorf("check it with: gavel lint", "%w", err))
				continue
			}
			all[name] = d
		}
	}
	return all, errors.Join(problems...)
}

// openStore opens an existing store for a module's command.
func (con *console) openStore(ctx context.Context, flags module.StoreFlags, write bool) (*module.Opened, error) {
	open := openForReading
	if write {
		open = openForWriting
	}
	sys, err := open(ctx, con, storeFlagOf(flags))
	if err != nil {
		return nil, err
	}
	return &module.Opened{Engine: sys.Engine, Store: sys.Store, Close: sys.Close}, nil
}

// lookIntoStore opens an existing store for reading. It returns nil if nothing was ever written to one.
func lookIntoStore(ctx context.Context, flags module.StoreFlags) (store.Store, error) {
	if flags.Store == gavel.Memory {
		return nil, nil //nolint:nilnil // nil means that there is no store
	}
	place := storePlace{path: flags.Store}
	if !place.isDatabase() {
		places := storeFlagOf(flags).places()
		at := slices.IndexFunc(places, func(path string) bool {
			info, err := os.Stat(path)
			return err == nil && info.Mode().IsRegular() && info.Size() > 0
		})
		if at < 0 {
			return nil, nil //nolint:nilnil // nil means that there is no store
		}
		place.path = places[at]
	}
	db, _, err := openArchive(ctx, place)
	return db, err
}

// makeStore opens a store, creating it if necessary.
func (con *console) makeStore(ctx context.Context, flags module.StoreFlags) (*module.Opened, error) {
	at, err := storeFlagOf(flags).place(con.log, true)
	if err != nil {
		return nil, err
	}
	sys, err := openSystem(ctx, con.log, at, equipment{reviews: true})
	if err != nil {
		return nil, err
	}
	return &module.Opened{Engine: sys.Engine, Store: sys.Store, Close: sys.Close}, nil
}

// openToJudge opens a store with its model and sources. It creates a missing store unless there are leftovers of a
// lost one.
func (con *console) openToJudge(ctx context.Context, j module.Judging) (*module.Opened, error) {
	flags, _ := j.(*judgingFlags)
	if places := flags.places(); len(places) > 0 && flags.Store != gavel.Memory { // databases have no paths
		if err := checkNotLost(places[0]); err != nil {
			return nil, err
		}
	}
	sys, err := flags.openSystem(ctx, con, true)
	if err != nil {
		return nil, err
	}
	return &module.Opened{Engine: sys.Engine, Store: sys.Store, Close: func() error { return closeInTime(con.log, sys.Close) }}, nil
}
