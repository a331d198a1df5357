package cli

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// JudgingFlags select who judges a move: a server, or a store opened with its own model and evidence sources.
type JudgingFlags struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions first, as the operator's: a file, a folder or a pattern. Repeatable."`
	TargetFlags
	ModelFlags
}

// open is TargetFlags.Open for commands that judge moves. A move that needs a person is parked until gavel review
// decides it. With create, open creates a missing store.
func (f *JudgingFlags) open(ctx context.Context, con *Console, create bool) (operation.Caller, func(), error) {
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
func (f *JudgingFlags) openSystem(ctx context.Context, con *Console, create bool) (*System, error) {
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

// OpenToJudge opens a store with its model and sources. It creates a missing store unless there are leftovers of a
// lost one.
func (f *JudgingFlags) OpenToJudge(ctx context.Context, con *Console) (*System, error) {
	if places := f.Candidates(); len(places) > 0 && f.Store != gavel.Memory { // databases have no paths
		if err := checkNotLost(places[0]); err != nil {
			return nil, err
		}
	}
	return f.openSystem(ctx, con, true)
}
