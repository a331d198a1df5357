// Package engine drives workflow instances through their definitions: it
// authorises, asks the judge, records what was decided, and answers.
//
// It promises that no step is skipped (the target of an action is computed from
// the definition that the instance is pinned to), that nothing moves without a
// decision, that what it acknowledged is in the Store, and that a retry with the
// same idempotency key is answered and not repeated. A refusal is a result; an
// *Error means that something could not be decided or done, and then nothing was
// recorded.
//
// It must never let a face decide about rights, let a model choose a state,
// write an instance other than through one Commit, or log.
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

// Judge decides cases; *judge.Pipeline implements it. An error means that it
// could not decide, and nothing is recorded then.
type Judge interface {
	Decide(ctx context.Context, c judge.Case) (judge.Verdict, error)
	// Approve judges anew what a person approves: what the deterministic layers reject
	// stays rejected.
	Approve(ctx context.Context, c judge.Case, by judge.Review) (judge.Verdict, error)
}

// Reader answers the request of a workflow.LintRequest where a hostile document can do no harm;
// *script.Pool implements it. An error that wraps validators.ErrNoReader leaves the
// document to this process.
type Reader interface {
	Read(ctx context.Context, caller string, request []byte) (answer []byte, err error)
}

// Digester makes keyed digests of sensitive values; record.Digester implements it.
type Digester interface {
	// Digest is the same in every scope: it is for what no caller ever gets.
	Digest(value []byte) string
	// DigestIn is the digest in a scope, and Matches compares with one.
	DigestIn(s record.Scope, value []byte) string
	Matches(digest string, s record.Scope, value []byte) bool
	// Salt makes of a digest one that can be compared within one export only.
	Salt(salt, text string) string
}

// Observer is told of what was committed, after it is durable and before the
// answer. It must not block.
type Observer interface {
	Committed(ctx context.Context, events []record.Event)
	// Changed gets each instance as a commit of the engine left it, not to be kept or changed.
	Changed(ctx context.Context, inst record.Instance)
	// Unrecorded gets the decisions that nothing records: of starts that were refused, as
	// record.Started, and of no instance (Decide), as record.Prechecked. The event has no instance
	// and is not sealed.
	Unrecorded(ctx context.Context, event record.Event)
}

// Limits bound what callers may send and what instances may hold. All are bytes.
type Limits struct {
	Data      int // one action's data, and a start context
	Context   int // the accumulated context
	Key       int // an idempotency key
	Text      int // a description or reason
	Arguments int // the arguments of a gated call
	// OpenReviews is how many reviews may wait of what one principal asked for.
	OpenReviews int
	// Events is how many events of an instance one principal may have recorded between two
	// moves: then nothing more of it is judged or recorded for that principal. Operators
	// have no limit.
	Events int
}

// DefaultLimits are 64 KiB of data, 256 KiB of context, 200 bytes of key,
// 4 KiB of text, 1 MiB of arguments, 20 open reviews, and 1000 events of each principal between
// two moves.
func DefaultLimits() Limits {
	return Limits{Data: 64 << 10, Context: 256 << 10, Key: 200, Text: 4 << 10, Arguments: 1 << 20, OpenReviews: 20, Events: 1000}
}

// Config is what an Engine is made of. Store, Judge, Compiler and Digester are
// required.
type Config struct {
	Store    store.Store
	Judge    Judge
	Compiler workflow.Compiler
	Digester Digester
	// Reader parses and lints what no operator brings; nil leaves it to this process.
	Reader Reader
	// Observer may be nil.
	Observer Observer
	// Limits; zero fields are DefaultLimits.
	Limits Limits
	// Quotas bound what each principal may take, operators apart; zero fields bound nothing.
	Quotas Quotas
	// BulkReads is how many lists, searches, statistics and exports are read at once; 0 is
	// half of the processors.
	BulkReads int
	// FeedPoll is how often a feed that is followed looks for what was committed; 0 is half
	// a second.
	FeedPoll time.Duration
	// Models are the names of configured models; empty means that useLLM cannot be served.
	Models []string
	// Sources are the names of configured sources of evidence; nil when that is not known.
	Sources []string
	// ReadOnlySources are those of them that only look. A move with evidence from any other
	// had an effect outside, and only an operator takes it back.
	ReadOnlySources []string
	// ReviewPath says that somebody can resolve escalations.
	ReviewPath bool
	// ClientReviews lets a person resolve a review through the agent's own client
	// (record.ChannelClient), where the transition is not of high risk.
	ClientReviews bool
	// Gated returns the public name of the tool whose gate performs an action of a workflow, ""
	// for none: Advance and Redo refuse such an action. nil gates nothing.
	Gated func(workflow, action string) string
	// Abandoned reports whether the process that held an open call (CallRequest.Hold) has ended: then nobody
	// waits for its deadline. nil knows of none.
	Abandoned func(call string) bool
	// NextTools returns the public names of the gated tools that a principal may call where a
	// running instance stands; positions name them instead of the actions that Gated names.
	NextTools func(p Principal, at Position) []string
	// GrantFor is how long a person's approval of a gated call counts; 0 is a day.
	GrantFor time.Duration
	// RuleKey is the secret from which the key is derived that seals definitions and judge
	// configurations: anyone who has it can make some that are used. Without one the chain
	// shows damage, but no manipulation.
	RuleKey []byte
	// ValueKey is the secret from which the key is derived that wraps the data keys of sensitive
	// values. Without one those are kept in plain, and what is sealed cannot be read.
	ValueKey []byte
	// ShowUnsealed is for engines that only show what a store holds: definitions and judge
	// configurations are taken as they are, whatever their seals. Nothing may be decided then.
	ShowUnsealed bool
	// Now is the clock, time.Now when nil.
	Now func() time.Time
	// NewID returns the unique part of ids, a UUIDv7 when nil.
	NewID func() string
}

func (c Config) withDefaults() Config {
	l, d := &c.Limits, DefaultLimits()
	l.Data, l.Context, l.Key, l.Text = cmp.Or(l.Data, d.Data), cmp.Or(l.Context, d.Context), cmp.Or(l.Key, d.Key), cmp.Or(l.Text, d.Text)
	l.Arguments, l.OpenReviews, l.Events = cmp.Or(l.Arguments, d.Arguments), cmp.Or(l.OpenReviews, d.OpenReviews), cmp.Or(l.Events, d.Events)
	// So that decisions have the other half.
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
	examining   *fairshare.Queue // by who brings a definition
	keys        *waiters         // by idempotency scope
	guards      *waiters         // by guard key
	overtaken   *waiters         // by instance and caller
	counting    *waiters         // by what is counted, and whose it is
	ledger      *ledger
	eventCounts *lru.Cache[string, eventCount] // by instance
	reads       *fairshare.Queue               // of bulk reads, by caller
	feed        *Feed
}

// library is which definitions and judge configurations there are, whose they are, and what they let whom do.
type library struct {
	rules       *rules
	definitions *sharedcache.Cache[definitionKey, definition]
	sharing     sharing
	gates       gates
}

// history is what was recorded, with sensitive values opened.
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
	eventCounts, err := lru.New[string, eventCount](mostEventCounts)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, history: history{cfg.Store, values.NewKeyring(cfg.Store, cfg.ValueKey)},
		library: &library{
			rules: newRules(cfg.Store, cfg.RuleKey, cfg.ShowUnsealed), gates: gates{cfg.Gated, cfg.NextTools},
			definitions: sharedcache.New[definitionKey, definition](definitionBytes, definitionBytesEach),
		},
		keys: newWaiters(), guards: newWaiters(), overtaken: newWaiters(), counting: newWaiters(),
		ledger: newLedger(cfg.Quotas, cfg.Now, cfg.Store), eventCounts: eventCounts,
		examining: fairshare.New(fairshare.Config{Permits: max(2, runtime.GOMAXPROCS(0))}),
		reads:     fairshare.New(fairshare.Config{Permits: cfg.BulkReads}),
	}
	e.feed = newFeed(e)
	return e, nil
}

// Now is the engine's clock, as it is recorded.
func (e *Engine) Now() time.Time { return e.cfg.Now().UTC().Truncate(time.Microsecond) }

// Publish tells the engine's observer what was committed.
func (e *Engine) Publish(ctx context.Context, events ...record.Event) {
	if e.cfg.Observer != nil {
		e.cfg.Observer.Committed(ctx, events)
	}
}

// publishUnrecorded tells the observer of a decision that nothing records.
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

// loadDefinition returns a version of a definition (0 is the newest) with what it
// was parsed from.
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
	if d.Hash != s.Hash && !lib.rules.show {
		return definition{}, untrustedRule("the document of version %d of the definition %s is not what its hash says", s.Version, s.Name)
	}
	l := definition{stored: s, def: d.WithoutLines(), gates: lib.gates}
	lib.cacheDefinition(l)
	return l, nil
}

type definition struct {
	stored store.Definition
	def    *workflow.Definition
	// takenOver says of the version of an instance that an operator owns the name by now,
	// and this version is an agent's.
	takenOver bool
	// overlays are the judge-config revisions in force for the instance that it was loaded
	// for, overlaysHash names them.
	overlays     []workflow.Overlay
	overlaysHash string
	gates        gates
}

func (l definition) owner() validators.Owner {
	return validators.Owner{ID: l.stored.Owner, Trusted: l.stored.Operator}
}
