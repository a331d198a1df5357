package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Report is what an upstream reports about itself, for operators.
type Report struct {
	// Protocol is the negotiated version of MCP.
	Protocol string
	// Info is the server's own name and version; nil if not given.
	Info json.RawMessage
	// Items are all its items, sorted, regardless of who may use them.
	Items []Item
	// Notes lists repaired and omitted definitions.
	Notes []Note
	// Connect and List are the durations of those steps.
	Connect, List time.Duration
}

// Note is a problem of a definition, or of a list if Name is "".
type Note struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"`
	// LeftOut reports that the definition is unusable; otherwise it was repaired.
	LeftOut bool   `json:"leftOut,omitempty"`
	Reason  string `json:"reason"`
}

func (n Note) String() string {
	switch {
	case n.Name == "" && !n.LeftOut:
		return fmt.Sprintf("the %ss: %s", n.Kind, n.Reason)
	case n.LeftOut:
		return fmt.Sprintf("the %s %q is left out: %s", n.Kind, n.Name, n.Reason)
	default:
		return fmt.Sprintf("the %s %q is repaired: %s", n.Kind, n.Name, n.Reason)
	}
}

// Inspect starts a session with an upstream, regardless of pins, and lists its items. The error is an *Error.
func (m *Manager) Inspect(ctx context.Context, upstream string) (Report, error) {
	if m == nil || m.servers[upstream] == nil {
		return Report{}, newError(CodeUnknown, upstream, "List the declared upstreams.", "There is no upstream %q.", upstream)
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
		items, notes, err := ses.list(ctx, kind)
		if err != nil {
			return Report{}, s.explain(err)
		}
		r.Items, r.Notes = append(r.Items, items...), append(r.Notes, notes...)
	}
	sortItems(r.Items)
	r.leaveOutTwins()
	r.List = time.Since(connected)
	return r, nil
}

// leaveOutTwins removes items that clients could not tell apart.
func (r *Report) leaveOutTwins() {
	count := map[itemKey]int{}
	publicKey := func(i Item) itemKey { return itemKey{i.Kind, i.Public} }
	for _, item := range r.Items {
		count[publicKey(item)]++
	}
	r.Items = slices.DeleteFunc(r.Items, func(i Item) bool {
		twins := count[publicKey(i)] > 1
		if twins {
			r.Notes = append(r.Notes, Note{Kind: i.Kind, Name: i.Name, LeftOut: true, Reason: fmt.Sprintf("two items would have the public name %q", i.Public)})
		}
		return twins
	})
}

// Compare returns the differences between the pins and an upstream's current items, sorted.
func (p *Pins) Compare(upstream string, now []Item) []Difference {
	pinned, _ := p.Of(upstream)
	return compareItems(pinned, now)
}
