package upstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Report is what an upstream says of itself, for operators.
type Report struct {
	// Protocol is the version of MCP that is spoken.
	Protocol string
	// Info is its name and version, as it says them; nil where it does not.
	Info json.RawMessage
	// Items are all that it has, sorted, whoever is allowed them.
	Items []Item
	// Unreadable counts definitions that nothing can be made of: without a name, or with a
	// duplicate key.
	Unreadable int
	// Connect and List are how long it took.
	Connect, List time.Duration
}

// Inspect starts a session with an upstream, whatever is pinned, and lists what it has. The error
// is an *Error.
func (m *Manager) Inspect(ctx context.Context, upstream string) (Report, error) {
	if m == nil || m.servers[upstream] == nil {
		return Report{}, newError(CodeUnknown, upstream, "List what is declared.", "There is no upstream %q.", upstream)
	}
	s := m.servers[upstream]
	began := time.Now()
	ses, release, err := s.acquire(ctx, engine.Principal{})
	if err != nil {
		return Report{}, s.explain(err)
	}
	defer release()
	connected := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.ListTimeout)
	defer cancel()
	r := Report{Protocol: ses.version, Info: ses.info.Raw(), Connect: connected.Sub(began)}
	for _, kind := range Kinds {
		items, unreadable, err := ses.list(ctx, kind)
		if err != nil {
			return Report{}, s.explain(err)
		}
		r.Items, r.Unreadable = append(r.Items, items...), r.Unreadable+unreadable
	}
	sortItems(r.Items)
	r.List = time.Since(connected)
	return r, nil
}

// Compare lists how what an upstream has now differs from the pins, sorted.
func (p *Pins) Compare(upstream string, now []Item) []Difference {
	pinned, _ := p.Of(upstream)
	return compareItems(pinned, now)
}
