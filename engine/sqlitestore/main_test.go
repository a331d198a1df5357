package sqlitestore_test

import (
	"os"
	"testing"
)

// TestMain lets the test binary play the other processes of the tests.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role, os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}
