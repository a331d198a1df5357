package gate

import "github.com/gavel-mcp/gavel/internal/shell"

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
	// Folder is the project's: patterns of paths begin there. Absolute, without symbolic links.
	Folder string
	// Paths are the files that an edit or a read is about, and those that the words and
	// redirections of a shell line name: absolute, with symbolic links and ".." resolved as far as
	// they exist.
	Paths []string
	// Script is what a shell line runs.
	Script shell.Script
	// URL is what a fetch asks for.
	URL string
}
