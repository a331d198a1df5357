//go:build unix && !linux && !darwin

package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

var errNotHere = errors.New("not on this platform")

func notHere(script.Setup) error { return errNotHere }

// Only the limits that every Unix has: the watchdog and the host's kill timer
// hold memory and time.
var hardening = []protection{
	{protectMemory, notHere}, {protectFiles, denyFiles}, {protectLandlock, notHere}, {protectSeccomp, notHere},
}

func enter() { closeInherited() }
