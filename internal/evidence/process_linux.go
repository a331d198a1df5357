package evidence

import "syscall"

// endWithUs has the kernel end a command when the thread that started it is gone, as
// after kill -9. It says nothing of what the command started: see watch.go.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
