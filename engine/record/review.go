package record

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// ReviewStatus is the state of a review. It is open first and then finally one of the others, except that a rejected
// review can be reopened.
type ReviewStatus string

// The statuses of a review.
const (
	// ReviewOpen waits for a person.
	ReviewOpen ReviewStatus = "open"
	// ReviewResolved was approved or rejected by a person.
	ReviewResolved ReviewStatus = "resolved"
	// ReviewStale is no longer valid: the instance moved, or the fetched evidence has changed.
	ReviewStale ReviewStatus = "stale"
	// ReviewExpired was not resolved in time.
	ReviewExpired ReviewStatus = "expired"
	// ReviewSuperseded was replaced by a newer review of the same action with other data.
	ReviewSuperseded ReviewStatus = "superseded"
	// ReviewReopened was rejected, but a person allows the same request again.
	ReviewReopened ReviewStatus = "reopened"
)

// GiveUp is the resolution of a review of a step whose call may have happened: the step fails.
const GiveUp judge.Outcome = "give-up"

// Priority orders reviews for the people who resolve them.
type Priority string

// The priorities, lowest first.
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
	PriorityUrgent Priority = "urgent"
)

// Rank returns 0 for PriorityLow to 3 for PriorityUrgent; an unknown priority counts as normal.
func (p Priority) Rank() int {
	switch p {
	case PriorityLow:
		return 0
	case PriorityHigh:
		return 2
	case PriorityUrgent:
		return 3
	default:
		return 1
	}
}

// Channel is the way a person's decision reached the gate.
type Channel string

// The channels.
const (
	// ChannelCLI is a command on the machine that holds the store.
	ChannelCLI Channel = "cli"
	// ChannelMCP is a tool call of a reviewer's own client.
	ChannelMCP Channel = "mcp"
	// ChannelAPI is a program over the engine's Go or HTTP interface.
	ChannelAPI Channel = "api"
	// ChannelClient is a form that the agent's own client showed: the input came from a person only
	// if that client is honest.
	ChannelClient Channel = "human_via_client"
)

// Review is the part of an event about a review:
//
//   - An escalated event opens the review.
//   - A reviewed event ends, raises or reopens it.
//   - An advanced event names the review that allowed the move.
//   - A refused event names the review whose rejection was repeated.
//   - A called or settled event opens or ends the review of a call whose outcome is unknown.
type Review struct {
	ID     string       `json:"id"` // "rev-" and a UUIDv7
	Status ReviewStatus `json:"status"`
	// RequestedBy is the principal that asked for the move, set only in events made by this process. It is not
	// stored, because the event that opened the review records it.
	RequestedBy string `json:"-"`
	// Digest binds an open review to the exact request: a keyed digest over instance, revision,
	// action, data, context, evidence and definition.
	Digest string `json:"digest,omitempty"`
	// Priority and ExpiresAt are set for an open review; a zero ExpiresAt means never.
	Priority  Priority  `json:"priority,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Resolution is approve or reject, By the person who resolved it, Channel the way it arrived.
	Resolution judge.Outcome `json:"resolution,omitempty"`
	By         string        `json:"by,omitempty"`
	Channel    Channel       `json:"channel,omitempty"`
	// Reason is given by the reviewer, or explains why the review is stale.
	Reason string `json:"reason,omitempty"`
}

var criterionWord = regexp.MustCompile(`^c([0-9]{1,3})$`)

// ParseCriterion returns the id of a criterion that a person wrote, and its number; "" if the word is none.
func ParseCriterion(word string) (id string, n int) {
	id = strings.ToLower(strings.TrimRight(word, ",;:."))
	if m := criterionWord.FindStringSubmatch(id); m != nil {
		n, _ = strconv.Atoi(m[1]) // at most three digits
		return id, n
	}
	return "", 0
}

// Criteria returns the statuses of the reviewed decision's criteria that a person's decision implies, by id. An
// approval meets all that were asked and can block. A rejection says which are not met only if its reason begins with
// them.
func (r Review) Criteria(reviewed Decision) map[string]string {
	out, n := map[string]string{}, len(reviewed.Rubric.Criteria)
	if r.Resolution == judge.Approve {
		for i, text := range reviewed.Rubric.Criteria {
			id := "c" + strconv.Itoa(i+1)
			unasked := slices.ContainsFunc(reviewed.Opinions, func(o judge.Opinion) bool { return slices.Contains(o.NotAsked, id) })
			if !unasked && !reviewed.Rubric.Terms[text].Advisory {
				out[id] = "met"
			}
		}
		return out
	}
	for word := range strings.FieldsSeq(r.Reason) {
		id, at := ParseCriterion(word)
		if at < 1 || at > n {
			break
		}
		out[id] = "not_met"
	}
	return out
}

// updateReviews returns the open reviews after an event. It does not modify shared memory.
func updateReviews(open []workflow.OpenReview, e Event) []workflow.OpenReview {
	switch {
	case e.Kind == Escalated:
		return append(slices.Clip(open), workflow.OpenReview{ID: e.Review.ID, Action: e.Action, Digest: e.Review.Digest, Seq: e.Seq})
	case e.Kind == Reviewed && e.Review.Status != ReviewOpen:
		left := slices.DeleteFunc(slices.Clone(open), func(o workflow.OpenReview) bool { return o.ID == e.Review.ID })
		if len(left) == 0 {
			return nil // the stored form
		}
		return left
	default:
		return open
	}
}

// checkReview checks that an event fits the open reviews. There is at most one for each action, only an open review
// can end, and the instance does not move while one is open.
func checkReview(open []workflow.OpenReview, e Event) error {
	at := -1
	if e.Review != nil {
		at = slices.IndexFunc(open, func(o workflow.OpenReview) bool { return o.ID == e.Review.ID })
	}
	switch {
	case e.Kind.Revises() && len(open) > 0:
		return newIllegalStep("event %d (%s) would move past %d open reviews", e.Seq, e.Kind, len(open))
	case e.Review == nil:
		if e.Kind == Escalated || e.Kind == Reviewed {
			return newIllegalStep("event %d (%s) names no review", e.Seq, e.Kind)
		}
	case e.Review.ID == "":
		return newIllegalStep("event %d (%s) names no review", e.Seq, e.Kind)
	case e.Kind == Escalated:
		if at >= 0 || slices.ContainsFunc(open, func(o workflow.OpenReview) bool { return o.Action == e.Action }) {
			return newIllegalStep("event %d opens a second review of %q", e.Seq, e.Action)
		}
		if e.Review.Status != ReviewOpen || e.Review.Digest == "" {
			return newIllegalStep("event %d opens a review that is %s or has no digest", e.Seq, e.Review.Status)
		}
	case e.Kind == Reviewed && e.Review.Status == ReviewReopened:
		if at >= 0 || e.Review.By == "" || e.Review.Resolution != "" {
			return newIllegalStep("event %d reopens review %s, which is open, or names no reviewer", e.Seq, e.Review.ID)
		}
	case e.Kind == Reviewed:
		if at < 0 || open[at].Action != e.Action {
			return newIllegalStep("event %d is about review %s of %q, which is not open", e.Seq, e.Review.ID, e.Action)
		}
		return checkReviewEnd(e)
	case e.Kind == Called || e.Kind == Settled: // see checkCall
	case e.Kind == Refused:
		if at >= 0 || e.Review.Status != ReviewResolved || e.Review.Resolution != judge.Reject || e.Review.By == "" {
			return newIllegalStep("event %d repeats a rejection of review %s, which was not rejected", e.Seq, e.Review.ID)
		}
	case e.Kind == Advanced:
		if e.Review.Status != ReviewResolved || e.Review.Resolution != judge.Approve || e.Review.By == "" {
			return newIllegalStep("event %d uses a review that was not approved", e.Seq)
		}
	default:
		return newIllegalStep("a %s event with a review", e.Kind)
	}
	return nil
}

func checkReviewEnd(e Event) error {
	r := e.Review
	switch r.Status {
	case ReviewResolved:
		if r.By == "" || (r.Resolution != judge.Approve && r.Resolution != judge.Reject) {
			return newIllegalStep("event %d resolves a review by %q with %q", e.Seq, r.By, r.Resolution)
		}
		return nil
	case ReviewOpen, ReviewStale, ReviewExpired, ReviewSuperseded:
		if r.Resolution != "" {
			return newIllegalStep("event %d resolves a review that is %s", e.Seq, r.Status)
		}
		return nil
	default:
		return newIllegalStep("event %d gives a review the status %q", e.Seq, r.Status)
	}
}
