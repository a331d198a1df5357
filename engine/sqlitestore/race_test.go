//go:build race

package sqlitestore_test

// raced says that the race detector slows everything down: what one goroutine does
// alone is done less often then, because the run without it covers the rest.
const raced = true
