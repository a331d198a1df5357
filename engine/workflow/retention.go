package workflow

import (
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Retention says how long what instances leave behind is kept after they have ended.
// The zero value keeps everything.
type Retention struct {
	// Events is how long the whole history is kept; 0 is for ever.
	Events time.Duration
}

// MinRetention is the shortest time for which a history is kept whole: retries with an
// idempotency key are answered from it, and an operator may still roll back.
const MinRetention = 7 * 24 * time.Hour

func (p *parser) retention(o *document.ObjectReader) Retention {
	if !o.Has("retention") {
		return Retention{}
	}
	c := o.Object("retention")
	p.only(c, &retentionObject)
	if c.Node() == nil {
		return Retention{}
	}
	r := Retention{Events: p.duration(c, "events", maxDuration)}
	if r.Events != 0 && r.Events < MinRetention {
		p.refuse(c.Value("events"), "events must be at least 7d: that long a history is kept whole in any case")
		r.Events = 0
	}
	return r
}

// retentionNotOperator: the judged do not remove the record of how they were judged.
func retentionNotOperator(s *subject) {
	if !s.trusted && s.Retention != (Retention{}) {
		s.add("/retention", "only an operator says what is removed of the records; keep it out, or let an operator define the workflow")
	}
}
