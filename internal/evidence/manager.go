// Package evidence fetches facts from sources that an operator declared: a local command, an HTTP address, a tool of
// another MCP server, or what the agent's user said. It is the judge's Fetcher.
//
// It promises that the caller who asks for a move chooses arguments and nothing else:
//   - A command has exactly the arguments that its operator wrote. No shell ever parses them, and a value from
//     outside never becomes an option.
//   - An address keeps its scheme, host, path and query keys, whatever values are inserted. By default it leads to no
//     private network, however a name resolves and wherever a redirect points: the check is at the dial.
//   - Time, memory, input and concurrency are limited.
//   - A command runs in its own session, without a terminal and without open files of gavel. It ends together with
//     all its child processes in its process group, even if this process is killed (see process.Watch).
//   - A tool is called only through upstream, with the rights of the principal that asked for the move.
//
// Unavailable evidence is a judge.FetchResult with a Failure: one sentence without values of arguments and without
// fetched content. Any exit code is a result: a failing test is evidence.
//
// A background command runs in a process that outlives this one (see Run). Its result is served as long as the files
// are the same as during its run.
//
// It must never:
//   - log;
//   - pass on an environment variable or a header that no operator named;
//   - treat a partially fetched JSON value as complete.
package evidence

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Options configures a Manager. The zero value is valid.
type Options struct {
	// Concurrent limits the concurrent fetches; 0 is 16. One caller may have at most half of them.
	Concurrent int
	// Wait limits how long a fetch waits for a permit; 0 is 5 seconds.
	Wait time.Duration
	// LookupEnv looks up variables of gavel's environment; nil is os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Watcher is a program whose main begins with process.Watch and handles RunnerName. It is started together with
	// the first command. If this process is killed, the watcher ends commands with all their child processes. ""
	// disables it: then only the kernel ends the commands themselves, on Linux, and no command runs in the
	// background.
	Watcher string
}

// Kinds of sources.
const (
	KindCommand    = "command"
	KindHTTP       = "http"
	KindUpstream   = "upstream"
	KindTranscript = "transcript"
)

// Info describes a source without its address, headers or command.
type Info struct {
	Name        string                `json:"name"`
	Kind        string                `json:"kind"`
	Description string                `json:"description,omitempty"`
	ReadOnly    bool                  `json:"readOnly"`
	Background  bool                  `json:"background,omitempty"`
	Arguments   map[string]Argument   `json:"arguments,omitempty"`
	Timeout     document.Milliseconds `json:"timeoutMs"`
}

// Manager fetches evidence from declared sources. It is safe for concurrent use.
type Manager struct {
	sources  map[string]*source
	infos    []Info
	warnings []string

	permits *fairshare.Queue
	watcher *process.Watcher
	public  *egress.Guard
	private *egress.Guard
	tools   Tools // nil if there are none
	said    ReadTranscript
	runner  string // for background commands
	results atomic.Pointer[results]

	closing chan struct{}
	mu      sync.Mutex // guards closed and running
	closed  bool
	running map[*context.CancelFunc]bool
	ended   sync.WaitGroup
}

var _ judge.Fetcher = (*Manager)(nil)

// New checks cfg and prepares for fetching. It fetches nothing and starts no process. The error is document.Errors,
// with one issue for each mistake. Things that are missing only at the moment, such as a program, are in Warnings.
func New(cfg Config, opts Options) (*Manager, error) {
	if opts.LookupEnv == nil {
		opts.LookupEnv = os.LookupEnv
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("evidence: find the directory of the configuration: %w", err)
	}
	m := &Manager{
		sources: map[string]*source{},
		permits: fairshare.New(fairshare.Config{Permits: cmp.Or(opts.Concurrent, 16), Wait: cmp.Or(opts.Wait, 5*time.Second)}),
		watcher: process.NewWatcher(opts.Watcher),
		public:  egress.NewGuard(false),
		private: egress.NewGuard(true),
		runner:  opts.Watcher,
		closing: make(chan struct{}),
		running: map[*context.CancelFunc]bool{},
	}
	var faults document.Errors
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		s := cfg.Sources[name]
		before := len(faults)
		c := compiler{name: name, dir: dir, lookup: opts.LookupEnv, fail: func(pointer, format string, args ...any) {
			faults = append(faults, cfg.Issue(name, pointer, format, args...))
		}}
		if compiled := c.compile(s); len(faults) == before {
			m.add(name, s, compiled)
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return m, nil
}

// UseTools sets the implementation for sources that are tools of other MCP servers. It must be called before the
// first Fetch.
func (m *Manager) UseTools(tools Tools) { m.tools = tools }

// UseTranscript sets what reads a user's messages. It must be called before the first Fetch.
func (m *Manager) UseTranscript(read ReadTranscript) { m.said = read }

func (m *Manager) add(name string, s Source, compiled *source) {
	i := Info{
		Name: name, Kind: KindCommand, Description: s.Description,
		ReadOnly: compiled.readOnly, Arguments: maps.Clone(s.Arguments), Timeout: document.Milliseconds(compiled.timeout),
	}
	switch k := compiled.kind.(type) {
	case *address:
		i.Kind = KindHTTP
		if k.guard = m.public; s.PrivateNetwork {
			k.guard = m.private
		}
	case *command:
		k.watcher = m.watcher
	case *background:
		i.Background, k.watcher, k.runner, k.results = true, m.watcher, m.runner, &m.results
	case *tool:
		i.Kind, k.manager = KindUpstream, m
	case *transcript:
		i.Kind, k.manager = KindTranscript, m
	}
	m.sources[name] = compiled
	m.infos = append(m.infos, i)
	m.warnings = append(m.warnings, compiled.kind.warnings()...)
}

// Names lists the sources, sorted. It is nil for a nil Manager, which has no sources.
func (m *Manager) Names() []string {
	if m == nil {
		return nil
	}
	return append([]string{}, slices.Sorted(maps.Keys(m.sources))...)
}

// ReadOnlyNames lists the sources without side effects.
func (m *Manager) ReadOnlyNames() (names []string) {
	for _, i := range m.List() {
		if i.ReadOnly {
			names = append(names, i.Name)
		}
	}
	return names
}

// List describes all sources, sorted by name.
func (m *Manager) List() []Info {
	if m == nil {
		return nil
	}
	out := slices.Clone(m.infos)
	for i := range out {
		out[i].Arguments = maps.Clone(out[i].Arguments)
	}
	return out
}

// Warnings returns sentences about fetches that would fail now, such as a directory or program that was missing when
// the Manager was created.
func (m *Manager) Warnings() []string { return slices.Clone(m.warnings) }

// Fetch implements judge.Fetcher.
func (m *Manager) Fetch(ctx context.Context, r judge.EvidenceRequest, readOnly bool) (judge.FetchResult, error) {
	s, ok := m.sources[r.Source]
	switch {
	case !ok:
		return failedFetch(judge.FailureNotConfigured, "no source %s is configured", listNames([]string{r.Source})), nil
	case readOnly && !s.readOnly:
		return failedFetch(judge.FailureNotReadOnly, "the source is not marked readOnly, and this is a pre-check"), nil
	}
	given, problem := s.readArguments(r)
	if problem != "" {
		return failedFetch(judge.FailureArgument, "%s", problem), nil
	}
	r.Timeout = s.limitTimeout(r.Timeout)
	fetch, problem := s.kind.prepare(r, given)
	if problem != "" {
		return failedFetch(judge.FailureArgument, "%s", problem), nil
	}
	fctx, end, err := m.acquire(ctx, r.Caller)
	if err != nil {
		return judge.FetchResult{}, err
	}
	defer end()
	if !s.detaches {
		var cancel context.CancelFunc
		fctx, cancel = context.WithTimeout(fctx, r.Timeout)
		defer cancel()
	}
	out, err := fetch(fctx)
	if err == nil && out.Failure == "" {
		out.Same = selectParts(out.Content, s.same)
		return out, nil
	}
	if err := cmp.Or(m.endReason(ctx), err); err != nil {
		return judge.FetchResult{}, err
	}
	if out.Failure == judge.FailureTimeout && out.Detail == "" {
		out.Detail = fmt.Sprintf("timed out after %s", r.Timeout)
	}
	return out, nil
}

// limitTimeout returns how long a fetch with a requested timeout (0 for none) may take.
func (s *source) limitTimeout(asked time.Duration) time.Duration {
	switch {
	case asked <= 0:
		return s.timeout
	case s.stretches:
		return min(asked, MaxTimeout)
	default:
		return min(asked, s.timeout)
	}
}

var errClosed = fmt.Errorf("%w: the sources are being closed", judge.ErrBusy)

// endReason returns a reason for a failure that has nothing to do with the source: the caller has gone, or the
// Manager is closing. Otherwise it returns nil.
func (m *Manager) endReason(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-m.closing:
		return errClosed
	default:
		return nil
	}
}

// acquire waits in line for a permit of the caller. end gives it back.
func (m *Manager) acquire(ctx context.Context, caller string) (fctx context.Context, end func(), err error) {
	fctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		cancel()
		return nil, nil, errClosed
	}
	m.running[&cancel] = true
	m.ended.Add(1)
	m.mu.Unlock()
	leave := func() {
		cancel()
		m.mu.Lock()
		delete(m.running, &cancel)
		m.mu.Unlock()
		m.ended.Done()
	}
	release, err := m.permits.Acquire(fctx, caller)
	if err == nil {
		return fctx, func() { release(); leave() }, nil
	}
	leave()
	if ended := m.endReason(ctx); ended != nil {
		return nil, nil, ended
	}
	return nil, nil, fmt.Errorf("%w: %d fetches are running; try again in a moment", judge.ErrBusy, m.permits.Stats().Held)
}

// Close cancels fetches in progress, whose callers get judge.ErrBusy, and waits for them. A later Fetch returns an
// error that wraps judge.ErrBusy.
func (m *Manager) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.closing)
		m.permits.Close()
		for cancel := range m.running {
			(*cancel)()
		}
	}
	m.mu.Unlock()
	m.ended.Wait()
	m.watcher.Close()
	m.public.Transport().CloseIdleConnections()
	m.private.Transport().CloseIdleConnections()
}
