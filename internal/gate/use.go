package gate

import "github.com/gavel-mcp/gavel/internal/shell"

// BuiltinPrefix begins the names of a coding agent's own tools.
const BuiltinPrefix = "builtin:"

// The tools of a coding agent's own that gates can be on.
const (
	BuiltinShell = "builtin:shell"
	BuiltinEdit  = "builtin:edit"
	BuiltinRead  = "builtin:read"
	BuiltinFetch = "builtin:fetch"
)

// Use is a use of one of a coding agent's own tools, in one form whatever its client calls it.
type Use struct {
	// Tool is one of the constants.
	Tool string
	// Folders are where patterns of paths begin: the project's, and those of projects around it,
	// so that nobody leaves a pattern behind by beginning a repository inside. Home is what ~ in
	// them stands for. Absolute, without symbolic links.
	Folders []string
	Home    string
	// Paths are the files that an edit or a read is about.
	Paths []Path
	// Script is what a shell line runs, and Named the files that its words name: its programs, and
	// FileWords, by their texts as Command.Resolve has them.
	Script shell.Script
	Named  map[string][]Path
	// URL is what a fetch asks for.
	URL string
}

// Path is a file, absolute and with slashes. A file has one for each way to its name: as it was
// written, and with symbolic links resolved as far as they exist.
type Path struct {
	Name string
	// Below reports that it is a folder: what is done to it may be done to everything in it.
	Below bool
}
