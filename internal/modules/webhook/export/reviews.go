package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The names of the receivers in section "notify". Webhooks of section "webhooks" cannot have these names.
const (
	notifyURL     = "notify.url"
	notifyCommand = "notify.command"
)

// readNotify reads section "notify": an address, a program or both that receive messages about reviews.
func readNotify(o *document.ObjectReader) (all []Webhook) {
	address, secret, command := o.String("url"), o.String("secretFile"), o.OneOrMore("command")
	o.Unknown()
	receiver := Webhook{Reviews: true, Tries: DefaultTries, Timeout: DefaultTimeout, node: o.Node()}
	if at := o.Value("url"); at != nil {
		h := receiver
		h.Name, h.URL, h.Parallel, h.PrivateNetwork = notifyURL, address, DefaultParallel, true // the operator's own address
		if err := endpoint.CheckAddress(address); err != nil {
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
		o.Fail(at, `"secretFile" needs "url"; add "url", or remove "secretFile"`)
	}
	if at := o.Value("command"); at != nil {
		h := receiver
		h.Name, h.Command, h.Parallel = notifyCommand, command, 1
		if len(command) == 0 || strings.TrimSpace(command[0]) == "" {
			o.Fail(at, `"command" is empty; begin it with a program`)
		}
		all = append(all, h)
	}
	return all
}

// program is a Receiver that runs a program for each message, without a shell.
type program []string

// Send implements Receiver.
func (p program) Send(ctx context.Context, m endpoint.Message) error {
	return process.Run(ctx, p, append(bytes.Clone(m.Body), '\n')) //nolint:wrapcheck // the error is already specific
}

// Close implements Receiver.
func (program) Close() {}

// Types of messages about reviews.
const (
	noticeOpened  = "review.opened"  // a move waits for a person
	noticeExpired = "review.expired" // no one decided in time, and the review is closed
	noticeRaised  = "review.raised"  // no one decided in time, and the review is now urgent
)

// notice describes a review in the vocabulary of the REST API: ids, names and codes. It contains no data, no context,
// and nothing written by a model or a script.
type notice struct {
	ReviewID    string `json:"reviewId"`
	WorkflowID  string `json:"id"` // of the instance
	Workflow    string `json:"workflow"`
	Version     int    `json:"version"`
	State       string `json:"state"`
	Action      string `json:"action"`
	RequestedBy string `json:"requestedBy"`
	// Reason is the code for why a person is asked; it is set in noticeOpened only.
	Reason    string          `json:"reason,omitempty"`
	Priority  record.Priority `json:"priority,omitempty"`
	ExpiresAt time.Time       `json:"expiresAt,omitzero"`
	// URL is the page on which a person can decide it, if the server has one.
	URL string `json:"url,omitempty"`
}

// newNotice returns the message about the review that an event opened, raised or ended, and its id. The id is "" if
// there is nothing to report.
func newNotice(ctx context.Context, e *engine.Engine, hook Webhook, h header) (p payload, id string, err error) {
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
	review, err := e.Review(ctx, viewer(hook), h.ReviewID)
	if engine.CodeOf(err) == engine.CodeUnknownReview {
		return p, "", nil // removed with its instance
	}
	if err != nil {
		return p, "", err //nolint:wrapcheck // the error is already specific
	}
	n := notice{
		ReviewID: h.ReviewID, WorkflowID: h.Instance, Workflow: h.Workflow, Version: h.Version, State: cmp.Or(h.From, h.To),
		Action: h.Action, RequestedBy: review.RequestedBy, Reason: reason,
	}
	if p.Type != noticeExpired {
		n.Priority, n.ExpiresAt = review.Priority, review.ExpiresAt
	}
	if hook.ReviewBase != "" {
		n.URL = hook.ReviewBase + url.PathEscape(h.ReviewID)
	}
	p.Data, err = json.Marshal(n)
	return p, h.ReviewID + strings.TrimPrefix(p.Type, "review"), err
}
