// Package command has the commands of gavel store, which creates stores in databases and copies stores.
package command

import (
	"context"
	"errors"
	"os"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Commands are gavel store and its subcommands.
var Commands = []module.Command{
	{Name: "store", Group: "store", Help: "Create a store that several servers share.", Detail: `A store is a file, which every command creates if it is missing, or a PostgreSQL database that
several servers share. docs/postgres.md explains how to run one.`},
	{Parent: "store", Name: "init", Help: "Create a store in a PostgreSQL database.", New: func() any { return &initCommand{} }},
	{Parent: "store", Name: "copy", Help: "Copy a store between files and databases.", New: func() any { return &copyCommand{} }},
}

type initCommand struct {
	NewSecrets bool `name:"new-secrets" help:"Create new secrets for a database with records that has lost its secrets. Earlier digests and seals can then no longer be checked."`
	JSON       bool `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

type initResult struct {
	Store string `json:"store"`
	Made  bool   `json:"made"` // whether the secrets were created
	Key   string `json:"key,omitempty"`
}

// Help is the text of gavel help store init.
func (initCommand) Help() string {
	return `Creates gavel's tables in a database, in the schema gavel, if it has none; tables of another
schema version are refused. Creates the store's secrets, such as the key of its digests and seals. The secrets are in the database, sealed with the
key in --store-key, which is created if the file is missing. Every server and every command that
writes needs that key. Keep a copy away from the database: without it the secrets are lost.
You can safely run it again.

The password comes from PGPASSWORD, a password file (PGPASSFILE), or the URL in GAVEL_STORE.

Examples:

    gavel store init --store postgres://gavel@db.example.org/gavel --store-key /etc/gavel/store.key
    GAVEL_STORE=postgres://gavel:secret@db/gavel gavel store init --store-key store.key

Exit codes: 0 it is ready, 2 wrong usage, 3 could not find out.`
}

func (c *initCommand) Run(ctx context.Context, con *cli.Console) error {
	if !gavel.IsDatabase(c.Store) {
		return term.UsageErrorf("give --store postgres://USER@HOST/DATABASE; a file needs no init", "gavel store init creates a store in a PostgreSQL database")
	}
	if c.StoreKey == "" {
		return errNoKeyForSecrets()
	}
	made, err := cli.MakeStoreKey(c.StoreKey)
	if err != nil {
		return err
	}
	at, err := c.LocateAt(c.Store)
	if err != nil {
		return err
	}
	r := initResult{Store: at.String()}
	if r.Made, err = gavel.InitDatabase(ctx, at.Path, at.Key, c.NewSecrets, con.Log); err != nil {
		if made && errors.Is(err, gavel.ErrWrongStoreKey) {
			err = errors.Join(err, os.Remove(c.StoreKey)) // it does not seal anything yet
		}
		return cli.StoreFailure(err, "")
	}
	if made {
		r.Key = c.StoreKey
	}
	return con.Print(c.JSON, r, func() {
		con.Out.Printf("%s is ready\n", r.Store)
		if made {
			con.Err.Printf("%s the key is in the file %s; keep a copy away from the database\n", con.Err.Dim("note:"), c.StoreKey)
		}
	})
}

func errNoKeyForSecrets() error {
	return term.UsageErrorf("give --store-key FILE; a missing file is created", "no key was given to seal the secrets of the database")
}
