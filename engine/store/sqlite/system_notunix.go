//go:build !unix

package sqlite

// Windows reports these conditions through error codes that SQLite translates.
func isNoSpace(error) bool { return false }

func isTooManyFiles(error) bool { return false }

func isOutOfFiles() bool { return false }

func isReadOnlyFS(error) bool { return false }

// isLockedElsewhere returns false. On Windows, an open file cannot be renamed anyway.
func isLockedElsewhere(string) (bool, error) { return false, nil }
