package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// Limits for one upstream.
const (
	maxInFlight = 64
	maxSessions = 256
	// recheckInterval is how long a comparison with the pins stays valid, unless the upstream reports a change.
	recheckInterval = time.Minute
	// The delay after consecutive failures, starting with the second.
	minBackoff, maxBackoff = 500 * time.Millisecond, time.Minute
	maxUnanswered          = 3 // consecutive unanswered calls that count as a failure
)

// server is one upstream and its state.
type server struct {
	Server
	name    string
	dir     string
	manager *Manager
	// secrets are values that must not appear in any text.
	secrets    []string
	inFlight   *fairshare.Queue // a single principal gets at most half
	responding chan struct{}
	closing    chan struct{} // closed when the Manager closes

	// mu guards the fields below. It is never held while waiting for an upstream.
	mu       sync.Mutex
	closed   bool
	pinned   []Item // sorted
	sessions map[string]*slot
	// differences are the results of the latest comparison of each kind, including items that are not pinned.
	differences    map[itemKey]Difference
	firstUsePinned map[Kind]bool // kinds that were pinned on first use
	breaker
	// unanswered counts, for each principal, its consecutive calls without an answer.
	unanswered map[string]*unanswered
}

// breaker delays calls after failures.
type breaker struct {
	failures  int // consecutive failures
	notBefore time.Time
}

// unanswered counts consecutive unanswered calls of one principal.
type unanswered struct {
	breaker
	count int
	// recent reports that one of them is newer than the last answer to any principal.
	recent bool
}

// slot holds one session, which may still be starting.
type slot struct {
	ready   chan struct{} // closed when session or err is set
	session *session
	err     error
	users   int
	idle    *time.Timer
}

func newServer(m *Manager, name, dir string, s Server, pinned []Item) *server {
	out := &server{
		Server: s, name: name, dir: dir, manager: m, inFlight: fairshare.New(fairshare.Config{Permits: maxInFlight}), responding: make(chan struct{}, maxResponses),
		closing: make(chan struct{}), sessions: map[string]*slot{}, differences: map[itemKey]Difference{}, firstUsePinned: map[Kind]bool{},
		unanswered: map[string]*unanswered{},
	}
	if s.Pinning == PinningFile {
		out.pinned = pinned
	}
	secret := func(value string) {
		if len(value) >= 4 {
			out.secrets = append(out.secrets, value)
		}
	}
	for _, value := range s.Set {
		secret(value)
	}
	for _, variable := range s.Environment {
		if value, ok := m.opts.LookupEnv(variable); ok && !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG"}, variable) {
			secret(value)
		}
	}
	for _, values := range egress.Headers(s.Headers, m.opts.LookupEnv, func(string, string) {}) {
		for word := range strings.FieldsSeq(values[0]) {
			secret(word)
		}
	}
	// Sort by length, longest first, because one may be part of another.
	slices.SortFunc(out.secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	return out
}

// clientInfo returns gavel's name and version, as sent to upstreams.
func (s *server) clientInfo() json.RawMessage {
	return json.RawMessage(`{"name":"gavel","version":` + quoteJSON(cmp.Or(s.manager.opts.Version, "0")) + `}`)
}

// goTracked runs f in a goroutine that Close waits for.
func (s *server) goTracked(f func()) { _ = s.tryGo(f) }

// tryGo runs f in a goroutine that Close waits for. If the Manager is closing, it returns false without running f.
func (s *server) tryGo(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.manager.running.Go(f)
	}
	return !s.closed
}

// errClosing is the failure of calls while the Manager closes.
var errClosing = &linkError{code: CodeUnavailable, text: "gavel is shutting down"}

// acquire returns a principal's session, starting one if necessary. Callers must call release when done with it.
func (s *server) acquire(ctx context.Context, p engine.Principal) (ses *session, release func(), err error) {
	key := ""
	if s.Session == SessionPrincipal {
		key = p.ID
	}
	s.mu.Lock()
	sl := s.sessions[key]
	if sl != nil && sl.session != nil {
		select {
		case <-sl.session.link.gone():
			delete(s.sessions, key)
			sl = nil
		default:
		}
	}
	if sl == nil {
		wait := time.Until(s.notBefore)
		switch {
		case s.closed:
			err = errClosing
		case wait > 0:
			err = &linkError{code: CodeUnavailable, text: "the server has failed several times in a row", retryAfter: wait}
		case len(s.sessions) >= maxSessions:
			err = &linkError{code: CodeBusy, text: "the maximum number of sessions is already open"}
		}
		if err != nil {
			s.mu.Unlock()
			return nil, nil, err
		}
		sl = &slot{ready: make(chan struct{})}
		s.sessions[key] = sl
		s.manager.running.Go(func() { s.start(key, sl) })
	}
	sl.users++
	if sl.idle != nil {
		sl.idle.Stop()
	}
	s.mu.Unlock()
	release = func() { s.release(key, sl) }
	select {
	case <-sl.ready:
		if sl.err != nil {
			release()
			return nil, nil, sl.err
		}
		return sl.session, release, nil
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
}

// release records that a caller no longer uses a session. An unused session ends after IdleTimeout.
func (s *server) release(key string, sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.users--; sl.users > 0 || s.closed || s.sessions[key] != sl {
		return
	}
	sl.idle = time.AfterFunc(s.IdleTimeout, func() {
		s.mu.Lock()
		current := s.sessions[key] == sl && sl.users == 0 && !s.closed
		if current {
			delete(s.sessions, key)
			s.manager.running.Go(func() { s.closeSlot(sl) })
		}
		s.mu.Unlock()
	})
}

// start starts a session. It continues even if the callers that wait for it give up.
func (s *server) start(key string, sl *slot) {
	ctx, cancel := context.WithTimeout(context.Background(), s.ConnectTimeout)
	defer cancel()
	ses, err := s.connect(ctx)
	s.mu.Lock()
	sl.session, sl.err = ses, err
	closed := s.closed
	if err != nil {
		if s.sessions[key] == sl {
			delete(s.sessions, key)
		}
		s.fail()
	}
	close(sl.ready)
	s.mu.Unlock()
	if closed && err == nil {
		ses.link.close()
	}
}

// connect opens a link and an MCP session on it. The number of concurrent starts is limited, but a start that takes
// longer than a second no longer counts.
func (s *server) connect(ctx context.Context) (*session, error) {
	select {
	case s.manager.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, &linkError{code: CodeUnavailable, text: "too many servers are being started"}
	}
	leave := sync.OnceFunc(func() { <-s.manager.starting })
	timer := time.AfterFunc(time.Second, leave)
	defer func() { timer.Stop(); leave() }()

	ses := &session{server: s, pending: map[string]*pending{}, checks: map[Kind]*kindCheck{}}
	if err := s.openLink(ses); err != nil {
		return nil, err
	}
	// If the Manager closes the link, open fails.
	stop := s.watchClosing(ses)
	defer stop()
	err := ses.open(ctx)
	if err == nil {
		return ses, nil
	}
	failure, ok := errors.AsType[*linkError](err)
	switch {
	case ctx.Err() != nil:
		failure = &linkError{code: CodeUnavailable, text: "the server did not answer within " + s.ConnectTimeout.String()}
	case !ok:
		failure = &linkError{code: CodeUnavailable, text: err.Error()}
	default:
		failure = &linkError{code: CodeUnavailable, text: failure.text, retryAfter: failure.retryAfter, err: failure.err}
	}
	if l, ok := ses.link.(*stdioLink); ok {
		l.close()
		failure.err = errors.New(cmp.Or(l.stderr.text(), "it wrote nothing to its standard error"))
	} else {
		ses.link.close()
	}
	return nil, failure
}

func (s *server) openLink(ses *session) error {
	if s.URL != "" {
		ses.link = newHTTPLink(s, ses)
		return nil
	}
	l, err := startProgram(s, ses)
	if err == nil {
		ses.link = l
	}
	return err
}

// watchClosing closes the link of a session that is still being opened when the Manager closes.
func (s *server) watchClosing(ses *session) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-s.closing:
			ses.link.close()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// fail records a failure. From the second consecutive one on, it delays the next call.
func (b *breaker) fail() {
	if b.failures++; b.failures > 1 {
		wait := min(maxBackoff, minBackoff<<min(b.failures-2, 20))
		b.notBefore = time.Now().Add(wait/2 + rand.N(wait/2+1)) //nolint:gosec // not a secret
	}
}

// noteOutcome records how a principal's call ended. If the calls of one principal get no answer, only that principal is
// delayed. All are delayed only if calls of two principals got no answer since the last answer to anyone.
func (s *server) noteOutcome(p engine.Principal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch code := codeOf(err); {
	case err == nil, code == CodeProtocol:
		s.breaker = breaker{}
		delete(s.unanswered, p.ID)
		for _, other := range s.unanswered {
			other.recent = false
		}
	case code == CodeTimeout, code == CodeLost:
		own := s.unanswered[p.ID]
		if own == nil {
			own = &unanswered{}
			s.unanswered[p.ID] = own
		}
		own.recent = true
		if own.count++; own.count < maxUnanswered {
			break
		}
		own.failures = max(own.failures, 1)
		own.fail()
		for id, other := range s.unanswered {
			if id != p.ID && other.recent {
				s.failures = max(s.failures, 1)
				s.fail()
				break
			}
		}
	}
}

// backoffFor returns how long a principal's calls are still refused because of recent failures.
func (s *server) backoffFor(p engine.Principal) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := time.Until(s.notBefore)
	if own := s.unanswered[p.ID]; own != nil {
		wait = max(wait, time.Until(own.notBefore))
	}
	return wait
}

// forget ends a session that the upstream no longer knows, so that the next call starts a new one.
func (s *server) forget(ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, sl := range s.sessions {
		if sl.session == ses {
			delete(s.sessions, key)
		}
	}
	if !s.closed {
		s.manager.running.Go(ses.link.close)
	}
}

func (s *server) closeSlot(sl *slot) {
	<-sl.ready
	if sl.session != nil {
		sl.session.link.close()
	}
}

// close ends every session and waits for their processes.
func (s *server) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	open := s.sessions
	s.sessions = map[string]*slot{}
	for _, sl := range open {
		if sl.idle != nil {
			sl.idle.Stop()
		}
	}
	s.mu.Unlock()
	var ended sync.WaitGroup
	for _, sl := range open {
		ended.Go(func() { s.closeSlot(sl) })
	}
	ended.Wait()
}

// verify compares the items of a kind with the pins, unless a recent comparison is still valid. Concurrent callers
// share one comparison.
func (s *server) verify(ctx context.Context, ses *session, kind Kind) error {
	for {
		ses.mu.Lock()
		c := ses.checks[kind]
		if c == nil {
			c = &kindCheck{isStale: true}
			ses.checks[kind] = c
		}
		if !c.isStale && time.Since(c.at) < recheckInterval {
			ses.mu.Unlock()
			return nil
		}
		if c.running == nil {
			c.running, c.isStale, c.err = make(chan struct{}), false, nil
			s.goTracked(func() { s.compareKind(ses, kind, c) })
		}
		running := c.running
		ses.mu.Unlock()
		select {
		case <-running:
		case <-ses.link.gone():
			failure := ses.link.cause()
			failure.mayHaveRun = false // listing has no side effects
			return failure
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		ses.mu.Lock()
		err, stale := c.err, c.isStale
		ses.mu.Unlock()
		if err != nil || !stale {
			return err
		}
	}
}

// compareKind lists the items of a kind and records their differences from the pins.
func (s *server) compareKind(ses *session, kind Kind, c *kindCheck) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), s.ListTimeout,
		&linkError{code: CodeUnavailable, text: "the server did not list its items within " + s.ListTimeout.String()})
	defer cancel()
	now, notes, err := ses.list(ctx, kind)
	if failure, ok := errors.AsType[*linkError](err); ok && failure.mayHaveRun {
		again := *failure
		again.mayHaveRun = false // listing has no side effects
		err = &again
	}
	if err == nil {
		s.noteItems(kind, now, notes)
	}
	ses.mu.Lock()
	c.at, c.err = time.Now(), err
	c.isStale = c.isStale || err != nil
	close(c.running)
	c.running = nil
	ses.mu.Unlock()
}

// noteItems records the upstream's current items, and announces lists that changed as a result.
func (s *server) noteItems(kind Kind, now []Item, notes []Note) {
	s.mu.Lock()
	var changed []string // names
	if s.Pinning == PinningFirstUse && !s.firstUsePinned[kind] {
		s.firstUsePinned[kind] = true
		for _, note := range notes { // for other servers, gavel upstream pin reports them
			s.manager.opts.Logger.Warn("a definition of an upstream was repaired or left out", "upstream", s.name, "what", note.String())
		}
		for _, item := range now {
			if len(compareNames(now, item)) == 1 {
				s.pinned = append(s.pinned, item)
				changed = append(changed, item.Name)
			}
		}
		sortItems(s.pinned)
	}
	var pinned []Item
	for _, item := range s.pinned {
		if item.Kind == kind {
			pinned = append(pinned, item)
		}
	}
	before := s.differences
	s.differences = map[itemKey]Difference{}
	for key, d := range before {
		if key.kind != kind {
			s.differences[key] = d
		}
	}
	for _, d := range compareItems(pinned, now) {
		s.differences[itemKey{d.Kind, d.Name}] = d
	}
	for _, item := range pinned {
		if (before[item.key()].Change == "") != (s.differences[item.key()].Change == "") {
			changed = append(changed, item.Name)
		}
	}
	s.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	s.manager.opts.Logger.Warn("the items of an upstream have changed", "upstream", s.name, "kind", string(kind), "names", changed)
	s.manager.opts.Changed(Change{Upstream: s.name, Kind: kind, Affects: func(p engine.Principal) bool {
		return slices.ContainsFunc(changed, func(name string) bool { return s.allows(p, kind, name) })
	}})
}

// compareNames returns the items with the same kind and public name as like.
func compareNames(items []Item, like Item) (same []Item) {
	for _, item := range items {
		if item.Kind == like.Kind && item.Public == like.Public {
			same = append(same, item)
		}
	}
	return same
}

// changeSettleTime is the delay before a comparison after a list change notification, so that repeated ones are merged.
const changeSettleTime = 100 * time.Millisecond

// markStale marks kinds for comparison: soon, so that lists are updated, and in any case before the next call.
func (s *server) markStale(ses *session, kinds []Kind) {
	for _, kind := range kinds {
		ses.mu.Lock()
		c := ses.checks[kind]
		compare := c != nil && !c.scheduled // a kind without a check has not been used yet
		if c != nil {
			c.isStale, c.scheduled = true, true
		}
		ses.mu.Unlock()
		if !compare {
			continue
		}
		s.goTracked(func() {
			select {
			case <-time.After(changeSettleTime):
			case <-ses.link.gone():
				return
			}
			ses.mu.Lock()
			c.scheduled = false
			ses.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), s.ListTimeout)
			defer cancel()
			_ = s.verify(ctx, ses, kind) // the next call reports any error
		})
	}
}

// pinOnFirstUse pins an upstream's items on first use. It retries while the upstream cannot be reached.
func (s *server) pinOnFirstUse() {
	for wait := time.Second; ; wait = min(2*wait, maxBackoff) {
		err := s.tryPin()
		if err == nil {
			return
		}
		s.manager.opts.Logger.Warn("an upstream that is pinned on first use cannot be reached", "upstream", s.name, "cause", err.Error())
		select {
		case <-time.After(wait):
		case <-s.closing:
			return
		}
	}
}

func (s *server) tryPin() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.ConnectTimeout+s.ListTimeout)
	defer cancel()
	ses, release, err := s.acquire(ctx, engine.Principal{})
	if err != nil {
		return err
	}
	defer release()
	for _, kind := range Kinds {
		if err := s.verify(ctx, ses, kind); err != nil {
			return err
		}
	}
	return nil
}
