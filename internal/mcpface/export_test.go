package mcpface

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/judge"
)

// OutputSchemas are the declared output schemas by canonical tool name.
func OutputSchemas() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, op := range newCatalog(true).tools {
		out[op.Info().Tool.Name] = declare(op).RawOutputSchema
	}
	return out
}

// Hurry makes the end of f quick, for tests in which something never ends.
func Hurry(f *Face) { f.grace, f.linger = 30*time.Millisecond, 30*time.Millisecond }

// SetTicketClock sets the clock that the questions of f expire by.
func SetTicketClock(f *Face, now func() time.Time) { f.tickets.now = now }

// MayAsk has f count a question; Counts says how many it remembers.
func MayAsk(f *Face, instance, action string, revision int64) bool {
	return f.tickets.mayAsk(question{instance, action}, revision)
}

// Counts is how many actions f counts questions about.
func Counts(f *Face) int { return len(f.tickets.asked) }

// Approves reports whether an answer to a form is a person's yes.
func Approves(reply []byte) bool {
	word, err := readForm(reply)
	return err == nil && word.decision == judge.Approve
}

// NewEndpoint serves any server over the HTTP that serves gavel.
func NewEndpoint(s *server.MCPServer, cfg Config) *Endpoint {
	return newEndpoint(s, cfg.withDefaults())
}

// Carried is an error that reaches the client as this JSON-RPC error.
func Carried(doc string) error { return errors.New(carried + doc) }

// Table is the sessions over HTTP.
type Table struct{ t *table }

// NewTable has no sessions.
func NewTable(l Limits) Table { return Table{newTable(l)} }

// Begin adds a session that nobody uses.
func (t Table) Begin(principal string) string {
	s := &remoteSession{session: &session{asks: newAsker(nil)}, principal: principal}
	t.t.quota.take(principal)
	id := t.t.add(s)
	t.t.done(s)
	return id
}

// Use uses a session for a moment.
func (t Table) Use(id, principal string) bool {
	s := t.t.use(id, principal)
	if s != nil {
		t.t.done(s)
	}
	return s != nil
}

// Stale are the sessions that would end now.
func (t Table) Stale() []string { return t.t.stale(t.t.idle) }

// Oldest is the session that makes room for another.
func (t Table) Oldest(principal string) string { return t.t.oldest(principal) }
