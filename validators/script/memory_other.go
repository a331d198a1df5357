//go:build !linux

package script

// peakMemory is unknown on this platform.
func peakMemory(int) int64 { return 0 }
