//go:build !race

package tune

const raceDetector = false
