package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// The linker of a release sets these (.goreleaser.yaml, Dockerfile): what the toolchain finds out by itself lacks the
// version of a snapshot, and everything where there is no git.
var version, commit, date string

// Build is the version of the program.
type Build struct {
	Version  string `json:"version"`            // of the release, or else of the module; "(devel)" outside both
	Revision string `json:"revision,omitempty"` // of version control
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // whether the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild reads the version that a release was stamped with, or else the program's build information.
func ReadBuild() Build {
	b := Build{Version: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok {
		b = readInfo(info)
	}
	b.Version, b.Revision, b.Time = cmp.Or(version, b.Version), cmp.Or(commit, b.Revision), cmp.Or(date, b.Time)
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	return b
}

func readInfo(info *debug.BuildInfo) Build {
	b := Build{Version: cmp.Or(info.Main.Version, "(devel)")}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
