// Package llmtest plays providers of language models, for tests: what a model
// thinks (a Brain) and how a provider wraps it (a Personality), without sockets and
// without waiting for real time inside of a testing/synctest bubble.
//
// It promises bodies, statuses and headers as the named providers send them, and
// that a Provider honours the context of each request. It must never be imported by
// anything that is not a test.
package llmtest
