package record

import (
	"errors"
	"fmt"
)

// The limits of the format, in bytes.
const (
	// MaxEvent bounds the canonical bytes of one event.
	MaxEvent = 128 << 10
	// MaxContext bounds the accumulated context of an instance.
	MaxContext = 256 << 10
)

// Errors of this package; errors.Is finds them.
var (
	// ErrTooLarge: the event or the context that it leads to is over its limit.
	ErrTooLarge = errors.New("too large")
	// ErrUnknownKind: an event of a kind that this program does not know.
	ErrUnknownKind = errors.New("unknown kind of event")
	// ErrNewerSchema: an event written by a newer version of this program.
	ErrNewerSchema = errors.New("event has a newer schema")
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
