package upstream

import (
	"context"
	"maps"
	"slices"
	"time"
)

// State is what a Manager knows about an upstream now, for operators. It starts nothing.
type State struct {
	Name    string
	Pinning Pinning
	// Pinned are the items in force; IsPinned reports whether they ever were pinned.
	Pinned   []Item
	IsPinned bool
	// Allowed reports whether anyone may use the upstream.
	Allowed bool
	// Sessions is the number of open sessions.
	Sessions int
	// Failures counts consecutive failures. Calls are refused for Wait because of them.
	Failures int
	Wait     time.Duration
	// Differences are those that the latest comparisons found, sorted; none if there was no comparison.
	Differences []Difference
}

// States returns the state of every upstream, by name.
func (m *Manager) States() (all []State) {
	for _, name := range m.Upstreams() {
		all = append(all, m.servers[name].state())
	}
	return all
}

func (s *server) state() State {
	_, known := s.manager.opts.Pins.Of(s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{
		Name: s.name, Pinning: s.Pinning, Pinned: slices.Clone(s.pinned), IsPinned: known || len(s.firstUsePinned) > 0, Allowed: len(s.Allow) > 0,
		Failures: s.failures, Wait: max(0, time.Until(s.notBefore)),
	}
	for _, sl := range s.sessions {
		if sl.session != nil {
			out.Sessions++
		}
	}
	out.Differences = slices.SortedFunc(maps.Values(s.differences), compareDifferences)
	return out
}

// Check is Inspect for an upstream in use: items that differ from their pins are no longer listed.
func (m *Manager) Check(ctx context.Context, upstream string) (Report, error) {
	r, err := m.Inspect(ctx, upstream)
	if err != nil {
		return r, err
	}
	for _, kind := range Kinds {
		var now []Item
		for _, item := range r.Items {
			if item.Kind == kind {
				now = append(now, item)
			}
		}
		m.servers[upstream].noteItems(kind, now, nil)
	}
	return r, nil
}

// Accept replaces one pin of an upstream by a definition that its operator has seen; nil removes the pin.
func (p *Pins) Accept(upstream string, kind Kind, name string, now *Item) error {
	items, _ := p.Of(upstream)
	items = slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Kind == kind && i.Name == name })
	if now != nil {
		items = append(items, *now)
	}
	return p.Set(upstream, items)
}
