package main

import (
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

type build struct {
	Version  string `json:"version"`            // of the module; "(devel)" outside a release
	Revision string `json:"revision,omitempty"` // of version control
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // whether the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (c *versionCmd) Run(con *console) error {
	b := readBuild()
	if c.JSON {
		return con.out.JSON(b)
	}
	con.out.Printf("gavel %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	if b.Revision != "" {
		state := ""
		if b.Modified {
			state = ", with changes"
		}
		con.out.Printf("revision %s of %s%s\n", b.Revision, b.Time, state)
	}
	return nil
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
