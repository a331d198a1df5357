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

// Use is a use of one of a coding agent's own tools, in the same form for every client.
type Use struct {
	// Tool is one of the constants.
	Tool string
	// Working is the folder that relative names begin in. Folders are where relative patterns
	// begin: the session's project and the projects around it. Home replaces ~. All are absolute,
	// with slashes.
	Working string
	Folders []string
	Home    string
	// Paths are the files that an edit or a read names.
	Paths []Path
	// Script is what a shell line runs. Named maps each file name in it, as Command.Resolve returns
	// it, to the names of that file; a name that is missing is taken as written.
	Script shell.Script
	Named  map[string][]Path
	// URL is the address that a fetch asks for.
	URL string
}

// Path is one name of a file: absolute, with slashes. A file has the name as written and, where the
// client looked them up, its names without symbolic links.
type Path struct {
	Name string `json:"name"`
	// Below reports that it is a folder: what is done to it may be done to everything in it.
	Below bool `json:"below,omitempty"`
	// Roots are the folders of the repositories that contain it, the innermost first. Relative
	// patterns begin there too. Nil: unknown, and every folder above the file counts.
	Roots []string `json:"roots"`
}
