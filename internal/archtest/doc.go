// Package archtest holds the shape of the module as data and checks the tree
// against it: which package may import which (imports run the way calls run and
// the way a reader reads), and which one package is the door to each heavy
// dependency. Its own test is the check; nothing imports this package.
//
// It reads source text only: every Go file of every build tag, without building
// anything, so that a rule cannot be dodged by a tag and the check stays fast.
// It must never need the go command, the network or a clean work tree.
package archtest
