package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The names of the receivers of the section "notify". No webhook of the section "webhooks" can have one.
const (
	notifyURL     = "notify.url"
	notifyCommand = "notify.command"
)

// readNotify reads the section "notify": an address, a program or both that get messages about reviews.
func readNotify(o *document.ObjectReader) (all []Webhook) {
	url, secret, command := o.String("url"), o.String("secretFile"), o.OneOrMore("command")
	o.Unknown()
	receiver := Webhook{Reviews: true, Tries: DefaultTries, Timeout: DefaultTimeout, node: o.Node()}
	if at := o.Value("url"); at != nil {
		h := receiver
		h.Name, h.URL, h.Parallel, h.PrivateNetwork = notifyURL, url, DefaultParallel, true // the operator's own address
		if err := endpoint.CheckAddress(url); err != nil {
			o.Fail(at, "%s", err.Error())
		}
		if secret != "" {
			if !filepath.IsAbs(secret) {
				secret = filepath.Join(filepath.Dir(at.Source()), secret)
			}
			h.SecretFiles = []string{secret}
		}
		all = append(all, h)
	} else if at := o.Value("secretFile"); at != nil {
		o.Fail(at, `"secretFile" signs what "url" gets; add "url"`)
	}
	if at := o.Value("command"); at != nil {
		h := receiver
		h.Name, h.Command, h.Parallel = notifyCommand, command, 1
		if len(command) == 0 || strings.TrimSpace(command[0]) == "" {
			o.Fail(at, `"command" begins with a program`)
		}
		all = append(all, h)
	}
	return all
}

// program is a Receiver that runs a program for each message, without a shell.
type program []string

// Send implements Receiver.
func (p program) Send(ctx context.Context, m endpoint.Message) error {
	return evidence.RunProgram(ctx, p, append(bytes.Clone(m.Body), '\n')) //nolint:wrapcheck // it says what failed
}

// Close implements Receiver.
func (program) Close() {}

// The types of messages about reviews.
const (
	noticeOpened  = "review.opened"  // a move waits for a person
	noticeExpired = "review.expired" // nobody decided it in time, and it is over
	noticeRaised  = "review.raised"  // nobody decided it in time, and it waits on as urgent
)

// notice names a review in the words of the REST API: ids, names and codes; no data, no context,
// nothing that a model or a script wrote.
type notice struct {
	ReviewID    string `json:"reviewId"`
	WorkflowID  string `json:"id"` // the instance
	Workflow    string `json:"workflow"`
	Version     int    `json:"version"`
	State       string `json:"state"`
	Action      string `json:"action"`
	RequestedBy string `json:"requestedBy"`
	// Reason is the code of why a person is asked, of an opened one.
	Reason    string          `json:"reason,omitempty"`
	Priority  record.Priority `json:"priority,omitempty"`
	ExpiresAt time.Time       `json:"expiresAt,omitzero"`
}

// newNotice is the message about the review that an event opened, raised or ended, and its id; "" where
// there is nothing to say.
func newNotice(ctx context.Context, e *engine.Engine, as engine.Principal, h header) (p payload, id string, err error) {
	p.Timestamp = h.Time
	reason := ""
	switch {
	case h.ReviewID == "":
		return p, "", nil
	case h.Kind == record.Escalated:
		p.Type, reason = noticeOpened, h.Decision.Code
	case h.Kind == record.Settled && h.ReviewStatus == record.ReviewOpen:
		p.Type, reason = noticeOpened, "call_unknown"
	case h.Kind == record.Reviewed && h.ReviewStatus == record.ReviewExpired:
		p.Type = noticeExpired
	case h.Kind == record.Reviewed && h.ReviewStatus == record.ReviewOpen:
		p.Type = noticeRaised
	default:
		return p, "", nil
	}
	review, err := e.Review(ctx, as, h.ReviewID)
	if engine.CodeOf(err) == engine.CodeUnknownReview {
		return p, "", nil // removed with its instance
	}
	if err != nil {
		return p, "", err //nolint:wrapcheck // it says what failed
	}
	n := notice{
		ReviewID: h.ReviewID, WorkflowID: h.Instance, Workflow: h.Workflow, Version: h.Version, State: cmp.Or(h.From, h.To),
		Action: h.Action, RequestedBy: review.RequestedBy, Reason: reason,
	}
	if p.Type != noticeExpired {
		n.Priority, n.ExpiresAt = review.Priority, review.ExpiresAt
	}
	p.Data, err = json.Marshal(n)
	return p, h.ReviewID + strings.TrimPrefix(p.Type, "review"), err
}
