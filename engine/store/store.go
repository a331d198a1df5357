// Package store defines the storage interface of the engine: the interface Store, its errors, rows and queries, and
// the matching that all drivers share.
//
//   - Of this module, a driver imports only this package, those below it, engine/record and packages below internal.
//   - It stores and returns rows; it never judges, authorises or hashes.
//   - engine/storetest checks drivers.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Errors of a Store. Drivers wrap them; callers use errors.Is.
var (
	// ErrNotFound is returned if a definition, instance, key, snapshot or other row does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned if the stored row (such as an instance, or a definition's newest version) is not at the
	// point that the caller expected. Nothing was written.
	ErrConflict = errors.New("conflict")
	// ErrKeyTaken is returned if an event with this idempotency scope exists. Nothing was written.
	ErrKeyTaken = errors.New("idempotency key taken")
	// ErrSubjectTaken is returned if another instance of the workflow has the same subject. Nothing was written.
	ErrSubjectTaken = errors.New("subject taken")
	// ErrTooLarge is returned if a limit of the format is exceeded. Nothing was written.
	ErrTooLarge = errors.New("too large")
	// ErrClosed is returned if the store is closed or closing.
	ErrClosed = errors.New("store closed")
	// ErrDamaged is returned if stored data was altered or cannot be decoded.
	ErrDamaged = errors.New("the store is damaged")
	// ErrOtherSchema is returned if the store was written by another version of this program.
	ErrOtherSchema = errors.New("the store was written by another version of gavel")
)

// Store keeps definitions, judge configurations, instances and events. Hashing, patches, rollback and authorisation
// are done by its callers; a driver stores and returns bytes.
//
// All methods are safe for concurrent use, including by several processes if the driver allows that. If a write
// returns nil, it is durable as far as the driver guarantees durability. Iterators can be ranged over repeatedly;
// each time they read again.
type Store interface {
	// AddRule appends a definition with its document, or a judge configuration. Its number must be the highest of its
	// workflow plus 1. The place of its seal must be the highest of all rules plus 1, or 0 for none. Otherwise it
	// returns ErrConflict.
	AddRule(ctx context.Context, r Rule) error
	// Definition returns one version, or the newest for version 0. Errors: ErrNotFound.
	Definition(ctx context.Context, name string, version int) (Definition, error)
	// Definitions lists the newest version of each definition by name, without documents.
	Definitions(ctx context.Context) ([]Definition, error)
	// JudgeConfigs lists every revision of a workflow's judge configuration, oldest first.
	JudgeConfigs(ctx context.Context, workflow string) ([]JudgeConfig, error)
	// Rules returns the end of the chain of rules, and the rules above a place, ordered by place and without
	// documents. With AllRules it returns all rules; those without a place come first.
	Rules(ctx context.Context, after int64) (RuleHead, []Rule, error)
	// SealRules sets the seal of every rule, or of none. all holds the rules in the order of Rules; only their seals
	// are used. It returns ErrConflict if the chain does not end at was, or if the set of rules has changed.
	SealRules(ctx context.Context, was RuleHead, all []Rule) error

	// Load returns an instance. Callers must not modify the bytes of its Context. Errors: ErrNotFound.
	Load(ctx context.Context, id string) (record.Instance, error)
	// Commit is the only write of instances; it is atomic. Errors:
	//
	//   - ErrKeyTaken if an event with one of the key scopes exists. It is checked first, so that a replay is
	//     recognised even after later events.
	//   - ErrConflict if the stored Seq is not c.Expect.
	//   - ErrSubjectTaken if another instance of the workflow has the Subject of the created instance.
	Commit(ctx context.Context, c Commit) error
	// ByKey returns the event that was recorded for an idempotency scope. Errors: ErrNotFound.
	ByKey(ctx context.Context, scope string) (record.Event, error)
	// Events iterates over an instance's history. The iterator sees a consistent prefix; events that are
	// committed during the iteration may or may not appear.
	Events(ctx context.Context, q EventQuery) iter.Seq2[record.Event, error]
	// Snapshot returns the newest snapshot of an instance at or below a revision. It returns ErrNotFound if there is
	// none; callers then fold from the first event.
	Snapshot(ctx context.Context, id string, revision int64) (record.Instance, error)
	// Instances lists instances, newest first (by id: UUIDv7 sorts by time). Instances that move during the iteration
	// appear in their old or their new state.
	Instances(ctx context.Context, q InstanceQuery) iter.Seq2[record.Instance, error]

	// Reviews lists the reviews that a query selects. The iterator sees a consistent state.
	Reviews(ctx context.Context, q ReviewQuery) iter.Seq2[Review, error]

	// Refusals counts the refusals with a guard key at or after a time. It also returns the newest opinion stored for
	// an identity since then, or nil.
	Refusals(ctx context.Context, guard, identity string, since time.Time) (n int, opinion json.RawMessage, err error)
	// ClearRefusals deletes refusals and their opinions, and returns how many refusals it deleted. It also deletes
	// opinions on the same cases (Identity) that other principals received, so that these no longer answer them.
	ClearRefusals(ctx context.Context, q RefusalQuery) (int, error)

	// Decisions lists decisions, newest first. The iterator sees a consistent prefix of all events; those committed
	// during the iteration may or may not appear.
	Decisions(ctx context.Context, q DecisionQuery) iter.Seq2[PlacedEvent, error]

	// Figures counts the decisions that a query selects, ignoring its Limit. The figures of one transition may arrive
	// in several parts, which callers must add up.
	Figures(ctx context.Context, q DecisionQuery) iter.Seq2[Figures, error]

	// EventsAfter lists events, oldest first. Events committed by one process are visible to all others as soon as
	// they are durable.
	EventsAfter(ctx context.Context, q TailQuery) iter.Seq2[PlacedEvent, error]
	// LastPosition returns the position of the newest event, or 0 if there are no events.
	LastPosition(ctx context.Context) (int64, error)

	// AddAnchor appends an anchor. Its number must be the highest existing one plus 1; otherwise it returns
	// ErrConflict. The first anchor also conflicts if the beginning of a history was removed above the position
	// a.Seen, because its heads may be outdated.
	AddAnchor(ctx context.Context, a Anchor) error
	// Anchors lists the anchors above a number, oldest first. With LastAnchor it returns the newest only.
	Anchors(ctx context.Context, after int64) iter.Seq2[Anchor, error]

	Counters
	Leases
	Cursors
	DeadLetters
	DataKeys

	// Close makes acknowledged writes durable and releases all resources. It is idempotent.
	Close() error
}

// Definition is a stored version of a definition.
type Definition struct {
	Name    string `json:"name"`
	Version int    `json:"version"` // from 1
	Hash    string `json:"hash"`    // workflow.Definition.Hash
	// Document is the definition as compact JSON.
	Document json.RawMessage `json:"document"`
	// Owner is the principal that defined it. Operator reports whether it acted in the operator role.
	Owner     string    `json:"owner"`
	Operator  bool      `json:"operator"`
	CreatedAt time.Time `json:"createdAt"`
	// Seal covers all fields; the document is covered by Hash.
	Seal record.RuleSeal `json:"seal,omitzero"`
}

// CheckDocument returns an error if the document does not match Name and Hash.
func (d Definition) CheckDocument() error {
	parsed, err := workflow.Parse(d.Name, d.Document)
	if err != nil {
		return err
	}
	if parsed.Hash != d.Hash || parsed.Name != d.Name {
		return errors.New("it does not match its hash")
	}
	return nil
}

// JudgeConfig is one revision of a judge configuration, which is stored separately from its definition.
type JudgeConfig struct {
	Workflow string `json:"workflow"`
	Revision int    `json:"revision"` // from 1, per workflow
	// Principal created it. With an empty Scope it applies to every instance. Otherwise it applies only to instances
	// owned by the principal named in Scope (an agent that tightens an operator's definition).
	Principal string                 `json:"principal"`
	Role      string                 `json:"role"`
	Scope     string                 `json:"scope,omitempty"`
	Settings  workflow.JudgeSettings `json:"settings"` // only the settings that were given
	// Hash is "sha256:" and the hex digest of the canonical revision.
	Hash string          `json:"hash"`
	At   time.Time       `json:"at"`
	Seal record.RuleSeal `json:"seal,omitzero"`
}

// Commit is one write: events with the instance that results from them, or a lesson alone.
type Commit struct {
	// Expect is the Seq that the stored instance must have; 0 creates it.
	Expect int64
	// Events are sealed and consecutive, and their fold is Next. There is at least one, unless the commit is a lesson
	// alone.
	Events []record.Event
	Next   record.Instance
	// Snapshot also stores Next as a snapshot of its revision (checkpoints).
	Snapshot bool
	// Lesson is written with the events; nil if there is none.
	Lesson *Lesson
	// Reviews are written with the events. Each replaces the stored review with the same ID.
	Reviews []Review
	// Floor removes the events up to its Seq and the snapshots below its Revision, and is stored as a snapshot. The
	// last of Events records the removal (record.Truncated).
	Floor *record.Instance
	// Unanchored makes a removal fail with ErrConflict if the store has an anchor. Callers that remove without the
	// key have checked for anchors before, but one may have been added since.
	Unanchored bool
	// Lease, if not nil, makes the commit fail with ErrLeaseLost once the lease has ended.
	Lease *Lease
}

// Check returns an error if the parts of a commit are inconsistent: ErrTooLarge, or an error of package record.
func (c Commit) Check() error {
	if c.IsLesson() {
		return nil
	}
	err := record.CheckAppend(c.Expect, c.Events, c.Next)
	if err == nil && c.Floor != nil {
		err = record.CheckTruncation(c.Events, *c.Floor)
	}
	if errors.Is(err, record.ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return err
}

// IsLesson reports whether the commit consists of a lesson without events.
func (c Commit) IsLesson() bool {
	return c.Lesson != nil && len(c.Events) == 0 && c.Expect == 0 && c.Next.ID == ""
}

// EventQuery selects a part of an instance's history.
type EventQuery struct {
	Instance string
	// AfterSeq is exclusive; 0 starts at the first event.
	AfterSeq int64
	// MaxRevision, if not 0, ends before the first event with a higher Revision.
	MaxRevision int64
	// Kinds, if not empty, selects events of these kinds.
	Kinds []record.Kind
	// Limit, if not 0, is the maximum number of events.
	Limit int
}

// UpToRevision cuts a page of a history at MaxRevision. Drivers must not put this bound into the query: the database
// would scan the rest of the history for more rows.
func (q EventQuery) UpToRevision(page []record.Event) []record.Event {
	if q.MaxRevision == 0 {
		return page
	}
	if end := slices.IndexFunc(page, func(e record.Event) bool { return e.Revision > q.MaxRevision }); end >= 0 {
		return page[:end]
	}
	return page
}

// IsMarking reports whether all kinds are covered by the drivers' index of marks: the few events that mark a point in
// a history.
func IsMarking(kinds []record.Kind) bool {
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k record.Kind) bool {
		return k != record.Checkpointed && k != record.Truncated && k != record.Heard
	})
}

// InstanceQuery selects instances.
type InstanceQuery struct {
	Workflow string // "" is all
	State    string // "" is all
	Status   record.Status
	Owner    string // "" is all
	// Subject selects the one instance of Workflow that has this subject.
	Subject string
	// OpenCalls selects instances with calls that are not finally settled.
	OpenCalls bool
	// MovedAfter, if not 0, selects instances with an event above this position.
	MovedAfter int64
	// Heads sets only ID, Seq and Head in the results.
	Heads bool
	// BeforeID lists instances below an id (exclusive); "" starts at the newest.
	BeforeID string
	Limit    int // 0 is no limit
}

// First returns the first row of a list. Errors: ErrNotFound if the list is empty.
func First[T any](rows iter.Seq2[T, error], what string) (T, error) {
	for row, err := range rows {
		return row, err
	}
	var none T
	return none, fmt.Errorf("%w: %s", ErrNotFound, what)
}

type bulkKey struct{}

// BulkRead marks reads with this context as bulk reads. They need no permit. It is meant for background work.
func BulkRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, bulkKey{}, true)
}

// IsBulkRead reports whether a read is a bulk read. Other reads should never have to wait for bulk reads; drivers
// with few connections give bulk reads separate ones.
func IsBulkRead(ctx context.Context) bool { return ctx.Value(bulkKey{}) != nil }
