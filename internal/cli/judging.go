package cli

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/internal/operation"
)

// judgingFlags select who judges a move: a server, or a store opened with its own model and evidence sources.
type judgingFlags struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions first, as the operator's: a file, a folder or a pattern. Repeatable."`
	TargetFlags
	ModelFlags
}

// open is TargetFlags.Open for commands that judge moves. A move that needs a person is parked until gavel review
// decides it. With create, open creates a missing store.
func (f *judgingFlags) open(ctx context.Context, con *Console, create bool) (operation.Caller, func(), error) {
	return f.TargetFlags.Open(ctx, con, func(ctx context.Context, con *Console, _ StoreFlag) (*System, error) {
		sys, err := f.openSystem(ctx, con, create)
		if err == nil && len(f.Definitions) > 0 {
			if err = loadDefinitions(ctx, con.Log, sys.Engine, f.Definitions); err != nil {
				err = errors.Join(err, sys.Close())
			}
		}
		return sys, err
	})
}

// openSystem opens the store with the configured model and sources. It loads no definitions.
func (f *judgingFlags) openSystem(ctx context.Context, con *Console, create bool) (*System, error) {
	flag := f.StoreFlag
	if !create {
		path, err := flag.FindPath(con.Log, false)
		if err != nil {
			return nil, err
		}
		flag.Store = path
	}
	flags := SystemFlags{StoreFlag: flag, ModelFlags: f.ModelFlags}
	return flags.OpenEquipped(ctx, con, SystemOptions{Reviews: true})
}
