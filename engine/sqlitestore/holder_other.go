//go:build !linux

package sqlitestore

// lockHolder cannot tell.
func lockHolder(string) string { return "" }
