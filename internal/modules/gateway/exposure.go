package gateway

import (
	"context"
	"log/slog"
	"sync"

	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/expose"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// exposure offers MCP clients the operator's workflows and chains as separate tools.
type exposure struct {
	*expose.Tools // nil until there is an engine

	log *slog.Logger
	mu  sync.Mutex
	cfg expose.Config
}

// prepare parses and checks the section; take applies it.
func (x *exposure) prepare(ctx context.Context, change *module.Change) (take func(), err error) {
	cfg, err := expose.ParseConfig(change.File.Section(sectionExpose))
	if err != nil {
		return nil, err
	}
	use := func() {}
	if x.Tools != nil {
		if use, err = x.Tools.Prepare(ctx, cfg, change.Procedures); err != nil {
			return nil, err
		}
	}
	return func() {
		use()
		x.mu.Lock()
		defer x.mu.Unlock()
		x.cfg = cfg
	}, nil
}

func (x *exposure) connect(s module.System) {
	x.Tools = expose.New(s.Engine, x.cfg, x.log)
	if chains, ok := module.Find[operation.Procedures](s.Extensions); ok {
		x.UseChains(chains)
	}
}

// check compares the section with the current definitions.
func (x *exposure) check(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.Use(ctx, x.cfg)
}

func (x *exposure) close() {
	if x.Tools != nil {
		x.Tools.Close()
	}
}
