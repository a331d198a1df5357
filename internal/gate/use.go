package gate

import "github.com/gavel-mcp/gavel/internal/shell"

// BuiltinPrefix is the prefix of the names of a coding agent's own tools.
const BuiltinPrefix = "builtin:"

// The coding agent's own tools that gates support.
const (
	BuiltinShell = "builtin:shell"
	BuiltinEdit  = "builtin:edit"
	BuiltinRead  = "builtin:read"
	BuiltinFetch = "builtin:fetch"
)

// Use is one use of a coding agent's own tool, in the same form for every client.
type Use struct {
	// Tool is one of the Builtin constants.
	Tool string
	// Working is the folder that relative names start from. Folders are the roots of relative patterns: the session's
	// project and the projects around it. Home replaces ~. All are absolute, with slashes.
	Working string
	Folders []string
	Home    string
	// Paths are the files that an edit or a read names.
	Paths []Path
	// Script is the parsed shell line. Named maps each file name in it, as Command.Resolve returns it, to the names
	// of that file. A name that is missing is taken as written.
	Script shell.Script
	Named  map[string][]Path
	// URL is the address that a fetch requests.
	URL string
}

// Path is one absolute name of a file, with slashes. A file has the name as written and, if the client looked it up,
// its name without symbolic links.
type Path struct {
	Name string `json:"name"`
	// Below reports that the path is a folder, so a use of it may affect everything inside it.
	Below bool `json:"below,omitempty"`
	// Roots are the folders of the repositories that contain the path, innermost first. Relative patterns also start
	// from them. If nil, they are unknown, and every folder above the path counts.
	Roots []string `json:"roots"`
}
