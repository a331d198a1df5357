package worker

import "github.com/gavel-mcp/gavel/validators/script"

// Names of the protections, as Hello reports missing ones. The time limit, the watchdog's memory limit and the
// empty environment do not depend on the kernel and are always in force.
const (
	protectMemory   = "rlimit_memory" // an allocation beyond the limit fails
	protectFiles    = "rlimit_nofile"
	protectLandlock = "landlock" // file system and TCP
	protectSeccomp  = "seccomp"  // system calls
	protectJob      = "job_object"
)

// applyProtections gives up every privilege that evaluating scripts does not need, and returns the names of
// unavailable protections. It is called once, after everything that needs a descriptor or a file has been
// initialised. A failure is reported but never fatal, because the process boundary remains.
func applyProtections(setup script.Setup) (missing []string) {
	for _, step := range hardening {
		if step.apply == nil || step.apply(setup) != nil {
			missing = append(missing, step.name)
		}
	}
	return missing
}

// protection is one protection; apply is nil if the platform does not have it.
type protection struct {
	name  string
	apply func(script.Setup) error
}
