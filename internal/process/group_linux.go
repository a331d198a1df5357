package process

import "syscall"

// On Linux, the kernel kills a command when the thread that started it ends, for example after kill -9. It does not
// kill the command's child processes: see watch.go.
func init() {
	killWithThread = func(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
}
