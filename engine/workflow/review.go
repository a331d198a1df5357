package workflow

import (
	"regexp"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// ReviewSettings say how an escalated decision waits for a person.
type ReviewSettings struct {
	// Priority is low, normal, high or urgent.
	Priority string `json:"priority,omitempty"`
	// ExpiresAfter is how long it waits; negative: forever.
	ExpiresAfter time.Duration `json:"expiresAfterNs,omitempty"`
	// OnExpire is reject (it is closed) or raise (it becomes urgent and stays).
	OnExpire string `json:"onExpire,omitempty"`
}

// What happens to a review that was not resolved in time.
const (
	ExpireReject = "reject"
	ExpireRaise  = "raise"
)

// DefaultReview is how a review waits where the definition does not say: for a week,
// with normal priority; then it is closed.
func DefaultReview() ReviewSettings {
	return ReviewSettings{Priority: "normal", ExpiresAfter: 7 * 24 * time.Hour, OnExpire: ExpireReject}
}

// Review is how a review of an action in a state waits.
func (d *Definition) Review(state, action string) ReviewSettings {
	r := DefaultReview()
	var levels []*ReviewSettings
	if d.Judge != nil {
		levels = append(levels, d.Judge.Review)
	}
	if s := d.States[state]; s != nil && s.Transitions[action] != nil {
		levels = append(levels, s.Transitions[action].Judge.Review)
	}
	for _, l := range levels {
		if l == nil {
			continue
		}
		if l.Priority != "" {
			r.Priority = l.Priority
		}
		if l.ExpiresAfter != 0 {
			r.ExpiresAfter = l.ExpiresAfter
		}
		if l.OnExpire != "" {
			r.OnExpire = l.OnExpire
		}
	}
	return r
}

func (p *parser) parseReview(o *document.ObjectReader) *ReviewSettings {
	if !o.Has("review") {
		return nil
	}
	s := o.Object("review")
	p.checkKeys(s, &reviewObject)
	r := &ReviewSettings{}
	if s.Node() == nil {
		return r
	}
	r.Priority = s.Enum("priority", "low", "normal", "high", "urgent")
	r.OnExpire = s.Enum("onExpire", ExpireReject, ExpireRaise)
	if v := s.Value("expiresAfter"); v != nil && v.Kind == document.String && v.Text == "never" {
		r.ExpiresAfter = -1
	} else {
		r.ExpiresAfter = p.parseDuration(s, "expiresAfter", maxDuration)
	}
	return r
}

// maxDuration is the longest that a definition may say.
const maxDuration = 10 * 365 * 24 * time.Hour

var daysPattern = regexp.MustCompile(`^([0-9]{1,4})d$`)

// parseDuration reads a time span such as 90s, 10m, 72h or 7d, 0 when absent.
func (p *parser) parseDuration(o *document.ObjectReader, name string, most time.Duration) time.Duration {
	n := o.Value(name)
	text := o.String(name)
	if n == nil || n.Kind != document.String {
		return 0
	}
	d, err := time.ParseDuration(text)
	if m := daysPattern.FindStringSubmatch(text); m != nil {
		count, _ := strconv.Atoi(m[1]) // at most four digits
		d, err = time.Duration(count)*24*time.Hour, nil
	}
	switch {
	case err != nil:
		p.rejectValue(n, "%s is not a duration: write a number with its unit, such as 90s, 10m, 72h or 7d", quoteName(text))
		return 0
	case d <= 0 || d > most:
		p.rejectValue(n, "%s must be above zero and at most %s", name, most)
		return 0
	}
	return d
}
