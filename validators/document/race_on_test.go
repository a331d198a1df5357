//go:build race

package document

// raceDetector is true when the race detector makes everything slower and allocates.
const raceDetector = true
