// Package validators is the deterministic part of a judgement: are the required
// fields there, does JSON Schema hold, do the scripts agree.
//
// It promises that the same checks and the same input give the same findings,
// that a finding says what is wrong, where and what to do without showing a value
// of the document, and that anything a script does wrong is a "no".
//
// It must never parse or run a script in this process, reach the network or the
// file system, or know what a workflow is.
package validators
