//go:build !race

package storetest

// RaceDetector reports whether the test binary was built with the race detector.
const RaceDetector = false
