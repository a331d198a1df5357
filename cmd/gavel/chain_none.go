//go:build !chains

package main

// chainCommands are none: DBOS, on which chains run, would make the program larger than it may be
// (docs/chains.md).
type chainCommands struct{}
