//go:build !unix

package worker

import "time"

// processorTime is unknown on this platform: no script counts as starved.
func processorTime() time.Duration { return 0 }
