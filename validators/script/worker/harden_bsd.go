//go:build unix && !linux

package worker

// macOS and the BSDs cannot limit memory or system calls for us. There, the watchdog and the host's kill timer
// limit memory and time.
var hardening = []protection{{name: protectMemory}, {protectFiles, denyFiles}, {name: protectLandlock}, {name: protectSeccomp}}

func prepareProcess() { closeInherited() }
