package main

import (
	"github.com/gavel-mcp/gavel/internal/cli"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *versionCmd) Run(con *cli.Console) error {
	b := cli.ReadBuild()
	if c.JSON {
		return con.Out.JSON(b)
	}
	con.Out.Printf("gavel %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	if b.Revision != "" {
		state := ""
		if b.Modified {
			state = ", with changes"
		}
		con.Out.Printf("revision %s of %s%s\n", b.Revision, b.Time, state)
	}
	return nil
}
