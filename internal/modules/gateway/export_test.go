package gateway

import (
	"log/slog"
	"testing"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// TailAgain exports tailRetryDelay.
const TailAgain = tailRetryDelay

// Access exports access.
type Access = access

// Behind returns the access to a gateway with the given manager.
func Behind(manager *upstream.Manager) Access { return access{&gateway{upstreams: manager}} }

// Use replaces the manager.
func (a Access) Use(manager *upstream.Manager) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.upstreams = manager
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

// ServerRow exports serverRow.
type ServerRow = serverRow

// ExtendForTest opens the gateway of a file as a command does, on demand.
func ExtendForTest(t *testing.T, file *config.File) *module.Extension {
	t.Helper()
	x := extend(module.Setup{File: file, OnDemand: true, Log: slog.New(slog.DiscardHandler), Folder: t.TempDir()})
	take, err := x.Parts[0].Prepare(t.Context(), &module.Change{File: file})
	if err != nil {
		t.Fatal(err)
	}
	take()
	t.Cleanup(x.Close)
	return x
}
