package chain_test

import _ "github.com/gavel-mcp/gavel/internal/modules/postgres" // the driver for the tests with replicas
