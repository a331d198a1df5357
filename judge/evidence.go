package judge

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrBusy says that evidence or a model could not be asked now, whatever the case is:
// nothing is decided, and trying again can help.
var ErrBusy = errors.New("judge: busy")

// EvidenceRequest is one fact that the gate fetches itself instead of believing
// whoever asks for the move.
type EvidenceRequest struct {
	// Name is what scripts, the model and the record know it by.
	Name string
	// Caller is the principal that calls; fetches are accounted to it. The Pipeline fills
	// it in.
	Caller string
	// Principal asked for the move, in Role: what is fetched on somebody's behalf is fetched on its.
	// The Pipeline fills them in.
	Principal, Role string
	// Source names what an operator declared: a command, an address, a tool.
	Source string
	// Arguments is a JSON object, never nil. Which
	// field each comes from is the definition's to say, what stands in it may be an
	// agent's.
	Arguments json.RawMessage
	// MaskedArguments is the same with every sensitive value replaced.
	MaskedArguments json.RawMessage
	// Missing are the arguments whose field is not there or null, or no part of a text; with any, nothing
	// is fetched.
	Missing []string
	// Unproven says that arguments come from a context that only the caller vouches for;
	// nothing is fetched then (FailureUnproven).
	Unproven bool
	// Timeout bounds the fetch; 0 is the source's own.
	Timeout time.Duration
	// Required evidence that cannot be had keeps the move from being approved.
	Required bool
	// MaxAge is how old it may be when a review of the decision is resolved; 0 means
	// that it is fetched again then, whatever its age.
	MaxAge time.Duration
}

// Fetcher fetches evidence; internal/evidence implements it. It is safe for
// concurrent use: the requests of one case are fetched in parallel.
type Fetcher interface {
	// Fetch fetches one fact. With readOnly, a source that is not marked as such is
	// not asked (FailureNotReadOnly). It returns soon after ctx has ended. What could
	// not be had is a FetchResult with a Failure; the error (which wraps ErrBusy, or is
	// ctx's) means that nothing can be said now.
	Fetch(ctx context.Context, r EvidenceRequest, readOnly bool) (FetchResult, error)
}

// FetchResult is what a Fetcher found.
type FetchResult struct {
	// Content is a JSON value, nil with a Failure.
	Content json.RawMessage
	// Same is the part of Content that says whether two results are the same (an exit
	// code without the times beside it); nil is all of it.
	Same json.RawMessage
	// Truncated says that Content holds only a part of what was there.
	Truncated bool
	// Failure is "" when it was fetched. Detail is a sentence for people, without
	// secrets and without what was fetched.
	Failure EvidenceFailure
	Detail  string
	// Tree is the digest of the files that the result holds for; "" where it is bound to none.
	Tree string
	// At is when it was fetched and Took how long that took, where that was not now.
	At   time.Time
	Took time.Duration
}

// EvidenceFailure says why evidence could not be fetched.
type EvidenceFailure string

// The failures.
const (
	// FailureNotConfigured: no operator declared the source.
	FailureNotConfigured EvidenceFailure = "not_configured"
	// FailureArgument: an argument is missing, or nothing that may be passed on.
	FailureArgument EvidenceFailure = "argument"
	// FailureNotReadOnly: a pre-check only asks sources that change nothing.
	FailureNotReadOnly EvidenceFailure = "not_read_only"
	// FailureUnproven: it would be asked with a context that only the caller vouches for.
	FailureUnproven EvidenceFailure = "unproven_context"
	// FailureTimeout: it took too long and was stopped.
	FailureTimeout EvidenceFailure = "timeout"
	// FailureUnavailable: it could not be started or reached.
	FailureUnavailable EvidenceFailure = "unavailable"
	// FailureStopped: the command was ended by a signal.
	FailureStopped EvidenceFailure = "stopped"
	// FailureRefused: the address may not be asked, or answered with another status
	// than those that were declared.
	FailureRefused EvidenceFailure = "refused"
	// FailureTooLarge: more came than may be read of it.
	FailureTooLarge EvidenceFailure = "too_large"
	// FailureMalformed: it is not of the declared form.
	FailureMalformed EvidenceFailure = "malformed"
	// FailureChanged: the files that it is about changed while it was fetched.
	FailureChanged EvidenceFailure = "changed"
)

// Evidence is what came of one EvidenceRequest, as it is recorded.
type Evidence struct {
	Name     string `json:"name"`
	Source   string `json:"source"`
	Required bool   `json:"required"`
	// Arguments with every sensitive value replaced.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Failure is "" when it was fetched; Detail says more.
	Failure EvidenceFailure `json:"failure,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	// Digest of the content, "sha256:" and hex; keyed where the content holds
	// sensitive values. "" with a Failure.
	Digest string `json:"digest,omitempty"`
	// SameDigest is that of the part that says whether two results are the same; "" when
	// it is Digest.
	SameDigest string `json:"sameDigest,omitempty"`
	// Size of the content in bytes.
	Size      int  `json:"size"`
	Truncated bool `json:"truncated,omitempty"`
	// Content with every sensitive value replaced; in records only when it is small.
	Content json.RawMessage `json:"content,omitempty"`
	// Tree is the digest of the files that it holds for; "" where it is bound to none.
	Tree string `json:"tree,omitempty"`
	// At is when it was asked for, or fetched where that was earlier; Took how long that took.
	At   time.Time     `json:"at"`
	Took time.Duration `json:"tookNs"`
	// MaxAge as it was asked for.
	MaxAge time.Duration `json:"maxAgeNs,omitempty"`

	plain json.RawMessage // what trusted scripts see
}

// Sameness is what two results are compared by: equal texts mean that nothing that
// counts has changed.
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

// With is the recorded evidence with its content, when that is what was recorded, byte
// for byte. Of evidence with sensitive values only the masked content is kept, so that
// is never what was recorded.
func (e Evidence) With(content json.RawMessage) (Evidence, bool) {
	if e.Failure != "" || len(content) == 0 || plainDigest(content) != e.Digest {
		return Evidence{}, false
	}
	e.Content, e.plain = content, content
	return e, true
}
