// Package modules links the modules of the program. Import it for its effect, in a program that uses the Go API:
//
//	import _ "github.com/gavel-mcp/gavel/cmd/gavel/modules"
//
// It is the only place that names them: to remove a module, delete its line and its folder.
package modules

import (
	_ "github.com/gavel-mcp/gavel/internal/modules/chain"
	_ "github.com/gavel-mcp/gavel/internal/modules/console"
	_ "github.com/gavel-mcp/gavel/internal/modules/demo"
	_ "github.com/gavel-mcp/gavel/internal/modules/evidence"
	_ "github.com/gavel-mcp/gavel/internal/modules/gateway"
	_ "github.com/gavel-mcp/gavel/internal/modules/hook"
	_ "github.com/gavel-mcp/gavel/internal/modules/measure"
	_ "github.com/gavel-mcp/gavel/internal/modules/postgres"
	_ "github.com/gavel-mcp/gavel/internal/modules/transfer"
	_ "github.com/gavel-mcp/gavel/internal/modules/webhook"
)
