//go:build race

package storetest

// raced says that the race detector slows everything down.
const raced = true
