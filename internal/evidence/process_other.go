//go:build !unix

package evidence

import (
	"os"
	"runtime"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

// killGroup ends a command. What it started is not reached here: a fetch only stops
// waiting for it.
func killGroup(p *os.Process) error { return p.Kill() }

// systemEnvironment is what programs need to start at all.
func systemEnvironment() []string {
	if runtime.GOOS != "windows" {
		return nil
	}
	return []string{"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA"}
}
