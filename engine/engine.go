// Package engine drives workflow instances through their definitions: it authorises requests, asks the
// judge, records decisions, and returns results.
//
// It guarantees:
//   - No step is skipped: the target of an action is computed from the definition that the instance is
//     pinned to.
//   - Nothing moves without a decision.
//   - Everything that it acknowledged is in the Store.
//   - A retry with the same idempotency key gets an answer and is not performed again.
//   - A refusal is a result. An *Error means that something could not be decided or done, and that nothing
//     was recorded.
//
// It must never:
//   - let a face (MCP, REST) decide about rights;
//   - let a model choose a state;
//   - write an instance except through a single Commit;
//   - log.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/sharedcache"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// Judge decides cases; *judge.Pipeline implements it. An error means that no decision was possible; then
// nothing is recorded.
type Judge interface {
	Decide(ctx context.Context, c judge.Case) (judge.Verdict, error)
	// Approve judges a case again after a person approved it. A rejection by the deterministic layers remains final.
	Approve(ctx context.Context, c judge.Case, by judge.Review) (judge.Verdict, error)
}

// Reader answers the request of a workflow.LintRequest in isolation, so that a hostile document can do no
// harm; *script.Pool implements it. If the error wraps validators.ErrNoReader, this process reads the
// document itself.
type Reader interface {
	Read(ctx context.Context, caller string, request []byte) (answer []byte, err error)
}

// Digester makes keyed digests of sensitive values; record.Digester implements it.
type Digester interface {
	// Digest returns the same digest in every scope. Use it only for digests that no caller receives.
	Digest(value []byte) string
	// DigestIn returns the digest within a scope; Matches compares a value with such a digest.
	DigestIn(s record.Scope, value []byte) string
	Matches(digest string, s record.Scope, value []byte) bool
	// Salt converts a digest into one that can be compared only within one export.
	Salt(salt, text string) string
}

// Observer receives commits once they are durable, before the request is answered. It must not block.
type Observer interface {
	Committed(ctx context.Context, events []record.Event)
	// Changed receives each instance as a commit of the engine left it. It must neither keep nor change
	// it.
	Changed(ctx context.Context, inst record.Instance)
	// Unrecorded receives decisions that are not recorded: refused starts as record.Started, and decisions
	// without an instance (Decide) as record.Prechecked. The event has no instance and is not sealed.
	Unrecorded(ctx context.Context, event record.Event)
}

// Limits bound what callers may send and what instances may hold, in bytes unless noted.
type Limits struct {
	Data      int // one action's data, and a start context
	Context   int // the accumulated context
	Key       int // an idempotency key
	Text      int // a description or reason
	Arguments int // the arguments of a gated call
	// OpenReviews is the maximum number of open reviews of one principal's requests.
	OpenReviews int
	// Events is the maximum number of events that one principal may cause between two moves of an
	// instance. At the limit, that principal's requests on the instance are no longer judged or recorded.
	// Operators have no limit.
	Events int
}

// DefaultLimits returns 64 KiB of data, 256 KiB of context, 200 bytes of key, 4 KiB of text, 1 MiB of
// arguments, 20 open reviews, and 1000 events of each principal between two moves.
func DefaultLimits() Limits {
	return Limits{Data: 64 << 10, Context: 256 << 10, Key: 200, Text: 4 << 10, Arguments: 1 << 20, OpenReviews: 20, Events: 1000}
}

// Config configures an Engine. Store, Judge, Compiler and Digester are required.
type Config struct {
	Store    store.Store
	Judge    Judge
	Compiler workflow.Compiler
	Digester Digester
	// Reader parses and lints definitions that do not come from operators; nil leaves that to this
	// process.
	Reader Reader
	// Observer may be nil.
	Observer Observer
	// Limits may have zero fields: these mean the values of DefaultLimits.
	Limits Limits
	// Quotas limit what each principal except operators may use; zero fields set no limit.
	Quotas Quotas
	// BulkReads is the number of concurrent lists, searches, statistics and exports; 0 means half of the
	// processors.
	BulkReads int
	// FeedPoll is how often a feed with followers polls for new commits; 0 means 500 ms.
	FeedPoll time.Duration
	// Models are the names of the configured models; empty means that useLLM is unavailable.
	Models []string
	// Sources are the names of the configured sources of evidence; nil if they are not known.
	Sources []string
	// ReadOnlySources are the sources without side effects. A move with evidence from any other source had
	// an external effect, so only an operator may take it back.
	ReadOnlySources []string
	// ReviewPath reports whether escalations can be resolved by a person.
	ReviewPath bool
	// ClientReviews lets a person resolve a review through the agent's own client (record.ChannelClient),
	// unless the transition is high-risk.
	ClientReviews bool
	// Gated returns the public name of the tool whose gate performs an action of a workflow, "" for none.
	// Advance and Redo refuse such an action. If Gated is nil, nothing is gated.
	Gated func(workflow, action string) string
	// Abandoned reports whether the process that held an open call (CallRequest.Hold) has ended. Such a
	// call is overdue before its deadline. If Abandoned is nil, only deadlines count.
	Abandoned func(call string) bool
	// NextTools returns the public names of the gated tools that a principal may call at a running
	// instance's position; positions list them instead of the actions that Gated names.
	NextTools func(p Principal, at Position) []string
	// GrantFor is how long a person's approval of a gated call is valid; 0 means a day.
	GrantFor time.Duration
	// RuleKey is the secret from which the sealing key for definitions and judge configurations is
	// derived. Anyone who has it can forge some that are accepted. Without it, the chain reveals damage
	// but not manipulation.
	RuleKey []byte
	// ValueKey is the secret from which the key that wraps the data keys of sensitive values is derived.
	// Without it, data keys are stored in plain, and sealed values cannot be read.
	ValueKey []byte
	// ShowUnsealed is for engines that only display a store: definitions and judge configurations are used
	// whatever their seals. Such an engine must not decide anything.
	ShowUnsealed bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// NewID returns the unique part of ids; nil means a UUIDv7.
	NewID func() string
}

func (c Config) withDefaults() Config {
	l, d := &c.Limits, DefaultLimits()
	l.Data, l.Context, l.Key, l.Text = cmp.Or(l.Data, d.Data), cmp.Or(l.Context, d.Context), cmp.Or(l.Key, d.Key), cmp.Or(l.Text, d.Text)
	l.Arguments, l.OpenReviews, l.Events = cmp.Or(l.Arguments, d.Arguments), cmp.Or(l.OpenReviews, d.OpenReviews), cmp.Or(l.Events, d.Events)
	// Leave the other half to decisions.
	c.BulkReads = cmp.Or(c.BulkReads, max(1, runtime.GOMAXPROCS(0)/2))
	c.GrantFor = cmp.Or(c.GrantFor, 24*time.Hour)
	c.FeedPoll = cmp.Or(c.FeedPoll, 500*time.Millisecond)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = newUUID
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("engine: config needs %s", what))
		}
	}
	need(c.Store != nil, "a Store")
	need(c.Judge != nil, "a Judge")
	need(c.Compiler != nil, "a Compiler")
	need(c.Digester != nil, "a Digester")
	need(c.Limits.Data > 0 && c.Limits.Context > 0 && c.Limits.Key > 0 && c.Limits.Text > 0 && c.Limits.Arguments > 0 && c.Limits.OpenReviews > 0 && c.Limits.Events > 0, "positive limits")
	need(c.FeedPoll > 0, "a FeedPoll that is positive")
	return errors.Join(errs...)
}

// Engine drives instances through their definitions. It is safe for concurrent
// use; several engines may share one Store.
type Engine struct {
	cfg Config
	*library
	history
	examinations *fairshare.Queue // by the caller that submits a definition
	keys         *scopeLocks      // by idempotency scope
	guards       *scopeLocks      // by guard key
	retries      *scopeLocks      // by instance and caller
	startCounts  *scopeLocks      // by resource and owner
	ledger       *ledger
	eventCounts  *lru.Cache[string, eventCount] // by instance
	reads        *fairshare.Queue               // of bulk reads, by caller
	feed         *Feed
}

// library holds the definitions and judge configurations, their owners, and the rights that they give.
type library struct {
	rules       *rules
	definitions *sharedcache.Cache[definitionKey, definition]
	sharing     sharing
	gates       gates
}

// history reads recorded events, instances and reviews, with sensitive values opened.
type history struct {
	store  store.Store
	values *values.Keyring
}

// New returns an Engine, or an error that names every missing part.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	eventCounts, err := lru.New[string, eventCount](maxEventCounts)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, history: history{cfg.Store, values.NewKeyring(cfg.Store, cfg.ValueKey)},
		library: &library{
			rules: newRules(cfg.Store, cfg.RuleKey, cfg.ShowUnsealed), gates: gates{cfg.Gated, cfg.NextTools},
			definitions: sharedcache.New[definitionKey, definition](definitionBytes, definitionBytesEach),
		},
		keys: newScopeLocks(), guards: newScopeLocks(), retries: newScopeLocks(), startCounts: newScopeLocks(),
		ledger: newLedger(cfg.Quotas, cfg.Now, cfg.Store), eventCounts: eventCounts,
		examinations: fairshare.New(fairshare.Config{Permits: max(2, runtime.GOMAXPROCS(0))}),
		reads:        fairshare.New(fairshare.Config{Permits: cfg.BulkReads}),
	}
	e.feed = newFeed(e)
	return e, nil
}

// Now returns the engine's time in UTC, truncated to microseconds as it is recorded.
func (e *Engine) Now() time.Time { return e.cfg.Now().UTC().Truncate(time.Microsecond) }

// Publish passes committed events to the engine's observer.
func (e *Engine) Publish(ctx context.Context, events ...record.Event) {
	if e.cfg.Observer != nil {
		e.cfg.Observer.Committed(ctx, events)
	}
}

// publishUnrecorded passes a decision that is not recorded to the observer.
func (e *Engine) publishUnrecorded(ctx context.Context, p Principal, kind record.Kind, c judge.Case, version int, v judge.Verdict) {
	if e.cfg.Observer == nil {
		return
	}
	ev := e.newEvent(p, kind)
	ev.Workflow, ev.Version, ev.Action, ev.From = c.Workflow, version, c.Action, c.State
	ev.Decision = &record.Decision{Verdict: v, Took: sumTimes(v.Opinions)}
	e.cfg.Observer.Unrecorded(ctx, ev)
}

// newUUID falls back to a random UUID only when the clock source of version 7 fails.
func newUUID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}

// loadDefinition returns a version of a definition, stored and parsed. Version 0 is the newest.
func (lib *library) loadDefinition(ctx context.Context, name string, version int) (definition, error) {
	known := version
	if version == 0 {
		known = lib.rules.newestVersion(ctx, name)
	}
	if l, ok := lib.definitions.Get(definitionKey{name, known}); ok {
		return l, nil
	}
	s, err := lib.rules.loadDefinition(ctx, name, version)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return definition{}, unknownWorkflow(name, version)
		}
		return definition{}, StoreError("read the definition", err)
	}
	if l, ok := lib.definitions.Get(definitionKey{s.Name, s.Version}); ok {
		return l, nil
	}
	d, err := workflow.Parse(s.Name, s.Document)
	if err != nil {
		return definition{}, InternalError(fmt.Sprintf("stored definition %s version %d does not parse", s.Name, s.Version), err)
	}
	if d.Hash != s.Hash && !lib.rules.showUntrusted {
		return definition{}, untrustedRule("the document of version %d of the definition %s does not match its hash", s.Version, s.Name)
	}
	l := definition{stored: s, def: d.WithoutLines(), gates: lib.gates}
	lib.cacheDefinition(l)
	return l, nil
}

type definition struct {
	stored store.Definition
	def    *workflow.Definition
	// takenOver reports, for the version of an instance, that it is an agent's version of a name that an
	// operator now owns.
	takenOver bool
	// overlays are the judge-config revisions in force for the instance that the definition was loaded
	// for; overlaysHash identifies them.
	overlays     []workflow.Overlay
	overlaysHash string
	gates        gates
}

func (d definition) owner() validators.Owner {
	return validators.Owner{ID: d.stored.Owner, Trusted: d.stored.Operator}
}
