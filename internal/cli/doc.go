// Package cli is what the commands of the program share: their flags, the system that they open, and how they print
// results and errors. Commands of modules use it like the program's own.
//
// Promises:
//   - each command gets its streams in a Console
//   - commands over a store and over a server print the same
//
// It must never import a module or a command.
package cli
