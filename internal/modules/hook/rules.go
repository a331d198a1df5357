package hook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

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
	file, err := module.ConfigFlag{Config: path}.Load()
	if err != nil {
		return r, err
	}
	r, err = parseRules(file)
	return r, module.BadConfig(err)
}

// parseRules parses the sections gates and hooks. The error holds the mistakes of both.
func parseRules(file *config.File) (r agent.Rules, err error) {
	gates, gatesErr := gate.ParseConfig(file.Section(config.SectionGates))
	hooks, hooksErr := gate.ParseHooks(file.Section(sectionHooks))
	return agent.Rules{Gates: gates, Hooks: hooks}, joinMistakes(gatesErr, hooksErr)
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

// rulesInForce holds the current rules of a server, with counts of its answers.
type rulesInForce struct {
	host  module.Host
	rules atomic.Pointer[agent.Rules]

	mu       sync.Mutex
	answered map[answered]float64
}

// answered is the key by which answers are counted.
type answered struct{ client, verdict string }

func serve(host module.Host) (*module.Service, error) {
	r := &rulesInForce{host: host, answered: map[answered]float64{}}
	f := newFace(host, r)
	return &module.Service{
		Sections: []string{sectionHooks, config.SectionGates}, Prepare: r.prepare, Metrics: r.tell,
		Routes: []module.Route{{Pattern: "POST " + facePath + "{client}", Handler: f, Form: f.denyInForm}},
	}, nil
}

func (r *rulesInForce) get() agent.Rules { return *r.rules.Load() }

// prepare parses the rules and checks them against the operators' definitions. take puts them in force.
func (r *rulesInForce) prepare(ctx context.Context, file *config.File) (take func(), err error) {
	rules, err := parseRules(file)
	if err == nil {
		err = rules.Gates.CheckIn(ctx, r.host.Engine, r.host.Operator)
	}
	if err == nil {
		err = rules.Hooks.CheckIn(ctx, r.host.Engine, r.host.Operator)
	}
	return func() { r.rules.Store(&rules) }, err
}

// count adds an answer to the metrics.
func (r *rulesInForce) count(client string, v agent.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered[answered{client, string(v)}]++
}

func (r *rulesInForce) tell(tell telemetry.Tell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, n := range r.answered {
		tell("hooks_answered_total", "Events of coding agents, by client and verdict.", telemetry.Counter, n, "client", a.client, "verdict", a.verdict)
	}
}
