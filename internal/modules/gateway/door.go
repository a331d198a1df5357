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

// gateway is the door to other MCP servers of one system, with the gates before their tools.
type gateway struct {
	*foreign.Face
	opts     upstream.Options
	log      *slog.Logger
	onDemand bool // the door is opened when a tool is first called
	held     heldCalls
	engine   atomic.Pointer[engine.Engine]

	opening sync.Mutex // held while a door is opened on demand

	mu    sync.Mutex
	file  *config.File // that in force
	door  *upstream.Manager
	gates gate.Config
	// following ends the announcing of moves, and waits for it; nil while nothing is announced.
	following func()
}

func newGateway(setup module.Setup) *gateway {
	g := &gateway{Face: foreign.New(setup.Log), log: setup.Log, onDemand: setup.OnDemand, held: findHeldCalls(setup.Folder)}
	g.opts = upstream.Options{
		Changed: g.Announce, Hold: g.held.hold, LookupEnv: setup.LookupEnv, Watcher: setup.Watcher, Version: setup.Version, States: clientstate.New(), Logger: setup.Log,
	}
	g.opts.Engine = func() upstream.Engine {
		if e := g.engine.Load(); e != nil {
			return e
		}
		return nil
	}
	return g
}

// prepare reads and checks the sections and the pins; take has them in force, and ends the calls that
// the servers of before have in flight. What is not taken may be dropped. No server is started before.
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
	var door *upstream.Manager
	if g.onDemand {
		err = checkEvidence(file, gates)
	} else {
		door, err = g.open(file, gates)
	}
	if err != nil {
		return nil, err
	}
	return func() { g.use(file, gates, door) }, nil
}

// open opens the door that a file declares.
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

// use has a file in force, with its gates and its door; nil where that is opened on demand. Servers that
// are pinned on first use are started.
func (g *gateway) use(file *config.File, gates gate.Config, door *upstream.Manager) {
	g.mu.Lock()
	before := g.door
	g.file, g.gates, g.door = file, gates, door
	g.mu.Unlock()
	if door == nil {
		return
	}
	g.warn(file, door)
	g.Serve(door)
	g.follow()
	before.Close()
	door.Learn()
}

func (g *gateway) warn(file *config.File, door *upstream.Manager) {
	for _, warning := range door.Warnings() {
		g.log.Warn("upstreams", "config", file.Path(), "issue", warning)
	}
}

// readUpstreams reads what a configuration file declares, and the pins next to it.
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
		cfg.NextTools = func(p engine.Principal, at engine.Position) []string { return g.inForce().ListNextTools(p, at) }
	}
}

// connect has gated calls judged by the engine. What servers keep with clients between two requests
// comes back to any process over the store.
func (g *gateway) connect(s module.System) error {
	g.held.sweep(time.Now())
	g.opts.States.Share(s.DeriveKey("gavel/upstream-state/v1"), s.Store)
	g.engine.Store(s.Engine)
	g.follow()
	return nil
}

// check compares the gates with the definitions that operators made.
func (g *gateway) check(ctx context.Context) error {
	return g.rules().CheckIn(ctx, g.engine.Load(), operator)
}

// rules are the gates in force.
func (g *gateway) rules() gate.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gates
}

// inForce is the door in force; nil leads nowhere.
func (g *gateway) inForce() *upstream.Manager {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.door
}

// close ends every session with a server.
func (g *gateway) close() {
	g.mu.Lock()
	stop := g.following
	g.following = func() {}
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
	g.inForce().Close()
}

// settleEvery is how often calls are looked for that were not answered in time.
const settleEvery = time.Minute

// settle settles calls that were not answered in time as unknown, now and every minute: a process that
// was killed does not come back to its own.
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
			case <-time.After(settleEvery):
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
		g.log.Warn("cannot look through the open calls; trying again in a minute", "error", err)
	case n > 0:
		g.log.Warn("calls of other servers' tools were not answered in time; a person has to say whether they happened", "number", n)
	}
}

// access is what others get of a gateway: the door that is in force when they ask.
type access struct{ *gateway }

// Call implements chain.Upstreams.
func (a access) Call(ctx context.Context, p engine.Principal, req upstream.Request) (upstream.Reply, error) {
	return a.inForce().Call(ctx, p, req)
}

// List returns what a principal may use.
func (a access) List(p engine.Principal, kind upstream.Kind) []upstream.Item {
	return a.inForce().List(p, kind)
}

// IsGated reports whether a tool of a server has a gate, which records its calls.
func (a access) IsGated(server, tool string) bool { return a.inForce().IsGated(server, tool) }

// CallTool implements evidence.Tools. A call that ended because the upstreams were read again says
// nothing of the tool.
func (a access) CallTool(ctx context.Context, p engine.Principal, server, tool string, params json.RawMessage) (evidence.ToolReply, error) {
	door, err := a.openDoor()
	if err != nil {
		return evidence.ToolReply{Failure: judge.FailureUnavailable, Detail: fmt.Sprintf("the upstreams cannot be used: %v", err)}, nil
	}
	reply, err := door.Call(ctx, p, upstream.Request{
		Upstream: server, Method: "tools/call", Kind: upstream.KindTool, Name: tool, Params: params,
		Progress: func(json.RawMessage) {}, // with it the source's timeout is the one that counts
	})
	if err == nil {
		return evidence.ToolReply{Result: reply.Result, Error: reply.Error}, nil
	}
	if a.inForce() != door {
		return evidence.ToolReply{}, fmt.Errorf("%w: the upstreams were read again", judge.ErrBusy)
	}
	return explainFailure(ctx, err)
}

// openDoor is the door in force, opened where that was left until now.
func (g *gateway) openDoor() (*upstream.Manager, error) {
	g.opening.Lock()
	defer g.opening.Unlock()
	if door := g.inForce(); door != nil || !g.onDemand {
		return door, nil
	}
	g.mu.Lock()
	file, gates := g.file, g.gates
	g.mu.Unlock()
	door, err := g.open(file, gates)
	if err == nil {
		g.use(file, gates, door)
	}
	return door, err
}

// explainFailure says why there is no reply.
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
		failure, detail = judge.FailureRefused, "the tool is not there, or not allowed to whoever asked for the move"
	case failure == judge.FailureArgument: // the message has names of keys
		detail = "the server cannot be asked with these arguments: they can be read in two ways, or are too long"
	case !known:
		failure = judge.FailureRefused
	}
	return evidence.ToolReply{Failure: failure, Detail: detail}, nil
}
