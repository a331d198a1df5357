//go:build !linux

package main

// hideSecrets cannot be asked of this system.
func hideSecrets() {}
