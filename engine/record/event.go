// Package record is what happened to an instance, and how that is kept: events,
// their canonical bytes, the hash chain over them, and the fold that turns them
// back into an instance.
//
// It promises that the same event always has the same bytes, that the hash of an
// event covers exactly the bytes that are stored, that no event is skipped or
// guessed at when it is read back, and that sealing an event and folding it again
// take the same step. Everything but LoadOrCreateKey and GenerateSigner is pure: no
// clock, no disk.
//
// It must never decide anything: whether a move is allowed is settled before an
// event exists.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// Kind says what happened.
type Kind string

// The kinds. An unknown kind is an error, never skipped.
const (
	Started      Kind = "started"
	Advanced     Kind = "advanced"
	Refused      Kind = "refused"
	Prechecked   Kind = "prechecked"
	Checkpointed Kind = "checkpointed"
	RolledBack   Kind = "rolled_back"
	Cancelling   Kind = "cancelled"
	// Escalated parks a move for a person, Reviewed says what became of that.
	Escalated Kind = "escalated"
	Reviewed  Kind = "reviewed"
	// Undone takes the last move back, Redone makes it again: rollbacks by one step.
	Undone Kind = "undone"
	Redone Kind = "redone"
	// Migrated pins the instance to another version of its definition.
	Migrated Kind = "migrated"
	// Imported is one step of a history that was kept elsewhere, Reconciled what makes
	// up for a difference between such a history and what it says it led to.
	Imported   Kind = "imported"
	Reconciled Kind = "reconciled"
	// Called begins a call of another server's tool, Settled says how it ended.
	Called  Kind = "called"
	Settled Kind = "settled"
	// Released gives up the subject of an instance, so that another one may have it.
	Released Kind = "released"
	// Truncated says that the beginning of the history was removed.
	Truncated Kind = "truncated"
)

// SchemaVersion is the version of the event format. Every body says its own, so that a later
// version can be told apart; another one is an error.
const SchemaVersion = 1

// Event is one entry of an instance's history. Seq, Revision, PrevHash and Hash
// are set by Seal.
type Event struct {
	Schema   int       `json:"schema"`
	Instance string    `json:"instance"`
	Seq      int64     `json:"seq"`
	Revision int64     `json:"revision"` // the instance's after this event
	Kind     Kind      `json:"kind"`
	Time     time.Time `json:"time"`

	Principal string `json:"principal"`
	Role      string `json:"role"`

	Workflow        string `json:"workflow"`
	Version         int    `json:"version"`
	DefinitionHash  string `json:"definitionHash"`
	JudgeConfigHash string `json:"judgeConfigHash,omitempty"`

	Action string `json:"action,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"` // the state after this event
	// Status of the instance after this event; Seal fills it in.
	Status Status `json:"status,omitempty"`

	// Patch is what was merged into the context: the start context, or the
	// action's data when the move was applied. Top-level merge, null removes.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Freezes are the pointers that this transition froze.
	Freezes []string `json:"freezes,omitempty"`

	Decision   *Decision   `json:"decision,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Rollback   *Rollback   `json:"rollback,omitempty"`
	Review     *Review     `json:"review,omitempty"`
	Migration  *Migration  `json:"migration,omitempty"`
	Import     *Import     `json:"import,omitempty"`
	Truncation *Truncation `json:"truncation,omitempty"`
	// Call is the call that a called or settled event is about, and that a decision was about.
	Call *Call `json:"call,omitempty"`
	// Grant is what a person's approval of an escalated call leaves.
	Grant *workflow.Grant `json:"grant,omitempty"`
	// Subject is what a started event is about, of which one instance lives.
	Subject string `json:"subject,omitempty"`
	// Reason of a cancel, as given.
	Reason string `json:"reason,omitempty"`

	// Key is the idempotency key that this event answers, nil without one.
	Key *Key `json:"key,omitempty"`

	PrevHash string `json:"prevHash"` // hex; "" for the first event
	Hash     string `json:"hash"`     // hex

	// seal is what the hash covers: the bytes as they were sealed or read, in the
	// schema they were written in. Later versions of this program verify these
	// bytes and never their own rendering of the fields.
	seal seal
	// merged is what Patch makes of a context, see SetMerged.
	merged struct{ before, after json.RawMessage }
}

type seal struct {
	schema int
	body   []byte
}

// SetMerged gives Seal the result of workflow.Merge(before, e.Patch), which saves merging
// again. It counts only where before is the very context of the instance.
func (e *Event) SetMerged(before, after json.RawMessage) {
	e.merged.before, e.merged.after = before, after
}

// Merged is what SetMerged was given for this very context, nil where it was given nothing.
func (e Event) Merged(context json.RawMessage) json.RawMessage {
	if is := e.merged; isSame(is.before, context) {
		return is.after
	}
	return nil
}

// isSame reports whether two documents are one, and not only equal.
func isSame(a, b json.RawMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (e Event) mergePatch(context json.RawMessage) (json.RawMessage, error) {
	if after := e.Merged(context); after != nil {
		return after, nil
	}
	return workflow.Merge(context, e.Patch)
}

// Body returns the stored form: the canonical bytes that Hash covers, together
// with PrevHash. It is nil for an event that was neither sealed nor decoded. The
// caller must not change it.
func (e Event) Body() []byte { return e.seal.body }

// Decision is a verdict with what was asked: transition and identity stand in
// the event around it.
type Decision struct {
	ID string `json:"id"` // "dec-" and a UUIDv7
	judge.Verdict
	// Data is the action's data with sensitive values as keyed digests.
	Data json.RawMessage `json:"data,omitempty"`
	// ContextDigest is the keyed digest of the context that was examined.
	ContextDigest string `json:"contextDigest,omitempty"`
	// Rubric in force, so that a reader knows which thresholds applied.
	Rubric judge.Rubric `json:"rubric"`
	// Took is the wall time of the whole judgement.
	Took time.Duration `json:"tookNs"`
}

// Checkpoint names a revision.
type Checkpoint struct {
	ID          string          `json:"id"` // "cp-" and a UUIDv7
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	// Revision and State are the named ones.
	Revision int64  `json:"revision"`
	State    string `json:"state"`
}

// Rollback restores a revision; it carries no patch. An undo and a redo name no
// checkpoint.
type Rollback struct {
	CheckpointID string `json:"checkpointId"`
	// Restores is the revision whose state, context and facts are in force again.
	Restores int64 `json:"restores"`
}

// Migration says what an instance was pinned to before.
type Migration struct {
	FromVersion int    `json:"fromVersion"`
	FromHash    string `json:"fromHash"`
	// States are new names of states by their old ones: a state that was visited counts
	// as visited under its new name from then on.
	States map[string]string `json:"states,omitempty"`
}

// Import says where a step of an imported history comes from.
type Import struct {
	// Source names the folder or program, Line the line in its log, from 1; 0 is for what
	// stood in no log.
	Source string `json:"source"`
	Line   int    `json:"line"`
	// SourceHash is the hex SHA-256 of the line's bytes, or of the file's.
	SourceHash string `json:"sourceHash,omitempty"`
	// By is the principal that imported it, At when; Principal and Time of the event are
	// whose step it is said to be, and when.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
	// Counts says that an operator lets the step count toward mustPassThrough.
	Counts bool `json:"counts,omitempty"`
	// Kind is that of the event that the source says it was, "" where it does not, and Call the
	// call that it was about, without its values.
	Kind Kind  `json:"kind,omitempty"`
	Call *Call `json:"call,omitempty"`
}

// Truncation says which events were removed from the beginning of a history.
type Truncation struct {
	// UpTo is the seq of the last event that was removed, Hash its hash and Count how
	// many were removed, now and before.
	UpTo  int64  `json:"upTo"`
	Hash  string `json:"lastHash"`
	Count int64  `json:"count"`
	// Revision is the one that the snapshot at the beginning of what is left has, Floor
	// its DigestState: nothing else can vouch for it any more.
	Revision int64  `json:"revision"`
	Floor    string `json:"floor,omitempty"`
	// Note is Text, signed with the key of the anchors; "" where nothing was anchored.
	Note string `json:"note,omitempty"`
}

// Key is an idempotency key, scoped to principal, operation and instance.
type Key struct {
	// Scope is the hex SHA-256 of principal, operation, instance ("" for a start) and
	// key, length-prefixed. Unique in a store.
	Scope string `json:"scope"`
	// Request is a keyed digest of the canonical request:
	// the same key with another request is an error.
	Request string `json:"request"`
}

// The limits of the format, in bytes.
const (
	// MaxEvent bounds the canonical bytes of one event.
	MaxEvent = 128 << 10
	// MaxContext bounds the accumulated context of an instance as it is kept, in which sealed
	// values are longer than they were.
	MaxContext = 512 << 10
)

// Errors of this package; errors.Is finds them.
var (
	// ErrTooLarge: the event or the context that it leads to is over its limit.
	ErrTooLarge = errors.New("too large")
	// ErrUnknownKind: an event of a kind that this program does not know.
	ErrUnknownKind = errors.New("unknown kind of event")
	// ErrOtherSchema: an event written by another version of this program.
	ErrOtherSchema = errors.New("event has another schema")
	// ErrMalformed: bytes that are not an event as Encode writes it.
	ErrMalformed = errors.New("malformed event")
	// ErrIllegalStep: an event that cannot follow in this instance.
	ErrIllegalStep = errors.New("illegal step")
	// ErrBroken: a history that does not verify. The error is a *BrokenError.
	ErrBroken = errors.New("broken history")
	// ErrNoRevision: the history has no such revision.
	ErrNoRevision = errors.New("no such revision")
	// ErrKeyFile: the key file exists and cannot be used as it is.
	ErrKeyFile = errors.New("unusable key file")
)

// BrokenError says where a history stops verifying. It matches ErrBroken.
type BrokenError struct {
	Instance string
	// Seq is the position at which the history breaks: that of the first event
	// that does not follow from the one before.
	Seq int64
	// How says what is wrong, in one clause.
	How string
}

// Error names the instance and the event.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("broken history: instance %s, event %d: %s", e.Instance, e.Seq, e.How)
}

// Is makes a BrokenError match ErrBroken.
func (e *BrokenError) Is(target error) bool { return target == ErrBroken }

func newIllegalStep(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrIllegalStep, fmt.Sprintf(format, args...))
}
