package hook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// readRules reads the rules for hooks from a configuration file.
func readRules(path string) (r agent.Rules, err error) {
	if path == "" {
		return r, term.UsageErrorf("give --config FILE, or --server URL", "there is no configuration")
	}
	file, err := cli.ConfigFlag{Config: path}.Load()
	if err != nil {
		return r, err
	}
	r, err = parseRules(file)
	return r, module.ConfigError(err)
}

// parseRules parses the sections gates and hooks. The error holds the mistakes of both.
func parseRules(file *config.File) (r agent.Rules, err error) {
	gates, gatesErr := gate.ParseConfig(file.Section(config.SectionGates))
	hooks, hooksErr := gate.ParseHooks(file.Section(sectionHooks))
	r = agent.Rules{Gates: gates, Hooks: hooks}
	for _, name := range file.Section("evidence").At("sources").Keys() {
		if v := file.Section("evidence").At("sources", name, "transcript"); v != nil && v.Text == "true" {
			r.Transcripts = append(r.Transcripts, name)
		}
	}
	return r, joinMistakes(gatesErr, hooksErr)
}

// joinMistakes merges several document.Errors into one. It returns any other error alone.
func joinMistakes(found ...error) error {
	var all document.Errors
	for _, err := range found {
		switch mistakes, ok := errors.AsType[document.Errors](err); {
		case ok:
			all = append(all, mistakes...)
		case err != nil:
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// operator owns the definitions that agents cannot loosen.
var operator = engine.Principal{ID: "local:cli", Role: engine.RoleOperator}

// currentRules holds the current rules of a system, with counts of its answers.
type currentRules struct {
	rules  atomic.Pointer[agent.Rules]
	engine atomic.Pointer[engine.Engine] // nil until the system is open

	mu       sync.Mutex
	answered map[answerCount]float64
}

// answerCount is the key by which answers are counted.
type answerCount struct{ client, verdict string }

func extend(setup module.Setup) *module.Extension {
	r := &currentRules{answered: map[answerCount]float64{}}
	f := newFace(setup.Log, r)
	trust := &trustWatch{file: setup.File}
	return &module.Extension{
		Parts:     []*module.Part{{Sections: []string{sectionHooks, config.SectionGates}, Prepare: r.prepare}},
		Configure: r.configure, Check: r.check, Metrics: r.writeMetrics,
		Connect: func(s module.System) error {
			r.engine.Store(s.Engine)
			trust.store = s.Store
			return nil
		},
		Warnings: trust.findWarnings,
		Routes:   []module.Route{{Pattern: "POST " + facePath + "{client}", Handler: f, Form: f.denyInForm}},
	}
}

func (r *currentRules) get() agent.Rules { return *r.rules.Load() }

// prepare parses the rules. Once the system is open, it also checks them against the operators' definitions. take
// puts them in force.
func (r *currentRules) prepare(ctx context.Context, next *module.Change) (take func(), err error) {
	rules, err := parseRules(next.File)
	if e := r.engine.Load(); err == nil && e != nil {
		err = compare(ctx, rules, e)
	}
	return func() { r.rules.Store(&rules) }, err
}

// check compares the rules in force with the operators' definitions.
func (r *currentRules) check(ctx context.Context) error {
	return compare(ctx, r.get(), r.engine.Load())
}

func compare(ctx context.Context, rules agent.Rules, e *engine.Engine) error {
	return joinMistakes(rules.Gates.CheckIn(ctx, e, operator), rules.Hooks.CheckIn(ctx, e, operator))
}

// configure makes the engine name gated tools in positions. It does nothing if another module, which knows more
// tools, has already done so.
func (r *currentRules) configure(cfg *engine.Config) {
	if cfg.Gated != nil {
		return
	}
	cfg.Gated = func(workflow, action string) string { return r.get().Gates.PerformedBy(workflow, action) }
	cfg.NextTools = func(_ engine.Principal, at engine.Position) []string {
		tools, _ := r.get().Gates.ListPossible(at, nil, func(string) bool { return false })
		return tools
	}
}

// count adds an answer to the metrics.
func (r *currentRules) count(client string, v agent.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered[answerCount{client, string(v)}]++
}

func (r *currentRules) writeMetrics(tell telemetry.MetricFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, n := range r.answered {
		tell("hooks_answered_total", "Events of coding agents, by client and verdict.", telemetry.Counter, n, "client", a.client, "verdict", a.verdict)
	}
}
