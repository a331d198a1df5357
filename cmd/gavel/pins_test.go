package main

import (
	"testing"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// pinAll pins what the upstreams of a configuration file have now.
func pinAll(t *testing.T, path string) {
	t.Helper()
	file, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		t.Fatal(err)
	}
	door, err := upstream.Open(declared, upstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	pins, err := upstream.LoadPins(upstream.PinsPath(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range door.Upstreams() {
		report, err := door.Inspect(t.Context(), name)
		if err == nil {
			err = pins.Set(name, report.Items)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := pins.Save(); err != nil {
		t.Fatal(err)
	}
}
