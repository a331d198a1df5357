package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

var errNotHere = errors.New("not on this platform")

func notHere(script.Setup) error { return errNotHere }

// macOS bounds neither data nor system calls for us: the watchdog and the host's
// kill timer are what holds memory and time there.
var hardening = []protection{
	{protectMemory, notHere}, {protectFiles, denyFiles}, {protectLandlock, notHere}, {protectSeccomp, notHere},
}

func enter() { closeInherited() }
