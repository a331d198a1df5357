// Package expose makes workflows of the operator's tools of their own: it chooses them, names
// them, and describes them from their definitions.
//
// It promises that a workflow is listed only for principals who may start it, that no two tools
// have one name and none that of a tool of gavel's own or of another server's, and that a change
// is announced to those principals only whose list it changes.
//
// It must never start an instance, decide who may do what, or expose what an agent defined. The
// MCP face and programs import it.
package expose

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// reader reads the definitions. Nothing is done on its behalf.
var reader = engine.Principal{ID: "local:expose", Role: engine.RoleOperator}

// lookEvery is how often definitions are compared while a client waits for changes.
const lookEvery = time.Second

// Tools are the exposed workflows of one engine. They are safe for concurrent use.
type Tools struct {
	engine *engine.Engine
	log    *slog.Logger

	reading sync.Mutex  // held while definitions are read
	rules   record.Head // those that the tools are from
	warned  []string    // what was said of them

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

// Use takes a Config. With an error the one before stays: document.Errors where names collide.
func (t *Tools) Use(ctx context.Context, cfg Config) error {
	t.reading.Lock()
	defer t.reading.Unlock()
	head, err := t.engine.RuleHead(ctx)
	if err != nil {
		return err
	}
	tools, bad, missing, err := t.selectTools(ctx, cfg)
	if len(bad) > 0 {
		err = bad
	}
	if err != nil {
		return err
	}
	t.warn(missing)
	t.rules = head
	t.replace(ctx, cfg, tools)
	return nil
}

func (t *Tools) selectTools(ctx context.Context, cfg Config) (tools []Tool, bad, missing document.Errors, err error) {
	all, err := t.engine.List(ctx, reader)
	if err != nil {
		return nil, nil, nil, err
	}
	var definitions []*workflow.Definition
	for _, s := range all {
		if !s.Operator {
			continue
		}
		_, d, err := t.engine.LoadDefinition(ctx, reader, engine.RightRead, s.Name, s.Version)
		if err != nil {
			return nil, nil, nil, err
		}
		definitions = append(definitions, d)
	}
	tools, bad, missing = cfg.Select(definitions)
	return tools, bad, missing, nil
}

// warn logs what was not wrong before.
func (t *Tools) warn(issues document.Errors) {
	before := t.warned
	t.warned = nil
	for _, i := range issues {
		t.warned = append(t.warned, i.Error())
		if !slices.Contains(before, i.Error()) {
			t.log.Warn("exposed workflows", "issue", i.Error())
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
	if err == nil && head == t.rules {
		return
	}
	var tools []Tool
	var bad, missing document.Errors
	if err == nil {
		tools, bad, missing, err = t.selectTools(ctx, cfg)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		head = record.Head{}
		if head != t.rules {
			t.log.Error("the definitions cannot be read, so no workflow is exposed", "cause", err)
		}
	}
	t.warn(slices.Concat(bad, missing))
	t.rules = head
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

// keepVisible returns the tools of workflows that a principal may start.
func (t *Tools) keepVisible(ctx context.Context, p engine.Principal, tools []Tool) []Tool {
	return slices.DeleteFunc(slices.Clone(tools), func(tool Tool) bool {
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
