// Package expose offers workflows and chains of the operator as separate tools: it selects them, names
// them, and describes them from their definitions.
//
// It promises:
//   - A tool is listed only for principals who may start its workflow or chain.
//   - No two tools have the same name, and none has the name of gavel's own tools or of another server's.
//   - A change is announced only to principals whose list it changes.
//
// It must never decide who may do what, or expose an agent's definitions. Only the module imports it.
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

// reader is the principal that reads definitions; it is used for nothing else.
var reader = engine.Principal{ID: "local:expose", Role: engine.RoleOperator}

// ownPrincipal is the prefix of gavel's own principals, whose workflows are records and must not be
// started.
const ownPrincipal = "gavel:"

// pollInterval is the interval for comparing definitions while a client waits for changes.
const pollInterval = time.Second

// Tools holds the exposed workflows of one engine, and the exposed chains. It is safe for concurrent use.
type Tools struct {
	engine *engine.Engine
	log    *slog.Logger
	chains atomic.Pointer[operation.Procedures] // nil if there are no chains

	reading sync.Mutex            // held while definitions are read
	rules   record.Head           // the definitions from which the tools were made
	known   []operation.Procedure // the chains from which the tools were made
	warned  []string              // the issues that were logged

	mu      sync.Mutex
	cfg     Config
	tools   []Tool
	waiting map[engine.Principal]chan struct{}
	stop    context.CancelFunc // ends the polling; nil while no client waits
	polling sync.WaitGroup
}

// New returns the Tools of an engine. Callers must close them before the engine.
func New(e *engine.Engine, cfg Config, log *slog.Logger) *Tools {
	return &Tools{engine: e, cfg: cfg, log: log, waiting: map[engine.Principal]chan struct{}{}}
}

// UseChains adds chains, from the next Use on.
func (t *Tools) UseChains(chains operation.Procedures) { t.chains.Store(&chains) }

// Use applies a Config. On an error the previous Config stays; colliding names give document.Errors.
func (t *Tools) Use(ctx context.Context, cfg Config) error {
	take, err := t.Prepare(ctx, cfg, nil)
	if err == nil {
		take()
	}
	return err
}

// Prepare is the first half of Use: it checks, and take applies. chains are the future chains; nil means
// the current ones.
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

// warn logs the issues that were not logged before.
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

// refresh reads the definitions and chains if they have changed. If any of them cannot be read, nothing is
// exposed.
func (t *Tools) refresh(ctx context.Context) {
	t.reading.Lock()
	defer t.reading.Unlock()
	cfg, _ := t.current()
	if cfg.Mode == "" { // selects none
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

func (t *Tools) current() (Config, []Tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cfg, t.tools
}

// replace replaces the tools, and notifies the principals whose list changes.
func (t *Tools) replace(ctx context.Context, cfg Config, tools []Tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := slices.Concat(subtractTools(t.tools, tools), subtractTools(tools, t.tools))
	t.cfg, t.tools = cfg, tools
	for p, announce := range t.waiting {
		if len(t.filterVisible(ctx, p, changed)) > 0 {
			close(announce)
			delete(t.waiting, p)
		}
	}
}

// subtractTools returns the tools that are not also in others.
func subtractTools(tools, others []Tool) []Tool {
	return slices.DeleteFunc(slices.Clone(tools), func(tool Tool) bool {
		return slices.ContainsFunc(others, func(other Tool) bool { return reflect.DeepEqual(tool, other) })
	})
}

// filterVisible returns the tools that a principal may start.
func (t *Tools) filterVisible(ctx context.Context, p engine.Principal, tools []Tool) []Tool {
	var chains []operation.Procedure
	if engine.Authorize(p, engine.RightStart) == nil && slices.ContainsFunc(tools, func(tool Tool) bool { return tool.Chain != "" }) {
		chains, _ = t.listChains(ctx, p) // chains that cannot be read are hidden
	}
	return slices.DeleteFunc(slices.Clone(tools), func(tool Tool) bool {
		if tool.Chain != "" {
			return !slices.ContainsFunc(chains, func(v operation.Procedure) bool { return v.Name == tool.Chain })
		}
		_, _, err := t.engine.LoadDefinition(ctx, p, engine.RightStart, tool.Workflow, 0)
		return err != nil
	})
}

// List returns the tools that a principal may call, by name.
func (t *Tools) List(ctx context.Context, p engine.Principal) []Tool {
	t.refresh(ctx)
	_, tools := t.current()
	return t.filterVisible(ctx, p, tools)
}

// Find returns a tool that a principal may call.
func (t *Tools) Find(ctx context.Context, p engine.Principal, name string) (Tool, bool) {
	t.refresh(ctx)
	_, tools := t.current()
	i := slices.IndexFunc(tools, func(tool Tool) bool { return tool.Name == name })
	if i < 0 || len(t.filterVisible(ctx, p, tools[i:i+1])) == 0 {
		return Tool{}, false
	}
	return tools[i], true
}

// Changed returns a channel that is closed when the principal's list may have changed.
func (t *Tools) Changed(p engine.Principal) <-chan struct{} {
	t.refresh(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		t.polling.Go(func() { t.poll(ctx) })
	}
	if t.waiting[p] == nil {
		t.waiting[p] = make(chan struct{})
	}
	return t.waiting[p]
}

// poll refreshes the tools every lookEvery until ctx ends, because another process may change the definitions.
func (t *Tools) poll(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
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

// Close ends the announcements.
func (t *Tools) Close() {
	t.mu.Lock()
	stop := t.stop
	t.mu.Unlock()
	if stop != nil {
		stop()
		t.polling.Wait()
	}
}
