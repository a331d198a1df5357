// Package record defines the history of an instance and its stored form: events, their canonical bytes and the hash
// chain over them. Its fold turns events back into an instance.
//
// It promises:
//
//   - The same event always has the same bytes.
//   - The hash of an event covers exactly the stored bytes.
//   - No event is skipped or guessed when it is read back.
//   - Sealing an event and folding it later apply the same step.
//   - Everything is pure (no clock, disk or randomness) except LoadOrCreateKey, SaveKey, SyncDir, NewSalt
//     and GenerateSigner.
//
// It must never decide anything: whether a move is allowed is decided before an event exists.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Kind is the type of an event.
type Kind string

// The kinds. An unknown kind is an error, never skipped.
const (
	Started       Kind = "started"
	Advanced      Kind = "advanced"
	Refused       Kind = "refused"
	Prechecked    Kind = "prechecked"
	Checkpointed  Kind = "checkpointed"
	RolledBack    Kind = "rolled_back"
	KindCancelled Kind = "cancelled"
	// Escalated holds a move until a person decides, Reviewed records the end of the review.
	Escalated Kind = "escalated"
	Reviewed  Kind = "reviewed"
	// Undone takes back the last move, Redone makes it again: both are rollbacks by one step.
	Undone Kind = "undone"
	Redone Kind = "redone"
	// Migrated pins the instance to another version of its definition.
	Migrated Kind = "migrated"
	// Imported is one step of a history from another program. Reconciled corrects a difference between
	// such a history and the result that it claims.
	Imported   Kind = "imported"
	Reconciled Kind = "reconciled"
	// Called begins a call of another server's tool, Settled records how it ended.
	Called  Kind = "called"
	Settled Kind = "settled"
	// Heard records messages of the agent's user.
	Heard Kind = "heard"
	// Released gives up the subject of an instance, so that another instance may have it.
	Released Kind = "released"
	// Truncated records that the beginning of the history was removed.
	Truncated Kind = "truncated"
)

// SchemaVersion is the version of the event format. Every body contains its version; any other
// version is an error.
const SchemaVersion = 1

// Event is one entry of an instance's history. Seal sets Seq, Revision, PrevHash and Hash.
type Event struct {
	Schema   int       `json:"schema"`
	Instance string    `json:"instance"`
	Seq      int64     `json:"seq"`
	Revision int64     `json:"revision"` // revision of the instance after this event
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

	// Patch is merged into the context at the top level (null removes a key): the start context, or the
	// action's data if the move was applied.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Freezes are the JSON pointers that this transition froze.
	Freezes []string `json:"freezes,omitempty"`

	Decision   *Decision   `json:"decision,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Rollback   *Rollback   `json:"rollback,omitempty"`
	Review     *Review     `json:"review,omitempty"`
	Migration  *Migration  `json:"migration,omitempty"`
	Import     *Import     `json:"import,omitempty"`
	Truncation *Truncation `json:"truncation,omitempty"`
	Transcript *Transcript `json:"transcript,omitempty"`
	// Call is the call that a called or settled event is about, or that a decision was about.
	Call *Call `json:"call,omitempty"`
	// Grant is the permission that a person's approval of an escalated call creates.
	Grant *workflow.Grant `json:"grant,omitempty"`
	// Subject is the subject of a started event. Only one live instance may have it.
	Subject string `json:"subject,omitempty"`
	// Reason is the given reason of a cancel.
	Reason string `json:"reason,omitempty"`

	// Key is the idempotency key that this event answers, nil without one.
	Key *Key `json:"key,omitempty"`

	PrevHash string `json:"prevHash"` // hex; "" for the first event
	Hash     string `json:"hash"`     // hex

	// seal is the input of the hash: the bytes as they were sealed or read, and the schema they were
	// written in. Later versions of this program verify these bytes and never a new encoding of the fields.
	seal seal
	// merged holds a context and the result of merging Patch into it; see SetMerged.
	merged struct{ before, after json.RawMessage }
}

type seal struct {
	schema int
	body   []byte
}

// SetMerged gives Seal the result of workflow.Merge(before, e.Patch), so that it does not merge
// again. Seal uses it only if before is the same slice as the context of the instance.
func (e *Event) SetMerged(before, after json.RawMessage) {
	e.merged.before, e.merged.after = before, after
}

// Merged returns the result that SetMerged stored for this exact context, nil if there is none.
func (e Event) Merged(context json.RawMessage) json.RawMessage {
	if is := e.merged; sharesMemory(is.before, context) {
		return is.after
	}
	return nil
}

// sharesMemory reports whether two documents share the same memory, not only the same content.
func sharesMemory(a, b json.RawMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (e Event) mergePatch(context json.RawMessage) (json.RawMessage, error) {
	if after := e.Merged(context); after != nil {
		return after, nil
	}
	return workflow.Merge(context, e.Patch)
}

// Body returns the stored form: the canonical bytes, which Hash covers together with PrevHash. It is
// nil for an event that was neither sealed nor decoded. The caller must not modify it.
func (e Event) Body() []byte { return e.seal.body }

// Decision is a verdict with its inputs. The transition and the principal are in the surrounding
// event.
type Decision struct {
	ID string `json:"id"` // "dec-" and a UUIDv7
	judge.Verdict
	// Data is the action's data with sensitive values as keyed digests.
	Data json.RawMessage `json:"data,omitempty"`
	// ContextDigest is the keyed digest of the context that was judged.
	ContextDigest string `json:"contextDigest,omitempty"`
	// Rubric is the rubric in force, which shows the thresholds that applied.
	Rubric judge.Rubric `json:"rubric"`
	// Took is the wall time of the whole judgement.
	Took document.Milliseconds `json:"tookMs"`
}

// Checkpoint names a revision.
type Checkpoint struct {
	ID          string          `json:"id"` // "cp-" and a UUIDv7
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	// Revision and State are those that the checkpoint names.
	Revision int64  `json:"revision"`
	State    string `json:"state"`
}

// Rollback restores a revision; it carries no patch. An undo and a redo name no
// checkpoint.
type Rollback struct {
	CheckpointID string `json:"checkpointId"`
	// Restores is the revision whose state, context and facts are restored.
	Restores int64 `json:"restores"`
}

// Migration is the version that an instance was pinned to before.
type Migration struct {
	FromVersion int    `json:"fromVersion"`
	FromHash    string `json:"fromHash"`
	// States maps old names of states to new ones: a visited state counts as visited under its new
	// name from then on.
	States map[string]string `json:"states,omitempty"`
}

// Import is the origin of a step of an imported history.
type Import struct {
	// Source names the folder or program. Line is the line in its log, from 1; 0 if the step was not
	// in a log.
	Source string `json:"source"`
	Line   int    `json:"line"`
	// SourceHash is the hex SHA-256 of the bytes of the line or file.
	SourceHash string `json:"sourceHash,omitempty"`
	// By is the principal that imported it, At the time of the import. Principal and Time of the event
	// are those that the source claims for the step.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
	// Counts is true if an operator lets the step count toward mustPassThrough.
	Counts bool `json:"counts,omitempty"`
	// Kind is the kind of event that the source claims, "" if it claims none. Call is the call of that
	// event, without its values.
	Kind Kind  `json:"kind,omitempty"`
	Call *Call `json:"call,omitempty"`
}

// Truncation describes the events removed from the beginning of a history.
type Truncation struct {
	// UpTo is the seq of the last removed event, Hash its hash, and Count the total number of removed
	// events, including earlier removals.
	UpTo  int64  `json:"upTo"`
	Hash  string `json:"lastHash"`
	Count int64  `json:"count"`
	// Revision is the revision of the snapshot at which the remaining history begins, and Floor its
	// DigestState. Nothing else can verify that snapshot.
	Revision int64  `json:"revision"`
	Floor    string `json:"floor,omitempty"`
	// Note is Text, signed with the key of the anchors; "" if nothing was anchored.
	Note string `json:"note,omitempty"`
}

// Transcript holds messages of the agent's user.
type Transcript struct {
	// Messages are the messages, oldest first and without sensitive values. Long ones are cut.
	Messages []string `json:"messages"`
	// Omitted is how many older messages of this part were left out.
	Omitted int `json:"omitted,omitempty"`
	// Session identifies the conversation of which this is a part, "" if that is unknown.
	Session string `json:"session,omitempty"`
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
	// MaxEvent limits the canonical bytes of one event.
	MaxEvent = 128 << 10
	// MaxContext limits the stored context of an instance, in which sealed values are longer than the
	// original values.
	MaxContext = 512 << 10
)

// Errors of this package; check them with errors.Is.
var (
	// ErrTooLarge: the event, or the context that it leads to, exceeds its limit.
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
	// ErrKeyFile: the key file exists but cannot be used.
	ErrKeyFile = errors.New("unusable key file")
)

// BrokenError locates the first event at which a history fails verification. It matches ErrBroken.
type BrokenError struct {
	Instance string
	// Seq is the seq at which the history breaks: that of the first event that does not follow from
	// the previous one.
	Seq int64
	// How describes the problem in one clause.
	How string
}

// Error returns a message with the instance and the event.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("broken history: instance %s, event %d: %s", e.Instance, e.Seq, e.How)
}

// Is makes a BrokenError match ErrBroken.
func (e *BrokenError) Is(target error) bool { return target == ErrBroken }

func newIllegalStep(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrIllegalStep, fmt.Sprintf(format, args...))
}
