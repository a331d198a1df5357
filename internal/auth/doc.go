// Package auth finds out who calls over the network.
//
// It promises that a caller is exactly who its credential says, that a credential
// is kept and compared as a digest only, that a revoked or expired one is refused
// at once, and that a refusal tells the caller what kind of credential is wanted
// and not why its own was not good enough.
//
// It must never decide what a caller may do: that is the engine's. It must never
// write a credential to a log, an error or a metric, and never pass one on.
package auth
