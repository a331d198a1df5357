package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/foreign"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/judge"
)

// gateway connects one system to other MCP servers and applies the gates on their tools.
type gateway struct {
	*foreign.Face
	opts     upstream.Options
	log      *slog.Logger
	onDemand bool // open the upstreams (the upstream.Manager) only when a tool is first called
	calls    heldCalls
	engine   atomic.Pointer[engine.Engine]
	checks   checks

	openMu sync.Mutex // held while upstreams are is opened on demand

	mu        sync.Mutex
	file      *config.File // the file in force
	upstreams *upstream.Manager
	gates     gate.Config
	// stopFollowing stops announcing moves and waits until that has ended. It is nil if moves are not announced.
	stopFollowing func()
}

func newGateway(setup module.Setup) *gateway {
	g := &gateway{Face: foreign.New(setup.Log), log: setup.Log, onDemand: setup.OnDemand, calls: findHeldCalls(setup.Folder)}
	g.opts = upstream.Options{
		Changed: g.Announce, Hold: g.calls.hold, LookupEnv: setup.LookupEnv, Watcher: setup.Watcher, Version: setup.Version, States: clientstate.New(), Logger: setup.Log,
	}
	g.opts.Engine = func() upstream.Engine {
		if e := g.engine.Load(); e != nil {
			return e
		}
		return nil
	}
	return g
}

// prepare reads and checks the sections and the pins. take puts them in force and ends the calls in flight to the
// previous servers. No server is started before take. Callers may drop take without calling it.
func (g *gateway) prepare(ctx context.Context, change *module.Change) (take func(), err error) {
	file := change.File
	gates, err := gate.ParseConfig(file.Section(config.SectionGates))
	if err != nil {
		return nil, err
	}
	if e := g.engine.Load(); e != nil {
		if err := gates.CheckIn(ctx, e, operator); err != nil {
			return nil, err
		}
	}
	var manager *upstream.Manager
	if g.onDemand {
		err = checkEvidence(file, gates)
	} else {
		manager, err = g.open(file, gates)
	}
	if err != nil {
		return nil, err
	}
	return func() { g.setCurrent(file, gates, manager) }, nil
}

// open returns a new manager of the servers that a file declares.
func (g *gateway) open(file *config.File, gates gate.Config) (*upstream.Manager, error) {
	declared, pins, err := readUpstreams(file)
	if err == nil {
		err = checkSources(file, declared, pins, gates)
	}
	if err != nil {
		return nil, err
	}
	opts := g.opts
	opts.Pins, opts.Gates = pins, gates
	return upstream.Open(declared, opts)
}

// setCurrent makes a file, its gates and its manager current. manager is nil if it is opened on demand. Otherwise
// setCurrent starts the servers that are pinned on first use.
func (g *gateway) setCurrent(file *config.File, gates gate.Config, manager *upstream.Manager) {
	g.mu.Lock()
	before := g.upstreams
	g.file, g.gates, g.upstreams = file, gates, manager
	g.mu.Unlock()
	if manager == nil {
		return
	}
	g.warn(file, manager)
	g.Serve(manager)
	g.follow()
	before.Close()
	manager.PinOnFirstUse()
}

func (g *gateway) warn(file *config.File, manager *upstream.Manager) {
	for _, warning := range manager.Warnings() {
		g.log.Warn("upstreams", "config", file.Path(), "issue", warning)
	}
}

// readUpstreams reads the upstreams that a configuration file declares, and the pins next to the file.
func readUpstreams(file *config.File) (declared upstream.Config, pins *upstream.Pins, err error) {
	if declared, err = upstream.ParseConfig(file.Section(upstream.Section)); err != nil {
		return declared, nil, err
	}
	pins, err = upstream.LoadPins(upstream.PinsPath(file.Path()))
	return declared, pins, err
}

func (g *gateway) configure(cfg *engine.Config) {
	cfg.Gated = func(workflow, action string) string { return g.rules().PerformedBy(workflow, action) }
	if !g.onDemand {
		cfg.NextTools = func(p engine.Principal, at engine.Position) []string { return g.current().ListNextTools(p, at) }
	}
}

// connect lets the engine judge gated calls. It derives a key from the store's secrets, so that any process with the
// same store can accept the state that servers keep with clients between two requests.
func (g *gateway) connect(s module.System) error {
	g.calls.sweep(time.Now())
	g.opts.States.Share(s.DeriveKey("gavel/upstream-state/v1"), s.Store)
	g.engine.Store(s.Engine)
	g.follow()
	return nil
}

// check checks the gates against the operators' definitions.
func (g *gateway) check(ctx context.Context) error {
	return g.rules().CheckIn(ctx, g.engine.Load(), operator)
}

// rules returns the gates in force.
func (g *gateway) rules() gate.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gates
}

// current returns the current manager. It may be nil, which is a manager without servers.
func (g *gateway) current() *upstream.Manager {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.upstreams
}

// close ends every session with a server.
func (g *gateway) close() {
	g.mu.Lock()
	stop := g.stopFollowing
	g.stopFollowing = func() {}
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
	g.current().Close()
}

// settleInterval is the interval between searches for overdue calls.
const settleInterval = time.Minute

// settle settles overdue calls as unknown, now and every minute, because a killed process cannot settle its own. stop
// ends that.
func (g *gateway) settle(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if len(g.rules().Gates) > 0 {
				g.settleOverdue(ctx)
			}
			select {
			case <-ctx.Done():
			case <-time.After(settleInterval):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (g *gateway) settleOverdue(ctx context.Context) {
	n, err := g.engine.Load().SettleOverdue(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		g.log.Warn("cannot check for overdue calls; trying again in a minute", "error", err)
	case n > 0:
		g.log.Warn("calls of other servers' tools were not answered in time; a person must decide whether they happened (gavel review list)", "number", n)
	}
}

// access gives other modules the gateway. Each call uses the manager that is then current.
type access struct{ *gateway }

// Call implements chain.Upstreams.
func (a access) Call(ctx context.Context, p engine.Principal, req upstream.Request) (upstream.Reply, error) {
	return a.current().Call(ctx, p, req)
}

// List returns the items of a kind that a principal may use.
func (a access) List(p engine.Principal, kind upstream.Kind) []upstream.Item {
	return a.current().List(p, kind)
}

// IsGated reports whether a tool of a server has a gate, which records its calls.
func (a access) IsGated(server, tool string) bool { return a.current().IsGated(server, tool) }

// CallTool implements evidence.Tools. It returns judge.ErrBusy if a reload of the upstreams ended the call, because
// that is not a failure of the tool.
func (a access) CallTool(ctx context.Context, p engine.Principal, server, tool string, params json.RawMessage) (evidence.ToolReply, error) {
	manager, err := a.openUpstreams()
	if err != nil {
		return evidence.ToolReply{Failure: judge.FailureUnavailable, Detail: fmt.Sprintf("the upstreams cannot be used: %v", err)}, nil
	}
	reply, err := manager.Call(ctx, p, upstream.Request{
		Upstream: server, Method: "tools/call", Kind: upstream.KindTool, Name: tool, Params: params,
		Progress: func(json.RawMessage) {}, // makes the source's timeout apply
	})
	if err == nil {
		return evidence.ToolReply{Result: reply.Result, Error: reply.Error}, nil
	}
	if a.current() != manager {
		return evidence.ToolReply{}, fmt.Errorf("%w: the upstreams were read again", judge.ErrBusy)
	}
	return explainFailure(ctx, err)
}

// openUpstreams returns the current manager. It opens the upstreams first if that is done on demand.
func (g *gateway) openUpstreams() (*upstream.Manager, error) {
	g.openMu.Lock()
	defer g.openMu.Unlock()
	if manager := g.current(); manager != nil || !g.onDemand {
		return manager, nil
	}
	g.mu.Lock()
	file, gates := g.file, g.gates
	g.mu.Unlock()
	manager, err := g.open(file, gates)
	if err == nil {
		g.setCurrent(file, gates, manager)
	}
	return manager, err
}

// explainFailure converts the error of a call to the failure of a source of evidence.
func explainFailure(ctx context.Context, err error) (evidence.ToolReply, error) {
	e, ok := errors.AsType[*upstream.Error](err)
	switch {
	case ctx.Err() != nil || !ok:
		return evidence.ToolReply{Failure: judge.FailureTimeout}, nil
	case e.Code == upstream.CodeBusy:
		return evidence.ToolReply{}, fmt.Errorf("%w: %s", judge.ErrBusy, e.Message)
	}
	failures := map[upstream.Code]judge.EvidenceFailure{
		upstream.CodeInvalid: judge.FailureArgument, upstream.CodeUnavailable: judge.FailureUnavailable, upstream.CodeLost: judge.FailureUnavailable,
		upstream.CodeTimeout: judge.FailureTimeout, upstream.CodeProtocol: judge.FailureMalformed,
	}
	failure, known := failures[e.Code]
	detail := e.Message
	switch {
	case e.Code == upstream.CodeUnknown:
		failure, detail = judge.FailureRefused, "the tool does not exist, or the principal of the move may not use it"
	case failure == judge.FailureArgument: // the message names keys
		detail = "the server cannot be called with these arguments: they are ambiguous or too long"
	case !known:
		failure = judge.FailureRefused
	}
	return evidence.ToolReply{Failure: failure, Detail: detail}, nil
}
