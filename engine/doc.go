// Package engine drives workflow instances through their definitions: it
// authorises, asks the judge, records what was decided, and answers.
//
// It promises that no step is skipped (the target of an action is computed from
// the definition that the instance is pinned to), that nothing moves without a
// decision, that what it acknowledged is in the Store, and that a retry with the
// same idempotency key is answered and not repeated. A refusal is a result; an
// *Error means that something could not be decided or done, and then nothing was
// recorded.
//
// It must never let a face decide about rights, let a model choose a state,
// write an instance other than through one Commit, or log.
package engine
