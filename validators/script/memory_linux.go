package script

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory is the greatest resident size so far of a living process, in bytes;
// 0 when it cannot be told.
func peakMemory(pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	if !found {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kb, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}
