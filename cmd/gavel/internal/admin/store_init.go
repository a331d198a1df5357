package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// StoreCommand has the commands that create and copy shared stores.
type StoreCommand struct {
	Init storeInitCmd `cmd:"" help:"Create a store in a PostgreSQL database."`
	Copy storeCopyCmd `cmd:"" help:"Copy a store between files and databases."`
}

type storeInitCmd struct {
	NewSecrets bool `name:"new-secrets" help:"Create new secrets for a database with records that has lost its secrets. Earlier digests and seals can then no longer be checked."`
	JSON       bool `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

type storeInitResult struct {
	Store string `json:"store"`
	Made  bool   `json:"made"` // whether the secrets were created
	Key   string `json:"key,omitempty"`
}

func (c *storeInitCmd) Run(ctx context.Context, con *cli.Console) error {
	if !gavel.IsDatabase(c.Store) {
		return term.UsageErrorf("give --store postgres://USER@HOST/DATABASE; a file needs no init", "gavel store init creates a store in a PostgreSQL database")
	}
	if c.StoreKey == "" {
		return errNoKeyForSecrets()
	}
	made, err := makeStoreKey(c.StoreKey)
	if err != nil {
		return err
	}
	at, err := c.LocateAt(c.Store)
	if err != nil {
		return err
	}
	r := storeInitResult{Store: at.String()}
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

// makeStoreKey creates a key file if there is none.
func makeStoreKey(value string) (made bool, err error) {
	if _, err := os.Stat(value); cli.IsKeyText(value) || !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := writeNew(value, hex.EncodeToString(key), 0o600); err != nil {
		return false, term.UsageErrorf("give another --store-key", "cannot write the key: %w", err)
	}
	return true, nil
}
