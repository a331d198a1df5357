package record

import (
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// CallOutcome is how a call of another server's tool ended.
type CallOutcome string

// The outcomes.
const (
	CallOK      CallOutcome = "ok"       // the tool answered
	CallError   CallOutcome = "error"    // the tool answered that it failed
	CallNotSent CallOutcome = "not_sent" // nothing happened: it does not count as a call
	CallUnknown CallOutcome = "unknown"  // no answer: a person must decide whether it happened
)

// IsKnown reports whether o is one of the defined outcomes.
func (o CallOutcome) IsKnown() bool {
	return o == CallOK || o == CallError || o == CallNotSent || o == CallUnknown
}

// Call is the part of an event about a call of another server's tool. A called event describes the call, and a
// settled event its outcome. A decision about a call names the gate and the arguments.
type Call struct {
	ID string `json:"id,omitempty"` // "call-" and a UUIDv7; "" if no call was begun
	// Gate is the public name of the tool, Tool its name at Upstream, Pin the digest of the
	// definition that it was pinned to.
	Gate     string `json:"gate"`
	Upstream string `json:"upstream,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Pin      string `json:"pin,omitempty"`
	// Arguments is a keyed digest of exactly the arguments that are sent.
	Arguments string    `json:"arguments,omitempty"`
	Deadline  time.Time `json:"deadline,omitzero"`
	// Success and Error are the actions to perform after it, "" for none.
	Success string `json:"success,omitempty"`
	Error   string `json:"error,omitempty"`
	// Repeats is true if a call whose outcome was unknown is sent again.
	Repeats bool `json:"repeats,omitempty"`
	// Outcome and Result, a keyed digest of the answer, are set in a settled event.
	Outcome CallOutcome `json:"outcome,omitempty"`
	Result  string      `json:"result,omitempty"`
}

// checkCall checks that an event fits the calls of an instance. The instance does not move while a call is open, and
// each call is begun and settled once. A call with an unknown outcome keeps its gate closed until the outcome is
// known.
func checkCall(f workflow.Facts, e Event) error {
	at := -1
	if e.Call != nil {
		at = slices.IndexFunc(f.Calls, func(c workflow.OpenCall) bool { return e.Call.ID != "" && c.ID == e.Call.ID })
	}
	switch {
	case e.Kind.Revises() && f.HasOpenCall():
		return newIllegalStep("event %d (%s) ignores an open call", e.Seq, e.Kind)
	case e.Grant != nil && (e.Kind != Reviewed || e.Review == nil || e.Review.Resolution != judge.Approve || e.Grant.Review != e.Review.ID ||
		e.Grant.Gate == "" || e.Grant.Arguments == "" || e.Grant.Principal == ""):
		return newIllegalStep("event %d (%s) grants a call without an approval", e.Seq, e.Kind)
	case e.Call == nil:
		if e.Kind == Called || e.Kind == Settled {
			return newIllegalStep("a %s event without a call", e.Kind)
		}
		return nil
	case e.Call.Gate == "":
		return newIllegalStep("event %d (%s) names a call without a gate", e.Seq, e.Kind)
	}
	switch e.Kind {
	case Called:
		return checkCalled(f, e, at)
	case Settled:
		return checkSettled(f, e, at)
	case Advanced:
		granted := func(g workflow.Grant) bool {
			return g.Review == e.Review.ID && g.Gate == e.Call.Gate && g.Arguments == e.Call.Arguments && g.Principal == e.Principal && e.Time.Before(g.Until)
		}
		if e.Review != nil && !slices.ContainsFunc(f.Grants, granted) {
			return newIllegalStep("event %d moves by a missing grant", e.Seq)
		}
		return nil
	case Refused, Escalated, Reviewed:
		return nil
	default:
		return newIllegalStep("a %s event with a call", e.Kind)
	}
}

func checkCalled(f workflow.Facts, e Event, at int) error {
	unknown := slices.ContainsFunc(f.Calls, func(c workflow.OpenCall) bool { return c.Gate == e.Call.Gate && !c.IsOpen() })
	c := e.Call
	switch {
	case c.ID == "" || c.Arguments == "" || c.Deadline.IsZero() || c.Outcome != "":
		return newIllegalStep("event %d begins a call without id, arguments or deadline", e.Seq)
	case e.Status == Cancelled:
		return newIllegalStep("event %d begins a call of a cancelled instance", e.Seq)
	case c.Repeats != (at >= 0):
		return newIllegalStep("event %d begins call %s twice, or repeats an unknown call", e.Seq, c.ID)
	case !c.Repeats && (unknown || e.Review != nil):
		return newIllegalStep("event %d begins a call of %q while the outcome of another is unknown", e.Seq, c.Gate)
	case c.Repeats && (f.Calls[at].IsOpen() || f.Calls[at].Gate != c.Gate || f.Calls[at].Arguments != c.Arguments || !closesCallReview(f.Calls[at], e)):
		return newIllegalStep("event %d repeats call %s, which is open or differs", e.Seq, c.ID)
	}
	return nil
}

func checkSettled(f workflow.Facts, e Event, at int) error {
	c := e.Call
	switch {
	case at < 0 || f.Calls[at].Gate != c.Gate:
		return newIllegalStep("event %d settles call %q of %q, which is not open", e.Seq, c.ID, c.Gate)
	case !c.Outcome.IsKnown():
		return newIllegalStep("event %d settles a call as %q", e.Seq, c.Outcome)
	case c.Outcome == CallUnknown && (!f.Calls[at].IsOpen() || e.Review == nil || e.Review.ID == "" || e.Review.Status != ReviewOpen):
		return newIllegalStep("event %d settles call %s as unknown, twice or without a review", e.Seq, c.ID)
	case c.Outcome != CallUnknown && f.Calls[at].IsOpen() != (e.Review == nil):
		return newIllegalStep("event %d settles call %s, but its review does not match", e.Seq, c.ID)
	case c.Outcome != CallUnknown && e.Review != nil && !closesCallReview(f.Calls[at], e):
		return newIllegalStep("event %d settles call %s, but leaves its review open", e.Seq, c.ID)
	}
	return nil
}

// closesCallReview reports whether an event ends the review of a call whose outcome was unknown.
func closesCallReview(c workflow.OpenCall, e Event) bool {
	r := e.Review
	if r == nil || r.ID != c.Review {
		return false
	}
	resolved := r.Status == ReviewResolved && r.By != "" && (r.Resolution == judge.Approve || r.Resolution == judge.Reject || r.Resolution == GiveUp)
	return resolved && e.Kind == Settled || r.Status == ReviewStale && r.Resolution == ""
}

// updateCalls returns the facts after a called or settled event. It does not modify shared memory.
func updateCalls(f workflow.Facts, e Event) workflow.Facts {
	c := e.Call
	open := slices.Clone(f.Calls)
	at := slices.IndexFunc(open, func(o workflow.OpenCall) bool { return o.ID == c.ID })
	switch {
	case e.Kind == Called && c.Repeats:
		open[at].Deadline, open[at].Review = c.Deadline, ""
	case e.Kind == Called:
		open = append(open, workflow.OpenCall{
			ID: c.ID, Gate: c.Gate, Principal: e.Principal, Arguments: c.Arguments, Deadline: canonicalTime(c.Deadline), Seq: e.Seq, Revision: e.Revision,
		})
		f.Called = addCalls(f.Called, c.Gate, 1)
	case c.Outcome == CallUnknown:
		open[at].Review = e.Review.ID
	default:
		open = slices.Delete(open, at, at+1)
		if c.Outcome == CallNotSent && f.CallsMade(c.Gate) > 0 {
			f.Called = addCalls(f.Called, c.Gate, -1)
		}
	}
	f.Calls = open
	if len(open) == 0 {
		f.Calls = nil // the stored form
	}
	return f
}

func addCalls(counts map[string]workflow.CallCount, gate string, n int) map[string]workflow.CallCount {
	counts = maps.Clone(counts)
	if counts == nil {
		counts = map[string]workflow.CallCount{}
	}
	c := counts[gate]
	c.Total += n
	counts[gate] = c
	return counts
}

// startVisit returns the counts after an event that enters another state. Earlier calls no longer count, except for
// the gate whose call makes the move: otherwise that call would renew its own allowance.
func startVisit(counts map[string]workflow.CallCount, e Event) map[string]workflow.CallCount {
	counts = maps.Clone(counts)
	for gate, c := range counts {
		if e.Call == nil || e.Call.Gate != gate {
			counts[gate] = workflow.CallCount{Total: c.Total, Before: c.Total}
		}
	}
	return counts
}

// mergeCounts returns the counts after going back to an earlier visit to a state. Calls made since that visit began
// count in it, although the moves are undone. The count of a call that turned out not to have been made is reduced
// only once.
func mergeCounts(now, then map[string]workflow.CallCount) map[string]workflow.CallCount {
	counts := maps.Clone(now)
	for gate, c := range counts {
		counts[gate] = workflow.CallCount{Total: c.Total, Before: min(then[gate].Before, c.Total)}
	}
	return counts
}
