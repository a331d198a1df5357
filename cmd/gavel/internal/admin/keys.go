package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// KeysCommand has the commands for the keys that seal sensitive values.
type KeysCommand struct {
	List   keysListCmd   `cmd:"" help:"List the keys of instances, and values in plain text."`
	Rotate keysRotateCmd `cmd:"" help:"Give instances a new key for future values."`
	Rewrap keysRewrapCmd `cmd:"" help:"Wrap all keys with the store's current key."`
	Shred  keysShredCmd  `cmd:"" help:"Destroy the keys of an instance, and its sensitive values with them."`
}

type keysListCmd struct {
	Instance string `arg:"" optional:"" name:"instance" help:"An instance. Default: all with a key or with values in plain text."`
	JSON     bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *keysListCmd) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.CompleteInstance(ctx, &c.Instance); err != nil {
		return err
	}
	all, err := sys.Engine.ListKeys(ctx, gavel.Operator, c.Instance)
	if err != nil {
		return cli.EngineFailure(err)
	}
	return con.Print(c.JSON, map[string]any{"instances": all}, func() { printKeys(con, all) })
}

func printKeys(con *cli.Console, all []engine.InstanceKeys) {
	rows := [][]string{{"ID", "WORKFLOW", "KEYS", "LAST", "WRAPPED WITH", "DESTROYED", "PLAIN"}}
	for _, one := range all {
		last := store.DataKey{}
		if len(one.Keys) > 0 {
			last = one.Keys[len(one.Keys)-1]
		}
		rows = append(rows, []string{
			one.ID, term.OrNone(one.Workflow), fmt.Sprint(len(one.Keys)), timeOrNone(last.MadeAt), term.OrNone(last.Under), timeOrNone(last.DestroyedAt), fmt.Sprint(one.PlainEvents),
		})
	}
	if len(all) == 0 {
		con.Out.Printf("no instance has sensitive values\n")
		return
	}
	con.Out.Table(rows)
}

func timeOrNone(at time.Time) string {
	if at.IsZero() {
		return term.OrNone("")
	}
	return cli.FormatTime(at)
}

type keysRotateCmd struct {
	Instance []string `arg:"" optional:"" name:"instance" help:"Instances."`
	All      bool     `name:"all" help:"All instances with a key."`
	JSON     bool     `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *keysRotateCmd) Run(ctx context.Context, con *cli.Console) error {
	if c.All == (len(c.Instance) > 0) {
		return term.UsageErrorf("", "name instances, or give --all")
	}
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.CompleteInstances(ctx, c.Instance); err != nil {
		return err
	}
	if c.All {
		if c.Instance, err = sys.ListRotatable(ctx); err != nil {
			return cli.EngineFailure(err)
		}
	}
	type rotated struct {
		ID  string `json:"id"`
		Key int    `json:"key"`
	}
	done := []rotated{}
	for _, id := range c.Instance {
		n, err := sys.Engine.RotateKey(ctx, gavel.Operator, id)
		if err != nil {
			return cli.EngineFailure(err)
		}
		done = append(done, rotated{id, n})
	}
	return con.Print(c.JSON, map[string]any{"rotated": done}, func() {
		con.Out.Printf("rotated the key of %s\n", term.Count(int64(len(done)), "instance"))
	})
}

type keysRewrapCmd struct {
	OldKey      string `name:"old-key" type:"path" placeholder:"FILE" help:"The gavel.key that keys may still be wrapped with."`
	NewStoreKey string `name:"new-store-key" type:"path" placeholder:"FILE" help:"Seal a database's secrets with this key instead of --store-key. The file is created if missing."`
	JSON        bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *keysRewrapCmd) Run(ctx context.Context, con *cli.Console) error {
	switch {
	case c.OldKey != "" && c.NewStoreKey != "":
		return term.UsageErrorf("run the command once with each", "--old-key and --new-store-key cannot be used together")
	case c.NewStoreKey != "":
		return c.changeStoreKey(ctx, con)
	}
	var old []byte
	if c.OldKey != "" {
		if !cli.IsFile(c.OldKey) {
			return term.UsageErrorf("", "--old-key: there is no file %s", c.OldKey)
		}
		var err error
		if old, err = record.LoadOrCreateKey(c.OldKey); err != nil {
			return term.UsageErrorf("", "--old-key: %w", err)
		}
	}
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	r, err := sys.Engine.RewrapKeys(ctx, gavel.Operator, old)
	if err != nil {
		return cli.EngineFailure(err)
	}
	return cmp.Or(con.Print(c.JSON, r, func() {
		con.Out.Printf("keys wrapped again: %d, unchanged: %d\n", r.Rewrapped, r.Kept)
		for _, row := range r.Unreadable {
			con.Out.Printf("key %d of %s is wrapped with %s, which is missing\n", row.Number, row.Instance, row.Under)
		}
		for _, row := range r.Damaged {
			con.Out.Printf("key %d of %s is damaged: %s wrapped it but cannot unwrap it; restore it from a backup\n", row.Number, row.Instance, row.Under)
		}
	}), cli.ExitBadUnless(len(r.Unreadable)+len(r.Damaged) == 0))
}

type storeKeyResult struct {
	Store     string `json:"store"`
	Rewrapped bool   `json:"rewrapped"`
	Key       string `json:"key"` // the file of the current key
}

func (c *keysRewrapCmd) changeStoreKey(ctx context.Context, con *cli.Console) error {
	if !gavel.IsDatabase(c.Store) {
		return term.UsageErrorf("give --store postgres://USER@HOST/DATABASE", "--new-store-key changes the key of a PostgreSQL database; a store file has its key in gavel.key next to it")
	}
	at, err := c.LocateAt(c.Store)
	if err != nil {
		return err
	}
	made, err := cli.MakeStoreKey(c.NewStoreKey)
	if err != nil {
		return err
	}
	newKey, err := cli.ReadStoreKey(c.NewStoreKey)
	if err != nil {
		return err
	}
	r := storeKeyResult{Store: at.String(), Key: c.NewStoreKey}
	if r.Rewrapped, err = gavel.RewrapSecrets(ctx, at.Path, at.Key, newKey, con.Log); err != nil {
		if made && (errors.Is(err, gavel.ErrWrongStoreKey) || errors.Is(err, gavel.ErrNoStoreKey)) {
			err = errors.Join(err, os.Remove(c.NewStoreKey)) // it does not seal anything yet
		}
		return cli.StoreFailure(err, "run the same command again")
	}
	return con.Print(c.JSON, r, func() {
		if !r.Rewrapped {
			con.Out.Printf("the secrets of %s are already sealed with %s\n", r.Store, r.Key)
			return
		}
		con.Out.Printf("the secrets of %s are now sealed with %s; start servers with it\n", r.Store, r.Key)
		con.Err.Printf("%s keep a copy of the key away from the database, and keep the old key as long as you keep dumps from before\n", con.Err.Dim("note:"))
	})
}

type keysShredCmd struct {
	Instance string `arg:"" name:"instance" help:"The full id of the instance."`
	JSON     bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *keysShredCmd) Run(ctx context.Context, con *cli.Console) error {
	sys, err := cli.OpenForWriting(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	n, err := sys.Engine.ShredInstance(ctx, gavel.Operator, c.Instance)
	if err != nil {
		return cli.EngineFailure(err)
	}
	left, err := sys.Engine.ListKeys(ctx, gavel.Operator, c.Instance)
	if err != nil {
		return cli.EngineFailure(err)
	}
	plain := 0
	for _, one := range left {
		plain += one.PlainEvents
	}
	return cmp.Or(con.Print(c.JSON, map[string]any{"id": c.Instance, "destroyed": n, "plainEvents": plain}, func() {
		con.Out.Printf("keys of %s destroyed: %d\n", c.Instance, n)
		if plain > 0 {
			con.Out.Printf("events with values in plain text, from before values were sealed: %d; see gavel retain\n", plain)
		}
	}), cli.ExitBadUnless(plain == 0))
}
