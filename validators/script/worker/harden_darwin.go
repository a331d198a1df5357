package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

var errUnsupported = errors.New("not on this platform")

func failUnsupported(script.Setup) error { return errUnsupported }

// macOS bounds neither data nor system calls for us: the watchdog and the host's
// kill timer are what holds memory and time there.
var hardening = []protection{
	{protectMemory, failUnsupported}, {protectFiles, denyFiles}, {protectLandlock, failUnsupported}, {protectSeccomp, failUnsupported},
}

func prepareProcess() { closeInherited() }
