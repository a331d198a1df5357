package storetest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// onDisk is where temporary folders were before UseMemory, "" where they still are.
var onDisk string

// UseMemory has the temporary folders of the tests, and of the processes that they start, in
// memory, where the machine has a file system and room for that. A sync costs nothing there, and
// the tests of a store spent half of their time on those. With Long they stay on the disk.
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

// asksForMeasure reports whether an argument asks for a benchmark, or is a flag of this project:
// those measure, crash or cut the power, all of which need a disk.
func asksForMeasure(arg string) bool {
	return strings.HasPrefix(arg, "-test.bench=") || !strings.HasPrefix(arg, "-test.")
}

// UseDisk has the temporary folders of one test on the disk all the same: it needs what a sync
// takes. It must be called before the first of them is made.
func UseDisk(t *testing.T) {
	t.Helper()
	if onDisk != "" {
		t.Setenv("TMPDIR", onDisk)
	}
}
