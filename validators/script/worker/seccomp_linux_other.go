//go:build linux && !amd64 && !arm64

package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

func filterSystemCalls(script.Setup) error {
	return errors.New("no table of system calls for this processor")
}
