// Package latecollect keeps the garbage collector from running while a process starts.
//
// A start allocates about 10 MB, nearly all in initialisers of packages, and the collector,
// which begins at 4 MB, would run three times to free little: a quarter of what a start
// costs, paid by every command and every script worker. Package main imports this one for that
// effect alone. It imports nothing but the runtime, so that it is initialised before the
// packages that allocate.
package latecollect

import (
	"os"
	"runtime"
	"runtime/debug"
)

// percentAtStart lets the heap grow to 12 MB before it is collected for the first time.
const percentAtStart = 300

func init() {
	if _, chosen := os.LookupEnv("GOGC"); chosen {
		return
	}
	usual := debug.SetGCPercent(percentAtStart)
	first := new([1]*int) // holds a pointer, so that it shares its memory with nothing else
	runtime.AddCleanup(first, func(usual int) {
		if now := debug.SetGCPercent(usual); now != percentAtStart { // somebody chose since
			debug.SetGCPercent(now)
		}
	}, usual)
}
