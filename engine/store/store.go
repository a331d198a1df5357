// Package store is what the engine asks of whatever keeps its definitions, instances,
// events and reviews: the interface Store, its errors, its rows and its queries, and the
// matching that every driver does alike.
//
// A driver imports this package and engine/record, nothing else of this module. It stores
// and returns rows; it never judges, authorises or hashes. engine/storetest checks it.
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
	// ErrNotFound: no such definition, instance, key or snapshot.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the instance (or the definition's next version) is not where the
	// commit expected it; nothing was written.
	ErrConflict = errors.New("conflict")
	// ErrKeyTaken: an event with this idempotency scope exists; nothing was written.
	ErrKeyTaken = errors.New("idempotency key taken")
	// ErrSubjectTaken: another instance of the workflow is about the same subject; nothing was
	// written.
	ErrSubjectTaken = errors.New("subject taken")
	// ErrTooLarge: a limit of the format; nothing was written.
	ErrTooLarge = errors.New("too large")
	// ErrClosed: the store is closed or closing.
	ErrClosed = errors.New("store closed")
	// ErrDamaged: what is stored cannot be read as what was written.
	ErrDamaged = errors.New("the store is damaged")
	// ErrOtherSchema: the store was written by another version of this program.
	ErrOtherSchema = errors.New("the store was written by another version of gavel")
)

// Store keeps definitions, judge-config revisions, instances and events.
// Hashing, patches, rollback and authorisation live above it: a driver stores
// and returns bytes. Every method is safe for concurrent use, also by several
// processes where the driver allows that. A nil error of a write means that it
// is durable as far as the driver promises durability. An iterator reads anew each time that it is ranged
// over.
type Store interface {
	// AddRule appends a definition with its document, or a judge configuration. Its number
	// must be the highest of its workflow plus 1, the place of its seal the highest of all
	// rules plus 1, or 0 for none; else ErrConflict.
	AddRule(ctx context.Context, r Rule) error
	// Definition returns one version, or the newest for version 0. ErrNotFound.
	Definition(ctx context.Context, name string, version int) (Definition, error)
	// Definitions lists the newest version of each, by name, without documents.
	Definitions(ctx context.Context) ([]Definition, error)
	// JudgeConfigs lists every revision of a workflow, oldest first.
	JudgeConfigs(ctx context.Context, workflow string) ([]JudgeConfig, error)
	// Rules returns where the chain of definitions and judge configurations ends, and those
	// above a place, by place and without documents; UnsealedRules is all of them, those
	// without a place first.
	Rules(ctx context.Context, after int64) (RuleHead, []Rule, error)
	// SealRules gives every rule its seal, all of them or none. They are as Rules lists
	// them, and nothing but their seals counts. ErrConflict when the chain does not end
	// at was, or there are other rules by now.
	SealRules(ctx context.Context, was RuleHead, all []Rule) error

	// Load returns an instance, into whose Context nobody may write. ErrNotFound.
	Load(ctx context.Context, id string) (record.Instance, error)
	// Commit is the one write of instances: all of it or nothing. ErrConflict when
	// the stored Seq is not c.Expect, ErrKeyTaken when an event's key scope exists
	// (looked at first: a replay is told as such even after later events), ErrSubjectTaken when
	// another instance of the workflow has the Subject of the one that it creates.
	Commit(ctx context.Context, c Commit) error
	// ByKey returns the event that answered an idempotency scope. ErrNotFound.
	ByKey(ctx context.Context, scope string) (record.Event, error)
	// Events iterates over one instance's history as the query says. The iterator
	// sees a consistent prefix; events committed meanwhile may or may not appear.
	Events(ctx context.Context, q EventQuery) iter.Seq2[record.Event, error]
	// Snapshot returns the newest stored snapshot of an instance at or below a
	// revision. ErrNotFound when there is none (fold from the first event then).
	Snapshot(ctx context.Context, id string, revision int64) (record.Instance, error)
	// Instances lists instances, newest first (by id: UUIDv7 sorts by time). Those that
	// move meanwhile are listed as they were or as they are.
	Instances(ctx context.Context, q InstanceQuery) iter.Seq2[record.Instance, error]

	// Reviews lists reviews as the query says. The iterator sees a consistent state.
	Reviews(ctx context.Context, q ReviewQuery) iter.Seq2[Review, error]

	// Refusals counts the refusals with a guard key at or after a time, and returns the
	// newest opinion that was kept for an identity since then, nil when there is none.
	Refusals(ctx context.Context, guard, identity string, since time.Time) (n int, opinion json.RawMessage, err error)
	// ClearRefusals forgets refusals with their opinions and returns how many. Nor does an
	// opinion that others were given answer the same case (Identity) any more.
	ClearRefusals(ctx context.Context, q RefusalQuery) (int, error)

	// Decisions lists decisions as the query says, the newest first. The iterator sees a
	// consistent prefix of all events; what is committed meanwhile may or may not appear.
	Decisions(ctx context.Context, q DecisionQuery) iter.Seq2[PlacedEvent, error]

	// Figures counts the decisions that the query selects, whatever its Limit. Those of one
	// transition come in any number of parts, which add up.
	Figures(ctx context.Context, q DecisionQuery) iter.Seq2[Figures, error]

	// EventsAfter lists events as the query says, oldest first. What one process committed
	// another one finds as soon as it is durable.
	EventsAfter(ctx context.Context, q TailQuery) iter.Seq2[PlacedEvent, error]
	// LastPosition is that of the newest event, 0 when there is none.
	LastPosition(ctx context.Context) (int64, error)

	// AddAnchor appends anchor a.Number, which must be the highest present one plus 1;
	// else ErrConflict. So is the first one where the beginning of a history was removed
	// above the position a.Seen: its heads may be of before.
	AddAnchor(ctx context.Context, a Anchor) error
	// Anchors lists anchors above a number, oldest first; LastAnchor is the newest alone.
	Anchors(ctx context.Context, after int64) iter.Seq2[Anchor, error]

	Counters
	Leases
	Cursors
	DeadLetters
	DataKeys

	// Close flushes what was acknowledged, releases everything and is idempotent.
	Close() error
}

// Definition is one version of a definition at rest.
type Definition struct {
	Name    string `json:"name"`
	Version int    `json:"version"` // from 1
	Hash    string `json:"hash"`    // workflow.Definition.Hash
	// Document is the definition as compact JSON.
	Document json.RawMessage `json:"document"`
	// Owner is the principal that defined it; Operator is true when in the operator's role.
	Owner     string    `json:"owner"`
	Operator  bool      `json:"operator"`
	CreatedAt time.Time `json:"createdAt"`
	// Seal covers all but the document, for which Hash stands.
	Seal record.RuleSeal `json:"seal,omitzero"`
}

// CheckDocument fails where the document is not the definition that Name and Hash say.
func (d Definition) CheckDocument() error {
	parsed, err := workflow.Parse(d.Name, d.Document)
	if err != nil {
		return err
	}
	if parsed.Hash != d.Hash || parsed.Name != d.Name {
		return errors.New("it is not what its hash says")
	}
	return nil
}

// JudgeConfig is one judge-config revision beside a definition.
type JudgeConfig struct {
	Workflow string `json:"workflow"`
	Revision int    `json:"revision"` // from 1, per workflow
	// Principal made it. Scope "" binds every instance; else only the instances
	// that this principal owns (an agent's tightening of an operator's definition).
	Principal string                 `json:"principal"`
	Role      string                 `json:"role"`
	Scope     string                 `json:"scope,omitempty"`
	Settings  workflow.JudgeSettings `json:"settings"` // only what was given
	// Hash is "sha256:" and the hex digest of the canonical revision.
	Hash string          `json:"hash"`
	At   time.Time       `json:"at"`
	Seal record.RuleSeal `json:"seal,omitzero"`
}

// Commit is one write: events with the instance that they fold to, or a lesson alone.
type Commit struct {
	// Expect is the Seq that the stored instance must have; 0 creates it.
	Expect int64
	// Events are sealed, consecutive, and end in Next. At least one.
	Events []record.Event
	Next   record.Instance
	// Snapshot stores Next as a snapshot of its revision too (checkpoints).
	Snapshot bool
	// Lesson is written with the events; nil for none.
	Lesson *Lesson
	// Reviews are written with the events, each replacing the one with its ID.
	Reviews []Review
	// Floor removes the events up to its Seq and the snapshots below its Revision, and is
	// stored as a snapshot. The last of Events says so (record.Truncated).
	Floor *record.Instance
	// Unanchored makes a removal an ErrConflict where the store has an anchor: a caller that
	// removes without the key looked for one before, and may have been overtaken.
	Unanchored bool
	// Lease, when not nil, makes the commit fail with ErrLeaseLost where that has ended.
	Lease *Lease
}

// Check fails where the parts of a commit do not fit together: ErrTooLarge, or an error of
// package record.
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

// IsLesson reports whether a commit is a lesson that no event goes with.
func (c Commit) IsLesson() bool {
	return c.Lesson != nil && len(c.Events) == 0 && c.Expect == 0 && c.Next.ID == ""
}

// EventQuery selects a part of one instance's history.
type EventQuery struct {
	Instance string
	// AfterSeq excludes events up to and including it; 0 is from the start.
	AfterSeq int64
	// MaxRevision, when not 0, ends before the first event whose Revision is above it.
	MaxRevision int64
	// Kinds, when not empty, selects these kinds.
	Kinds []record.Kind
	// Limit, when not 0, ends after that many.
	Limit int
}

// UpToRevision ends a page of the history where MaxRevision does. A driver that had its database do so
// would have it look through the rest for more.
func (q EventQuery) UpToRevision(page []record.Event) []record.Event {
	if q.MaxRevision == 0 {
		return page
	}
	if end := slices.IndexFunc(page, func(e record.Event) bool { return e.Revision > q.MaxRevision }); end >= 0 {
		return page[:end]
	}
	return page
}

// IsMarking reports whether only kinds are selected that an index of drivers holds: those that mark
// a place in a history, of which there are few.
func IsMarking(kinds []record.Kind) bool {
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k record.Kind) bool { return k != record.Checkpointed && k != record.Truncated })
}

// InstanceQuery selects instances.
type InstanceQuery struct {
	Workflow string // "" is all
	State    string // "" is all
	Status   record.Status
	Owner    string // "" is all
	// Subject selects the one instance of Workflow that has it.
	Subject string
	// OpenCalls selects those with calls that are not settled for good.
	OpenCalls bool
	// MovedAfter, when not 0, selects those with an event above a position.
	MovedAfter int64
	// Heads leaves everything empty but ID, Seq and Head.
	Heads bool
	// BeforeID continues below an id (exclusive); "" starts at the newest.
	BeforeID string
	Limit    int // 0 is no limit
}

// First returns the first row of a list. ErrNotFound when there is none.
func First[T any](rows iter.Seq2[T, error], what string) (T, error) {
	for row, err := range rows {
		return row, err
	}
	var none T
	return none, fmt.Errorf("%w: %s", ErrNotFound, what)
}

type bulkKey struct{}

// BulkRead marks the reads that are made with a context as bulk reads. They take no permit:
// it is for work in the background.
func BulkRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, bulkKey{}, true)
}

// IsBulkRead reports whether a read is one that nothing else may wait for. A driver with
// few connections gives such reads their own.
func IsBulkRead(ctx context.Context) bool { return ctx.Value(bulkKey{}) != nil }
