package process

import "syscall"

// On Linux the kernel ends a command when the thread that started it is gone, as after
// kill -9. It does not end what the command started: see watch.go.
func init() {
	endWithThread = func(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
}
