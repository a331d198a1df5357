// Package config reads gavel's configuration file.
//
// It promises that a file means what it says: one document, strict, every section
// known by name, a slip of the pen named with its line and with what was probably
// meant. It knows the names of sections and nothing of what is in them: each
// service reads its own.
//
// It must never read the environment, fill in a default, or put a value of the
// file into a message: it may be a secret.
package config
