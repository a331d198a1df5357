//go:build unix && !linux && !darwin

package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

var errUnsupported = errors.New("not on this platform")

func failUnsupported(script.Setup) error { return errUnsupported }

// Only the limits that every Unix has: the watchdog and the host's kill timer
// hold memory and time.
var hardening = []protection{
	{protectMemory, failUnsupported}, {protectFiles, denyFiles}, {protectLandlock, failUnsupported}, {protectSeccomp, failUnsupported},
}

func prepareProcess() { closeInherited() }
