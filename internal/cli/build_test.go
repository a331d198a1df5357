package cli

import (
	"runtime/debug"
	"testing"
)

// A release shows what it was stamped with; other builds show what the toolchain found out.
func TestReadBuild(t *testing.T) {
	plain := ReadBuild()
	if plain.Version == "" || plain.Go == "" || plain.Platform == "" {
		t.Errorf("an unstamped build: %+v", plain)
	}
	version, commit, date = "1.2.3", "0123456789abcdef", "2026-01-02T03:04:05Z"
	t.Cleanup(func() { version, commit, date = "", "", "" })
	stamped := ReadBuild()
	if stamped.Version != "1.2.3" || stamped.Revision != "0123456789abcdef" || stamped.Time != "2026-01-02T03:04:05Z" {
		t.Errorf("a stamped build: %+v", stamped)
	}
	if stamped.Go != plain.Go || stamped.Platform != plain.Platform {
		t.Errorf("stamped %+v, unstamped %+v", stamped, plain)
	}
	info := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "then"}, {Key: "vcs.modified", Value: "true"}},
	}
	if got := readInfo(info); got.Version != "v0.1.0" || got.Revision != "abc" || got.Time != "then" || !got.Modified {
		t.Errorf("build information: %+v", got)
	}
	if got := readInfo(&debug.BuildInfo{}); got.Version != "(devel)" {
		t.Errorf("no version: %+v", got)
	}
}
