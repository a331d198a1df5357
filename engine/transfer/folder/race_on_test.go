//go:build race

package folder_test

const raceDetector = true
