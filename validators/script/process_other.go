//go:build !unix && !windows

package script

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

func systemEnv() []string { return nil }

func rootDir() string { return "" }
