package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Options configures a Manager. The zero value is valid.
type Options struct {
	// Pins are the pins from LoadPins; nil means none.
	Pins *Pins
	// Gates bind tools to workflows. Engine returns the engine that judges their calls. While it returns nil, such
	// calls are refused.
	Gates  gate.Config
	Engine func() Engine
	// Hold marks a gated call as made by this process, from before it is recorded until release. Nil does nothing.
	Hold func(call string) (release func())
	// Changed is called when lists may have changed. It must not block.
	Changed func(Change)
	// LookupEnv looks up variables of gavel's environment; nil is os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Watcher is a program whose main calls process.Watch first; "" means none.
	Watcher string
	// Version is gavel's version, as reported to upstreams.
	Version string
	// States seals the requestState of upstreams. A sealed state is accepted only from the same principal, for the same
	// upstream, item and arguments. If nil, the Manager creates its own.
	States *clientstate.States
	Logger *slog.Logger // nil discards
}

// Manager gives access to all upstreams. It is safe for concurrent use. A nil Manager has no upstreams.
type Manager struct {
	opts    Options
	servers map[string]*server
	names   []string // sorted
	watcher *process.Watcher
	// starting limits concurrent session starts.
	starting chan struct{}
	guards   map[bool]*egress.Guard // key: whether private networks may be dialled
	states   *clientstate.States
	// running counts the goroutines that Close waits for.
	running sync.WaitGroup
}

// Open checks the configuration against the environment and the pins, and returns a Manager. It starts nothing. The
// error is document.Errors, with one issue for each mistake.
func Open(cfg Config, opts Options) (*Manager, error) {
	if opts.LookupEnv == nil {
		opts.LookupEnv = os.LookupEnv
	}
	if opts.Engine == nil {
		opts.Engine = func() Engine { return nil }
	}
	if opts.States == nil {
		opts.States = clientstate.New()
	}
	if opts.Hold == nil {
		opts.Hold = func(string) func() { return func() {} }
	}
	if opts.Changed == nil {
		opts.Changed = func(Change) {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		opts: opts, servers: map[string]*server{}, names: sortedKeys(cfg.Servers),
		watcher: process.NewWatcher(opts.Watcher), starting: make(chan struct{}, maxStarting),
		guards: map[bool]*egress.Guard{false: egress.NewGuard(false), true: egress.NewGuard(true)}, states: opts.States,
	}
	var faults document.Errors
	for _, name := range m.names {
		s := cfg.Servers[name].withDefaults()
		checkServer(s, func(pointer, format string, args ...any) {
			faults = append(faults, cfg.issue(name, pointer, format, args...))
		}, opts.LookupEnv)
		pinned, known := opts.Pins.Of(name)
		if known && s.Pinning == PinningFile {
			faults = append(faults, cfg.checkPatterns(name, s, pinned)...)
		}
		m.servers[name] = newServer(m, name, cfg.Dir, s, pinned)
	}
	if err := opts.Gates.CheckTools(m.names, m.pinnedTools); err != nil {
		wrong, _ := errors.AsType[document.Errors](err)
		faults = append(faults, wrong...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return m, nil
}

// PinOnFirstUse starts the servers that are pinned on first use, because their items cannot be listed before that.
func (m *Manager) PinOnFirstUse() {
	for _, name := range m.names {
		if s := m.servers[name]; s.Pinning == PinningFirstUse {
			s.goTracked(s.pinOnFirstUse)
		}
	}
}

// pinnedTools returns a server's pinned tools by public name. known is false if the server is not pinned in the file.
func (m *Manager) pinnedTools(server string) (tools map[string]document.JSON, known bool) {
	items, known := m.opts.Pins.Of(server)
	tools = map[string]document.JSON{}
	for _, item := range items {
		if item.Kind == KindTool {
			tools[item.Public] = readChecked(item.Raw)
		}
	}
	return tools, known && m.servers[server].Pinning == PinningFile
}

// gateOf returns the gate of an item, or nil.
func (m *Manager) gateOf(item Item) *gate.Gate {
	if item.Kind != KindTool {
		return nil
	}
	return m.opts.Gates.GateOf(item.Public)
}

// IsGated reports whether a tool of an upstream has a gate, which records its calls.
func (m *Manager) IsGated(upstream, tool string) bool {
	if m == nil || m.servers[upstream] == nil {
		return false
	}
	return m.opts.Gates.GateOf(publicName(upstream, KindTool, tool)) != nil
}

// maxStarting limits concurrent session starts.
const maxStarting = 4

// withDefaults returns s with the default for each setting that is not set.
func (s Server) withDefaults() Server {
	s.Session = cmp.Or(s.Session, SessionShared)
	s.Pinning = cmp.Or(s.Pinning, PinningFile)
	s.Protocol = cmp.Or(s.Protocol, ProtocolAuto)
	s.ConnectTimeout = cmp.Or(s.ConnectTimeout, DefaultConnectTimeout)
	s.ListTimeout = cmp.Or(s.ListTimeout, DefaultListTimeout)
	s.CallTimeout = cmp.Or(s.CallTimeout, DefaultCallTimeout)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, DefaultIdleTimeout)
	return s
}

// checkPatterns rejects patterns that match no pinned item, because they are probably typing errors.
func (c Config) checkPatterns(name string, s Server, pinned []Item) (faults document.Errors) {
	for i, rule := range s.Allow {
		for _, group := range []struct {
			key      string
			kinds    []Kind
			patterns []string
		}{
			{"tools", []Kind{KindTool}, rule.Tools},
			{"resources", []Kind{KindResource, KindTemplate}, rule.Resources},
			{"prompts", []Kind{KindPrompt}, rule.Prompts},
		} {
			var names []string
			for _, item := range pinned {
				if slices.Contains(group.kinds, item.Kind) {
					names = append(names, item.Name)
				}
			}
			for j, pattern := range group.patterns {
				// A template yields URIs that are not known here.
				template := group.key == "resources" && slices.ContainsFunc(pinned, func(i Item) bool { return i.Kind == KindTemplate })
				if pattern == "*" || template || slices.ContainsFunc(names, func(n string) bool { return engine.MatchName(pattern, n) }) {
					continue
				}
				message := "the pattern %q matches none of the pinned %s"
				if near := document.Suggest(pattern, names); near != "" {
					message += "; did you mean " + quoteJSON(near) + "?"
				}
				at := document.PointerOf("allow", formatIndex(i), group.key, formatIndex(j))
				faults = append(faults, c.issue(name, string(at), message, pattern, group.key))
			}
		}
	}
	return faults
}

// Upstreams returns the names of all upstreams, sorted.
func (m *Manager) Upstreams() []string {
	if m == nil {
		return nil
	}
	return slices.Clone(m.names)
}

// Warnings returns sentences about upstreams whose items are not listed, or that are less protected than they could
// be.
func (m *Manager) Warnings() []string {
	var out []string
	for _, name := range m.Upstreams() {
		s := m.servers[name]
		if _, pinned := m.opts.Pins.Of(name); !pinned && s.Pinning == PinningFile {
			out = append(out, fmt.Sprintf("no item of the upstream %q is listed until it is pinned: run gavel upstream pin %s", name, name))
		}
		if s.Pinning == PinningFirstUse {
			out = append(out, fmt.Sprintf("the upstream %q is pinned on first use: its items are trusted at each start of gavel", name))
		}
		if len(s.Allow) == 0 {
			out = append(out, fmt.Sprintf("the upstream %q has no rule in \"allow\", so no one may use it", name))
		}
	}
	for _, g := range m.gates() {
		if s := m.servers[g.Upstream()]; s != nil && s.Pinning == PinningFirstUse {
			out = append(out, fmt.Sprintf("whether the upstream %q has the gated tool %q is not known before its first session; if the gate has a typo in the name, the tool runs without a gate", s.name, g.Tool))
		}
	}
	return out
}

// gates returns the configured gates.
func (m *Manager) gates() []gate.Gate {
	if m == nil {
		return nil
	}
	return m.opts.Gates.Gates
}

// List returns the items of a kind that a principal may use, sorted by upstream and name. It omits gated tools that
// are listed only while they may be called. It never waits for an upstream.
func (m *Manager) List(p engine.Principal, kind Kind) []Item {
	var out []Item
	for _, name := range m.Upstreams() {
		s := m.servers[name]
		s.mu.Lock()
		for _, item := range s.pinned {
			if item.Kind == kind && s.differences[item.key()].Change == "" && s.allows(p, kind, item.Name) {
				item.Gate = m.gateOf(item)
				out = append(out, item)
			}
		}
		s.mu.Unlock()
	}
	return slices.DeleteFunc(out, func(i Item) bool {
		return i.Gate != nil && i.Gate.List == gate.ListLegal && !m.isAvailableTo(p, *i.Gate)
	})
}

// Resolve returns the upstream and name for a public name. It does not check rights; Call does. A resource need not
// be listed, because a template may match it.
func (m *Manager) Resolve(kind Kind, public string) (upstream, name string, ok bool) {
	if kind == KindResource || kind == KindTemplate {
		prefix, uri, ok := splitURI(public)
		for _, name := range m.Upstreams() {
			if ok && strings.EqualFold(name, prefix) {
				return name, uri, true
			}
		}
		return "", "", false
	}
	for _, name := range m.Upstreams() {
		s := m.servers[name]
		s.mu.Lock()
		i := slices.IndexFunc(s.pinned, func(i Item) bool { return i.Kind == kind && i.Public == public })
		if i >= 0 {
			item := s.pinned[i]
			s.mu.Unlock()
			return name, item.Name, true
		}
		s.mu.Unlock()
	}
	return "", "", false
}

// Close ends every session and waits until no process is left. Calls end with CodeUnavailable.
func (m *Manager) Close() {
	if m == nil {
		return
	}
	var ended sync.WaitGroup
	for _, s := range m.servers {
		ended.Go(s.close)
	}
	ended.Wait()
	m.running.Wait()
	m.watcher.Close()
	for _, g := range m.guards {
		g.Transport().CloseIdleConnections()
	}
}
