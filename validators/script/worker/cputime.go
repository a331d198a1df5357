package worker

import "time"

// isStarved reports whether a script that took longer than its limit used so much
// less processor time that the machine is to blame. A script that cannot sleep or
// wait uses all the time that it is given.
func isStarved(used, limit time.Duration) bool {
	return used > 0 && used < limit*3/4
}
