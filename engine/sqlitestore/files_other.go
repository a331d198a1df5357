//go:build !unix

package sqlitestore

// Windows reports both through error codes that SQLite translates.
func isNoSpace(error) bool { return false }

func isTooManyFiles(error) bool { return false }

func isOutOfFiles() bool { return false }

func isReadOnlyFS(error) bool { return false }
