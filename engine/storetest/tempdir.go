package storetest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// onDisk is the location of temporary folders before UseMemory; "" if it is unchanged.
var onDisk string

// UseMemory places the temporary folders of the tests, and of processes that they start, in memory, if the machine
// has a suitable file system with enough space. Syncs cost nothing there; the tests of a store used to spend half
// their time on them. With Long the folders stay on disk.
func UseMemory() {
	if _, set := os.LookupEnv("TMPDIR"); set || Long() || slices.ContainsFunc(os.Args[1:], asksForMeasure) {
		return
	}
	if dir := memoryDir(); dir != "" {
		onDisk = os.TempDir()
		if err := os.Setenv("TMPDIR", dir); err != nil {
			panic(err)
		}
	}
}

// asksForMeasure reports whether an argument requests a benchmark or is one of this project's flags. These measure,
// crash or cut the power, all of which need a disk.
func asksForMeasure(arg string) bool {
	return strings.HasPrefix(arg, "-test.bench=") || !strings.HasPrefix(arg, "-test.")
}

// UseDisk places the temporary folders of a test on disk after all, because the test needs syncs with their real
// duration. It must be called before the first folder is created.
func UseDisk(t *testing.T) {
	t.Helper()
	if onDisk != "" {
		t.Setenv("TMPDIR", onDisk)
	}
}
