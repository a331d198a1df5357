//go:build !race

package main

// raceDetector says whether this test binary looks for data races.
const raceDetector = false
