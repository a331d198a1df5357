//go:build !linux

package worker

// ProbeMain is for Linux.
func ProbeMain() {}
