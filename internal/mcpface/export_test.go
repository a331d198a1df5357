package mcpface

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/judge"
)

// OutputSchemas are the declared output schemas by canonical tool name.
func OutputSchemas() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, op := range newCatalog(Config{Reviews: true, Toolset: AllTools}).tools {
		out[op.Tool.Name] = outputSchema(op.Shown()...)
	}
	return out
}

// SetTicketClock sets the clock that the questions of f expire by.
func SetTicketClock(f *Face, now func() time.Time) { f.tickets.now = now }

// MayAsk has f count a question; Counts says how many it remembers.
func MayAsk(f *Face, instance, action string, revision int64) bool {
	return f.tickets.mayAsk(question{instance, action}, revision)
}

// Counts is how many actions f counts questions about.
func Counts(f *Face) int { return f.tickets.asked.Len() }

// Approves reports whether an answer to a form is a person's yes.
func Approves(reply []byte) bool {
	word, err := readForm(reply)
	return err == nil && word.decision == judge.Approve
}
