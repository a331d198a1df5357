package gateway

import (
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// TailAgain exports tailRetryDelay.
const TailAgain = tailRetryDelay

// Access exports access.
type Access = access

// Behind returns the access to a gateway with a door.
func Behind(door *upstream.Manager) Access { return access{&gateway{upstreams: door}} }

// Use puts another door in force.
func (a Access) Use(door *upstream.Manager) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.upstreams = door
}

// CheckSources calls checkSources with a file's upstreams and gates.
func CheckSources(file *config.File, pins *upstream.Pins) error {
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		return err
	}
	gates, err := gate.ParseConfig(file.Section(config.SectionGates))
	if err != nil {
		return err
	}
	return checkSources(file, declared, pins, gates)
}
