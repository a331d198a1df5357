//go:build !linux

package main

// hideSecrets does nothing: this system does not support it.
func hideSecrets() {}
