package engine_test

import _ "github.com/gavel-mcp/gavel/internal/modules/postgres" // the driver of a test
