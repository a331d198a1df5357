//go:build unix

package script

import "syscall"

// ownGroup keeps signals meant for the terminal's foreground group (Ctrl-C) away
// from workers: the gateway ends them itself once it has answered its callers.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// systemEnv is what the platform needs to start any process at all.
func systemEnv() []string { return nil }

func rootDir() string { return "/" }
