package workflow

import (
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Retention says how long records of an instance are kept after its end. The zero value
// keeps everything.
type Retention struct {
	// Events is how long the whole history is kept; 0 is forever.
	Events time.Duration
}

// MinRetention is the shortest time for which a history is kept whole: retries with an
// idempotency key are answered from it, and an operator may still roll back.
const MinRetention = 7 * 24 * time.Hour

func (p *parser) parseRetention(o *document.ObjectReader) Retention {
	if !o.Has("retention") {
		return Retention{}
	}
	c := o.Object("retention")
	p.checkKeys(c, &retentionObject)
	if c.Node() == nil {
		return Retention{}
	}
	r := Retention{Events: p.parseDuration(c, "events", maxDuration)}
	if r.Events != 0 && r.Events < MinRetention {
		p.rejectValue(c.Value("events"), "events must be at least 7d, the time for which every history is kept whole")
		r.Events = 0
	}
	return r
}

// checkRetentionOwner: the judged do not remove the record of how they were judged.
func checkRetentionOwner(s *linter) {
	if !s.trusted && s.Retention != (Retention{}) {
		s.addIssue("/retention", "only an operator may set retention; remove it, or have an operator define the workflow")
	}
}
