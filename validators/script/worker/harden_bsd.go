//go:build unix && !linux

package worker

// macOS and the BSDs offer no limit on memory or system calls that the worker can use. There, the watchdog
// and the host's kill timer limit memory and time.
var hardening = []protection{{name: protectMemory}, {protectFiles, denyFiles}, {name: protectLandlock}, {name: protectSeccomp}}

func prepareProcess() { closeInherited() }
