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
func (e *exposure) prepare(ctx context.Context, change *module.Change) (take func(), err error) {
	cfg, err := expose.ParseConfig(change.File.Section(sectionExpose))
	if err != nil {
		return nil, err
	}
	use := func() {}
	if e.Tools != nil {
		if use, err = e.Tools.Prepare(ctx, cfg, change.Procedures); err != nil {
			return nil, err
		}
	}
	return func() {
		use()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.cfg = cfg
	}, nil
}

func (e *exposure) connect(s module.System) {
	e.Tools = expose.New(s.Engine, e.cfg, e.log)
	if chains, ok := module.Find[operation.Procedures](s.Extensions); ok {
		e.UseChains(chains)
	}
}

// check compares the section with the current definitions.
func (e *exposure) check(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Use(ctx, e.cfg)
}

func (e *exposure) close() {
	if e.Tools != nil {
		e.Tools.Close()
	}
}
