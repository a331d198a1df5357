//go:build !unix

package evidence_test

import "syscall"

func ownSession() *syscall.SysProcAttr { return nil }
