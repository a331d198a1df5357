// Package client speaks to a gavel server over its REST API, in the engine's own types.
//
// It promises that an error of the server comes back as the *engine.Error that it was,
// with its code; that only what is safe to repeat is repeated: reading, and what carries
// an idempotency key; and that the token goes to the server that was named and nowhere
// else: never over plain HTTP to another machine unless that was asked for, and never
// after a redirect.
//
// It must never decide anything, and never write a token to an error.
package client
