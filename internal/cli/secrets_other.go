//go:build !linux

package cli

// HideSecrets does nothing: this system does not support it.
func HideSecrets() {}
