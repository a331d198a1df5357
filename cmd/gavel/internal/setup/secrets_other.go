//go:build !linux

package setup

// HideSecrets does nothing: this system does not support it.
func HideSecrets() {}
