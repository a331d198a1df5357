//go:build unix && !linux

package worker

// macOS and the BSDs bound neither data nor system calls for us: the watchdog and the
// host's kill timer hold memory and time there.
var hardening = []protection{{name: protectMemory}, {protectFiles, denyFiles}, {name: protectLandlock}, {name: protectSeccomp}}

func prepareProcess() { closeInherited() }
