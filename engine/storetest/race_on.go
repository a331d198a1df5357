//go:build race

package storetest

// RaceDetector reports whether the test binary looks for data races.
const RaceDetector = true
