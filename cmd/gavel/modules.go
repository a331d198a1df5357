package main

import (
	_ "github.com/gavel-mcp/gavel/internal/modules/chain"
	_ "github.com/gavel-mcp/gavel/internal/modules/demo"
	_ "github.com/gavel-mcp/gavel/internal/modules/gateway"
	_ "github.com/gavel-mcp/gavel/internal/modules/hook"
	_ "github.com/gavel-mcp/gavel/internal/modules/measure"
	_ "github.com/gavel-mcp/gavel/internal/modules/postgres"
	_ "github.com/gavel-mcp/gavel/internal/modules/webhook"
)
