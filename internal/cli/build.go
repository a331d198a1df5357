package cli

import (
	"runtime"
	"runtime/debug"
)

// Build is the version of the program.
type Build struct {
	Version  string `json:"version"`            // of the module; "(devel)" outside a release
	Revision string `json:"revision,omitempty"` // of version control
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // whether the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild reads the version from the program's build information.
func ReadBuild() Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
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
