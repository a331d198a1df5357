//go:build unix && !linux

package evidence

import "syscall"

// endWithUs cannot be asked of this kernel.
func endWithUs(*syscall.SysProcAttr) {}
