package gavel

import (
	"context"
	"sync"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/expose"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Exposure offers MCP clients workflows and chains of the operator's as tools of their own. It belongs to
// one System, which closes it.
type Exposure struct {
	mu    sync.Mutex
	cfg   expose.Config
	tools *expose.Tools // nil before a System has it
}

// OpenExposure reads the section expose of a configuration file. The error is document.Errors
// where it has mistakes.
func OpenExposure(file string) (*Exposure, error) {
	x := &Exposure{}
	return x, x.Load(context.Background(), file)
}

// Load reads the file again. With an error nothing changes: it is document.Errors where the file
// has mistakes, or where the name of a tool would be taken twice.
func (x *Exposure) Load(ctx context.Context, file string) error {
	take, err := x.Prepare(ctx, file, nil)
	if err == nil {
		take()
	}
	return err
}

// Prepare is Load in two parts: it reads and checks, and take has what was read in force. chains are those that there
// will be then; nil for those that there are.
func (x *Exposure) Prepare(ctx context.Context, file string, chains []operation.Procedure) (take func(), err error) {
	f, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	cfg, err := expose.ParseConfig(f.Section(config.SectionExpose))
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	use := func() {}
	if x.tools != nil {
		if use, err = x.tools.Prepare(ctx, cfg, chains); err != nil {
			return nil, err
		}
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		use()
		x.cfg = cfg
	}, nil
}

// Check compares the section with the definitions that there are now. The error is as that of Load.
func (x *Exposure) Check(ctx context.Context) error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tools.Use(ctx, x.cfg)
}

// serve has the workflows of a System exposed.
func (x *Exposure) serve(s *System) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tools = expose.New(s.Engine, x.cfg, s.cfg.Logger)
}

// useChains has chains exposed, from the next Check or Load on.
func (x *Exposure) useChains(chains operation.Procedures) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tools.UseChains(chains)
}

func (x *Exposure) close() {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tools != nil {
		x.tools.Close()
	}
}
