// Package evidence fetches facts from where an operator said that they are: a
// command that runs here, an address that is read, a tool of another MCP server. It is the
// judge's Fetcher.
//
// It promises that whoever asks for a move chooses arguments and nothing else. A
// command has the arguments that its operator wrote, as many as he wrote, and no
// shell ever reads them; an argument that came from outside never becomes an
// option. An address keeps its scheme, host, path and query keys, whatever is put
// into it, and by default leads to no private network, however a name resolves and
// wherever a redirect points: the check is at the dial. Everything is bounded: time,
// memory, what is read, how many run at once. A command runs in a session of its own,
// without a terminal and without a file of gavel's, and what it starts and leaves in its
// process group ends with it, also when this process is killed (see process.Watch). A tool is
// called through the one door of upstream, with the rights of whoever asked for the move.
//
// Unavailable evidence is a judge.FetchResult with a Failure, in one sentence without
// values of arguments and without what was fetched. Any exit code is a result: a
// failing test is evidence.
//
// A command in the background runs in a process that outlives this one (see Run), and its result is
// served for as long as the files are as they were while it ran.
//
// It must never log, pass on an environment variable or a header that no operator
// named, or take a half-fetched JSON value for a whole one.
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
	// Concurrent is how many fetches run at once; 0 is 16. One caller has
	// at most half of them.
	Concurrent int
	// Wait is how long a fetch waits for a permit; 0 is 5 seconds.
	Wait time.Duration
	// LookupEnv looks up variables of gavel's environment; nil is os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Watcher is a program whose main begins with process.Watch and IsRunner. It is started beside
	// the first command, and ends commands with all that they started when this process is
	// killed. "" is none: then the kernel ends the commands themselves, on Linux, and none runs in
	// the background.
	Watcher string
}

// Kinds of sources.
const (
	KindCommand  = "command"
	KindHTTP     = "http"
	KindUpstream = "upstream"
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
	tools   Tools  // nil: there are none
	runner  string // for commands in the background
	results atomic.Pointer[results]

	closing chan struct{}
	mu      sync.Mutex // guards closed and running
	closed  bool
	running map[*context.CancelFunc]bool
	ended   sync.WaitGroup
}

var _ judge.Fetcher = (*Manager)(nil)

// New checks cfg and makes ready to fetch. Nothing is fetched and no process is
// started. The error is document.Errors, one issue for each mistake; what is only
// missing now, such as a program, is among Warnings.
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

// UseTools has sources that are tools of other MCP servers called. Call it before anything is fetched.
func (m *Manager) UseTools(tools Tools) { m.tools = tools }

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
	}
	m.sources[name] = compiled
	m.infos = append(m.infos, i)
	m.warnings = append(m.warnings, compiled.kind.warnings()...)
}

// Names lists the sources, sorted; nil of a nil Manager, which has none configured.
func (m *Manager) Names() []string {
	if m == nil {
		return nil
	}
	return append([]string{}, slices.Sorted(maps.Keys(m.sources))...)
}

// ReadOnlyNames lists the sources that only look.
func (m *Manager) ReadOnlyNames() (names []string) {
	for _, i := range m.List() {
		if i.ReadOnly {
			names = append(names, i.Name)
		}
	}
	return names
}

// List tells of every source, sorted by name.
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

// Warnings are sentences about what would fail if it were fetched now: a directory or
// a program that was not there when the Manager was made.
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
	r.Timeout = s.boundTimeout(r.Timeout)
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

// boundTimeout is how long a fetch may take that was asked for with a timeout, 0 for none.
func (s *source) boundTimeout(asked time.Duration) time.Duration {
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

// endReason returns why a failure says nothing of the source: the caller has gone,
// or the Manager ends.
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

// Close ends what is being fetched, whose callers get judge.ErrBusy,
// and waits for it. Fetch afterwards is an error that wraps judge.ErrBusy.
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
