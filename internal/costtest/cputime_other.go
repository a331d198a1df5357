//go:build !unix

package costtest

import "time"

// cpuTime returns 0: processor time is unknown here, and elapsed time is used instead.
func cpuTime() time.Duration { return 0 }
