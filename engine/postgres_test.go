package engine_test

import _ "github.com/gavel-mcp/gavel/internal/modules/postgres" // registers the driver
