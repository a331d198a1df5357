package cli

import (
	"golang.org/x/sys/unix"
)

// HideSecrets prevents other processes of the same user from reading this process's environment and memory in
// /proc. This includes commands that fetch evidence. It does not protect against root, and the environment can
// still be read where it came from.
func HideSecrets() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // best effort
}
