//go:build !linux

package sqlitestore

// lockHolder cannot tell.
func lockHolder(string) string { return "" }

// networkFS cannot tell here: the operator has to mind it.
func networkFS(string) string { return "" }
