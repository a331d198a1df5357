package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/rows"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/filelock"
	"github.com/gavel-mcp/gavel/internal/modules/postgres/storecopy"
	"github.com/gavel-mcp/gavel/internal/term"
)

type copyCommand struct {
	From     string `arg:"" name:"from" help:"The store to copy: a file, or the URL of a PostgreSQL database."`
	To       string `arg:"" name:"to" help:"The store to create: a new file, or the URL of a database without records."`
	StoreKey string `name:"store-key" placeholder:"FILE" help:"The key that seals a database's secrets. If TO is a database, a missing file is created."`
	FromKey  string `name:"from-key" placeholder:"FILE" help:"The key of FROM, if different. Default: --store-key."`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// CopyResult is the JSON result of gavel store copy.
type CopyResult struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Position is the position of the newest event, in both stores.
	Position int64 `json:"position"`
	// Present reports that TO already contained everything.
	Present bool `json:"present"`
	storecopy.Report
	Key string `json:"key,omitempty"` // the key file, if it was created
}

// viewer is a store that supports views.
type viewer interface {
	OpenView(ctx context.Context) (rows.View, error)
}

// newStore is a store that is being created.
type newStore interface {
	rows.Writer
	Finish(ctx context.Context) error
	Close() error
}

// Help is the text of gavel help store copy.
func (copyCommand) Help() string {
	return `Copies a store whole: definitions with their seals, instances, histories with positions and hashes,
snapshots, reviews, lessons, anchors, tokens, and the secret that digests and seals are made with.
FROM is only read, and is verified first. Afterwards TO is compared with it row by row and
verified. TO cannot be opened before it is complete.

Stop the servers of FROM first. If FROM is written to during the copy, or the copy is killed, run
the same command again: it copies the rest. A TO with other records is refused.

A server's own files (operator.token, agent.token, anchor files and keys that sign anchors) stay where they are.

Examples:

    gavel store copy .workflows/gavel.db postgres://gavel@db/gavel --store-key store.key
    gavel store copy postgres://gavel@db/gavel gavel.db --store-key store.key

Exit codes: 0 TO holds what FROM holds, 1 FROM or TO does not verify, or FROM was written to, 2 wrong
usage, 3 could not find out.`
}

func (c *copyCommand) Run(ctx context.Context, con *cli.Console) (err error) {
	from, to, err := c.locateStores()
	if err != nil {
		return err
	}
	result := CopyResult{From: from.String(), To: to.String()}
	source, err := cli.OpenLocationToCheck(ctx, con, from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := checkSource(ctx, con, source); err != nil {
		return err
	}
	if to.IsDatabase() {
		made, err := cli.MakeStoreKey(c.StoreKey)
		if err != nil {
			return err
		}
		if made {
			result.Key = c.StoreKey
		}
		if to.Key, err = cli.ReadStoreKey(c.StoreKey); err != nil {
			return err
		}
	}
	if err := checkOtherKey(to, source.Key); err != nil {
		return err
	}
	progress := con.Err.NewProgress()
	defer progress.Finish("")
	seen := func(table string, rows int64) { progress.Update("%s: %d rows", table, rows) }
	if result.Report, err = compareStores(ctx, source, to, seen); err == nil {
		result.Present = true
	} else if errors.Is(err, errNoStore) {
		result.Report, err = makeCopy(ctx, source, to, seen)
	}
	progress.Finish("")
	if err != nil {
		return copyStoreFailure(err, result)
	}
	target, err := cli.OpenLocationToCheck(ctx, con, to)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := verifyCopied(ctx, con, target); err != nil {
		return err
	}
	if result.Position, err = target.Store.LastPosition(ctx); err != nil {
		return term.UnknownErrorf("", "cannot %w", err)
	}
	return con.Print(c.JSON, result, func() { printStoreCopy(con, result) })
}

// locateStores returns the locations of both stores.
func (c *copyCommand) locateStores() (from, to cli.StoreLocation, err error) {
	for _, place := range []string{c.From, c.To} {
		if err := cli.CheckStore(place); err != nil {
			return from, to, err
		}
		if gavel.IsDatabase(place) && driver.Find(place).HasPassword(place) {
			return from, to, term.UsageErrorf("put it into PGPASSWORD or a password file", "%s has a password, and other users of this machine can read arguments", cli.RedactStore(place))
		}
	}
	if from.Path, err = cli.ExplicitStore(c.From, false); err != nil {
		return from, to, err
	}
	switch {
	case c.To == gavel.Memory:
		return from, to, term.UsageErrorf("give a file, or the URL of a PostgreSQL database", "a store in memory would end with this command")
	case c.From == c.To, isSameFile(c.From, c.To):
		return from, to, term.UsageErrorf("give another TO", "FROM and TO are the same store")
	}
	if from.IsDatabase() {
		if from.Key, err = cli.ReadStoreKey(cmp.Or(c.FromKey, c.StoreKey)); err != nil {
			return from, to, err
		}
		if from.Key == nil {
			return from, to, cli.StoreFailure(gavel.ErrNoStoreKey, "")
		}
	}
	if gavel.IsDatabase(c.To) && c.StoreKey == "" {
		return from, to, errNoKeyForSecrets()
	}
	to.Path, err = cli.ExplicitStore(c.To, true)
	return from, to, err
}

func isSameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// checkSource rejects a source without its key, or one that does not verify.
func checkSource(ctx context.Context, con *cli.Console, source *cli.System) error {
	if source.Key == nil {
		return term.UsageErrorf("put the key back", "the key of %s is missing, and without it digests and seals cannot be checked", source.Location)
	}
	r, err := source.Verify(ctx, con, audit.VerifyRequest{})
	switch {
	case err != nil:
		return err
	case !r.Clean():
		return &term.ExitError{Code: term.ExitBad, Hint: "run gavel verify for details", Err: fmt.Errorf("%s does not verify (%s), so it was not copied",
			source.Location, term.Count(int64(len(r.Problems))+r.More, "break"))}
	}
	return nil
}

// checkOtherKey rejects a target file next to another store's key.
func checkOtherKey(to cli.StoreLocation, key []byte) error {
	if to.IsDatabase() {
		return nil
	}
	other, err := cli.ExistingKey(to.Path)
	if err != nil {
		return term.UsageErrorf("", "cannot use the key file: %w", err)
	}
	if other != nil && !bytes.Equal(other, key) {
		return term.UsageErrorf("put TO into a folder without another store", "%s is the key of another store", gavel.KeyPath(to.Path))
	}
	return nil
}

// errNoStore means that TO has no store to compare with.
var errNoStore = errors.New("no store yet")

// compareStores compares the source with the existing store at TO.
func compareStores(ctx context.Context, source *cli.System, to cli.StoreLocation, seen storecopy.Progress) (r storecopy.Report, err error) {
	if !to.IsDatabase() && !cli.IsFile(to.Path) {
		return r, errNoStore
	}
	target, key, err := cli.OpenArchive(ctx, to)
	if err != nil {
		if errors.Is(err, driver.ErrNoStore) || errors.Is(err, driver.ErrUnfinished) || errors.Is(err, gavel.ErrNoSecrets) {
			err = errNoStore
		}
		return r, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	empty, err := target.IsEmpty(ctx)
	if err != nil {
		return r, err
	}
	if empty && to.IsDatabase() {
		tokens, err := listTokens(target, to, key)
		if err == nil && len(tokens) == 0 {
			err = errNoStore
		}
		return r, cmp.Or(err, storecopy.ErrDifferent)
	}
	if !bytes.Equal(key, source.Key) {
		return r, storecopy.ErrDifferent
	}
	a, err := source.Store.(viewer).OpenView(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := target.(viewer).OpenView(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return storecopy.Compare(ctx, a, b, seen)
}

// makeCopy creates the store at TO, or resumes an unfinished copy.
func makeCopy(ctx context.Context, source *cli.System, to cli.StoreLocation, seen storecopy.Progress) (r storecopy.Report, err error) {
	if !to.IsDatabase() { // a database has its own lock
		lock, err := filelock.Acquire(to.Path + sqlite.UnfinishedSuffix + ".lock")
		if err != nil {
			return r, err
		}
		defer lock.Remove()
	}
	target, err := createStore(ctx, to)
	if err != nil {
		return r, err
	}
	r, err = storecopy.Copy(ctx, source.Store.(viewer).OpenView, target, seen)
	if err == nil {
		err = copySecrets(ctx, source, to, target)
	}
	if err != nil {
		return r, errors.Join(err, target.Close())
	}
	return r, target.Finish(ctx)
}

func createStore(ctx context.Context, to cli.StoreLocation) (newStore, error) {
	if to.IsDatabase() {
		return driver.Find(to.Path).Create(ctx, to.Path)
	}
	return sqlite.Create(ctx, to.Path)
}

// copySecrets copies the store's secret, which its digests and seals depend on, and its tokens to TO.
func copySecrets(ctx context.Context, source *cli.System, to cli.StoreLocation, target newStore) error {
	entries, isDatabase := target.(store.Entries)
	err := error(nil)
	if isDatabase {
		err = gavel.PutSecrets(ctx, entries, to.Key, source.Key)
	} else {
		err = record.SaveKey(gavel.KeyPath(to.Path), source.Key)
	}
	if err != nil {
		return err
	}
	all, err := listTokens(source.Store, source.Location, source.Key)
	if err != nil {
		return err
	}
	tokens, err := openTokens(target, to, source.Key)
	if err != nil {
		return err
	}
	if old, err := tokens.List(); err != nil || len(old)+len(all) == 0 {
		return err
	}
	return tokens.Replace(all)
}

// openTokens opens the tokens of a store, in the database or next to the file.
func openTokens(db any, at cli.StoreLocation, key []byte) (*auth.Tokens, error) {
	if entries, ok := db.(store.Entries); ok {
		return gavel.OpenTokens(entries, key)
	}
	return auth.OpenTokens(cli.TokensFlag{}.Path(at.Path))
}

func listTokens(db any, at cli.StoreLocation, key []byte) ([]auth.Token, error) {
	tokens, err := openTokens(db, at, key)
	if err != nil {
		return nil, err
	}
	return tokens.List()
}

// verifyCopied verifies the copy.
func verifyCopied(ctx context.Context, con *cli.Console, target *cli.System) error {
	r, err := target.Verify(ctx, con, audit.VerifyRequest{})
	if err == nil && !r.Clean() {
		err = &term.ExitError{Code: term.ExitBad, Hint: "do not use it; run gavel verify for details", Err: fmt.Errorf("the copy %s does not verify", target.Location)}
	}
	return err
}

// copyStoreFailure adds the next step to the error of an unfinished copy.
func copyStoreFailure(err error, r CopyResult) error {
	switch {
	case errors.Is(err, storecopy.ErrMoving):
		return &term.ExitError{Code: term.ExitBad, Hint: "stop its servers and run the same command again: it copies the rest", Err: fmt.Errorf(
			"%s was written to during the copy, so %s is not finished", r.From, r.To)}
	case errors.Is(err, storecopy.ErrDifferent), errors.Is(err, driver.ErrNotEmpty), errors.Is(err, sqlite.ErrExists):
		return term.UsageErrorf("give another TO", "%s does not hold the same store as %s", r.To, r.From)
	case errors.Is(err, driver.ErrCopying):
		return term.UsageErrorf("wait until it ends", "%w", err)
	}
	if _, told := errors.AsType[*term.ExitError](err); told {
		return err
	}
	return cli.StoreFailure(err, "run the same command again to continue")
}

func printStoreCopy(con *cli.Console, r CopyResult) {
	what := fmt.Sprintf("%s, %s and %s", term.Count(r.Rows["definitions"], "version")+" of definitions", term.Count(r.Rows["instances"], "instance"), term.Count(r.Rows["events"], "event"))
	if r.Present {
		con.Out.Printf("%s was already complete: %s, up to position %d\n", r.To, what, r.Position)
	} else {
		con.Out.Printf("%s is a verified copy of %s: %s, up to position %d\n", r.To, r.From, what, r.Position)
	}
	if r.Key != "" {
		con.Err.Printf("%s the key is in the file %s; keep a copy away from the database\n", con.Err.Dim("note:"), r.Key)
	}
}
