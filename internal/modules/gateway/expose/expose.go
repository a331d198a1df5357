// Package expose makes workflows and chains of the operator's tools of their own: it chooses them,
// names them, and describes them from their definitions.
//
// It promises that one is listed only for principals who may start it, that no two tools
// have one name and none that of a tool of gavel's own or of another server's, and that a change
// is announced to those principals only whose list it changes.
//
// It must never decide who may do what, or expose what an agent defined. Only the module imports it.
package expose

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// reader reads the definitions. Nothing is done on its behalf.
var reader = engine.Principal{ID: "local:expose", Role: engine.RoleOperator}

// ownPrincipal begins the names of gavel itself, whose workflows are records and not to be started.
const ownPrincipal = "gavel:"

// lookEvery is how often definitions are compared while a client waits for changes.
const lookEvery = time.Second

// Tools are the exposed workflows of one engine, and the exposed chains. They are safe for concurrent
// use.
type Tools struct {
	engine *engine.Engine
	log    *slog.Logger
	chains atomic.Pointer[operation.Procedures] // nil: there are none

	reading sync.Mutex            // held while definitions are read
	rules   record.Head           // those that the tools are from
	known   []operation.Procedure // and the chains
	warned  []string              // what was said of them

	mu      sync.Mutex
	cfg     Config
	tools   []Tool
	waiting map[engine.Principal]chan struct{}
	stop    context.CancelFunc // ends the looking; nil while nobody waits
	looking sync.WaitGroup
}

// New returns the Tools of an engine. Close them before it.
func New(e *engine.Engine, cfg Config, log *slog.Logger) *Tools {
	return &Tools{engine: e, cfg: cfg, log: log, waiting: map[engine.Principal]chan struct{}{}}
}

// UseChains has chains exposed, too, from the next Use on.
func (t *Tools) UseChains(chains operation.Procedures) { t.chains.Store(&chains) }

// Use takes a Config. With an error the one before stays: document.Errors where names collide.
func (t *Tools) Use(ctx context.Context, cfg Config) error {
	take, err := t.Prepare(ctx, cfg, nil)
	if err == nil {
		take()
	}
	return err
}

// Prepare is Use in two parts: it checks, and take takes. chains are those that there will be then; nil for those
// that there are.
func (t *Tools) Prepare(ctx context.Context, cfg Config, chains []operation.Procedure) (take func(), err error) {
	head, err := t.engine.RuleHead(ctx)
	if err == nil && chains == nil {
		chains, err = t.listChains(ctx, reader)
	}
	if err != nil {
		return nil, err
	}
	tools, bad, missing, err := t.selectTools(ctx, cfg, chains)
	if len(bad) > 0 {
		err = bad
	}
	if err != nil {
		return nil, err
	}
	return func() {
		t.reading.Lock()
		defer t.reading.Unlock()
		t.warn(missing)
		t.rules, t.known = head, chains
		t.replace(ctx, cfg, tools)
	}, nil
}

func (t *Tools) listChains(ctx context.Context, p engine.Principal) ([]operation.Procedure, error) {
	chains := t.chains.Load()
	if chains == nil {
		return nil, nil
	}
	return (*chains).ListProcedures(ctx, p)
}

func (t *Tools) selectTools(ctx context.Context, cfg Config, chains []operation.Procedure) (tools []Tool, bad, missing document.Errors, err error) {
	all, err := t.engine.List(ctx, reader)
	if err != nil {
		return nil, nil, nil, err
	}
	var definitions []*workflow.Definition
	for _, s := range all {
		if !s.Operator || strings.HasPrefix(s.Owner, ownPrincipal) {
			continue
		}
		_, d, err := t.engine.LoadDefinition(ctx, reader, engine.RightRead, s.Name, s.Version)
		if err != nil {
			return nil, nil, nil, err
		}
		definitions = append(definitions, d)
	}
	tools, bad, missing = cfg.Select(definitions, chains)
	return tools, bad, missing, nil
}

// warn logs what was not wrong before.
func (t *Tools) warn(issues document.Errors) {
	before := t.warned
	t.warned = nil
	for _, i := range issues {
		t.warned = append(t.warned, i.Error())
		if !slices.Contains(before, i.Error()) {
			t.log.Warn("exposed workflows and chains", "issue", i.Error())
		}
	}
}

// refresh reads the definitions if there are others than before. What cannot be read is not
// exposed.
func (t *Tools) refresh(ctx context.Context) {
	t.reading.Lock()
	defer t.reading.Unlock()
	cfg, _ := t.inForce()
	if cfg.Mode == "" { // it selects none
		return
	}
	head, err := t.engine.RuleHead(ctx)
	chains, err2 := t.listChains(ctx, reader)
	err = cmp.Or(err, err2)
	if err == nil && head == t.rules && slices.EqualFunc(chains, t.known, func(a, b operation.Procedure) bool { return a.Name == b.Name && a.Hash == b.Hash }) {
		return
	}
	var tools []Tool
	var bad, missing document.Errors
	if err == nil {
		tools, bad, missing, err = t.selectTools(ctx, cfg, chains)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		head = record.Head{}
		if head != t.rules {
			t.log.Error("the definitions cannot be read, so nothing is exposed", "cause", err)
		}
	}
	t.warn(slices.Concat(bad, missing))
	t.rules, t.known = head, chains
	t.replace(ctx, cfg, tools)
}

func (t *Tools) inForce() (Config, []Tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cfg, t.tools
}

// replace puts tools in place of those before, and tells the principals who see a difference.
func (t *Tools) replace(ctx context.Context, cfg Config, tools []Tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := slices.Concat(subtractTools(t.tools, tools), subtractTools(tools, t.tools))
	t.cfg, t.tools = cfg, tools
	for p, announce := range t.waiting {
		if len(t.keepVisible(ctx, p, changed)) > 0 {
			close(announce)
			delete(t.waiting, p)
		}
	}
}

// subtractTools returns the tools that are not the same among others.
func subtractTools(tools, others []Tool) []Tool {
	return slices.DeleteFunc(slices.Clone(tools), func(tool Tool) bool {
		return slices.ContainsFunc(others, func(other Tool) bool { return reflect.DeepEqual(tool, other) })
	})
}

// keepVisible returns the tools of what a principal may start.
func (t *Tools) keepVisible(ctx context.Context, p engine.Principal, tools []Tool) []Tool {
	var chains []operation.Procedure
	if engine.Authorize(p, engine.RightStart) == nil && slices.ContainsFunc(tools, func(tool Tool) bool { return tool.Chain != "" }) {
		chains, _ = t.listChains(ctx, p) // those that cannot be read are not seen
	}
	return slices.DeleteFunc(slices.Clone(tools), func(tool Tool) bool {
		if tool.Chain != "" {
			return !slices.ContainsFunc(chains, func(v operation.Procedure) bool { return v.Name == tool.Chain })
		}
		_, _, err := t.engine.LoadDefinition(ctx, p, engine.RightStart, tool.Workflow, 0)
		return err != nil
	})
}

// List returns what a principal may call, by name.
func (t *Tools) List(ctx context.Context, p engine.Principal) []Tool {
	t.refresh(ctx)
	_, tools := t.inForce()
	return t.keepVisible(ctx, p, tools)
}

// Find returns a tool that a principal may call.
func (t *Tools) Find(ctx context.Context, p engine.Principal, name string) (Tool, bool) {
	t.refresh(ctx)
	_, tools := t.inForce()
	i := slices.IndexFunc(tools, func(tool Tool) bool { return tool.Name == name })
	if i < 0 || len(t.keepVisible(ctx, p, tools[i:i+1])) == 0 {
		return Tool{}, false
	}
	return tools[i], true
}

// Changed returns a channel that is closed once List may answer the principal something else
// than now.
func (t *Tools) Changed(p engine.Principal) <-chan struct{} {
	t.refresh(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		t.looking.Go(func() { t.look(ctx) })
	}
	if t.waiting[p] == nil {
		t.waiting[p] = make(chan struct{})
	}
	return t.waiting[p]
}

// look compares the definitions until ctx ends: another process may change them.
func (t *Tools) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.refresh(ctx)
		}
	}
}

// Close ends the announcing.
func (t *Tools) Close() {
	t.mu.Lock()
	stop := t.stop
	t.mu.Unlock()
	if stop != nil {
		stop()
		t.looking.Wait()
	}
}
