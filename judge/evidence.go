package judge

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// ErrBusy means that evidence or a model could not be requested now, whatever the case. Nothing is decided,
// and a retry can help.
var ErrBusy = errors.New("judge: busy")

// EvidenceRequest is one fact that the gate fetches itself instead of believing the caller.
type EvidenceRequest struct {
	// Name identifies it for scripts, the model and the record.
	Name string
	// Caller is the calling principal, to which fetches are charged. The Pipeline sets
	// it.
	Caller string
	// Principal asked for the move, with the role Role. A source that acts on someone's behalf acts on behalf
	// of this principal. The Pipeline sets both.
	Principal, Role string
	// Instance is the instance that would move; "" for none. The Pipeline sets it.
	Instance string
	// Source names a source that an operator declared: a command, an address, a tool.
	Source string
	// Arguments is a JSON object, never nil. The definition chooses the field that each argument comes
	// from, but an agent may have written the field's content.
	Arguments json.RawMessage
	// MaskedArguments is a copy with every sensitive value replaced.
	MaskedArguments json.RawMessage
	// Missing lists the arguments whose field is absent or null, or cannot be part of a string. If there are
	// any, nothing is fetched.
	Missing []string
	// Unproven is true if arguments come from a context that only the caller vouches for.
	// Nothing is fetched then (FailureUnproven).
	Unproven bool
	// Timeout limits the fetch; 0 uses the limit of the source.
	Timeout time.Duration
	// Required evidence that is unavailable prevents an approval.
	Required bool
	// MaxAge is how old the evidence may be when a review of the decision is resolved; 0 means that it is
	// always fetched again then.
	MaxAge time.Duration
}

// Fetcher fetches evidence; a module implements it. It must be safe for
// concurrent use: the requests of one case are fetched in parallel.
type Fetcher interface {
	// Fetch fetches one fact. With readOnly, a source that is not marked as read-only is not used
	// (FailureNotReadOnly). Fetch returns soon after ctx has ended. Evidence that could not be
	// fetched is a FetchResult with a Failure. The error wraps ErrBusy or is ctx's; it means that no
	// result is possible now.
	Fetch(ctx context.Context, r EvidenceRequest, readOnly bool) (FetchResult, error)
}

// FetchResult is the result of one fetch.
type FetchResult struct {
	// Content is a JSON value, nil with a Failure.
	Content json.RawMessage
	// Same is the part of Content that determines whether two results are the same (an exit code without
	// the accompanying times); nil means all of it.
	Same json.RawMessage
	// Truncated is true if Content is only a part of the result.
	Truncated bool
	// Failure is "" if the fetch succeeded. Detail is a sentence for people, without secrets and without
	// fetched content.
	Failure EvidenceFailure
	Detail  string
	// Tree is the digest of the files that the result is valid for; "" if it depends on no files.
	Tree string
	// At and Took are the time and duration of an earlier fetch; At is zero if the fetch happened now.
	At   time.Time
	Took time.Duration
}

// EvidenceFailure is the reason why evidence could not be fetched.
type EvidenceFailure string

// The failures.
const (
	// FailureNotConfigured: no operator declared the source.
	FailureNotConfigured EvidenceFailure = "not_configured"
	// FailureArgument: an argument is missing, or is a value that must not be passed on.
	FailureArgument EvidenceFailure = "argument"
	// FailureNotReadOnly: a pre-check uses only sources that change nothing.
	FailureNotReadOnly EvidenceFailure = "not_read_only"
	// FailureUnproven: the request depends on a context that only the caller vouches for.
	FailureUnproven EvidenceFailure = "unproven_context"
	// FailureTimeout: the fetch took too long and was stopped.
	FailureTimeout EvidenceFailure = "timeout"
	// FailureUnavailable: the source could not be started or reached.
	FailureUnavailable EvidenceFailure = "unavailable"
	// FailureStopped: the command was ended by a signal.
	FailureStopped EvidenceFailure = "stopped"
	// FailureRefused: requests to the address are not allowed, or the response had a status that was not
	// declared.
	FailureRefused EvidenceFailure = "refused"
	// FailureTooLarge: the result exceeds the size limit.
	FailureTooLarge EvidenceFailure = "too_large"
	// FailureMalformed: the result does not have the declared form.
	FailureMalformed EvidenceFailure = "malformed"
	// FailureChanged: the files that it depends on changed during the fetch.
	FailureChanged EvidenceFailure = "changed"
)

// Evidence is the recorded result of one EvidenceRequest.
type Evidence struct {
	Name     string `json:"name"`
	Source   string `json:"source"`
	Required bool   `json:"required"`
	// Arguments has every sensitive value replaced.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Failure is "" if the fetch succeeded; Detail describes it.
	Failure EvidenceFailure `json:"failure,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	// Digest is the digest of the content, "sha256:" and hex; it is keyed if the content has
	// sensitive values. "" with a Failure.
	Digest string `json:"digest,omitempty"`
	// SameDigest is the digest of the part that determines whether two results are the same; "" if
	// it equals Digest.
	SameDigest string `json:"sameDigest,omitempty"`
	// Size is the size of the content in bytes.
	Size      int  `json:"size"`
	Truncated bool `json:"truncated,omitempty"`
	// Content has every sensitive value replaced; records include it only if it is small.
	Content json.RawMessage `json:"content,omitempty"`
	// Tree is the digest of the files that it is valid for; "" if it depends on no files.
	Tree string `json:"tree,omitempty"`
	// At is the time of the request, or of an earlier fetch; Took is the duration of the fetch.
	At   time.Time             `json:"at"`
	Took document.Milliseconds `json:"tookMs"`
	// MaxAge is copied from the request.
	MaxAge document.Milliseconds `json:"maxAgeMs,omitempty,omitzero"`

	plain json.RawMessage // for trusted scripts
}

// Sameness returns a string for comparing two results: equal strings mean that no relevant part has
// changed.
func (e Evidence) Sameness() string {
	switch {
	case e.Failure != "":
		return "failed:" + string(e.Failure)
	case e.SameDigest != "":
		return e.SameDigest
	default:
		return e.Digest
	}
}

// With returns the recorded evidence with content, and true if content equals the recorded content byte for
// byte. Evidence with sensitive values never matches, because only its masked content is kept.
func (e Evidence) With(content json.RawMessage) (Evidence, bool) {
	if e.Failure != "" || len(content) == 0 || plainDigest(content) != e.Digest {
		return Evidence{}, false
	}
	e.Content, e.plain = content, content
	return e, true
}
