// Package schema checks JSON documents against JSON Schemas.
//
// It promises draft 2020-12 unless $schema says otherwise (2019-09, draft-07,
// draft-06 and draft-04 are known), asserted formats, exact numbers, and
// violations that say what is expected where, as sentences that a model can act
// on and in the same order every time.
//
// A message holds what the schema says, the names of keys, lengths and types; it
// never holds a value of the document, which may be a secret.
//
// It must never reach the network or the file system (a $ref that leaves the
// document is refused when it compiles), and never panic. It gives no bound on
// time: a small schema with nested applicators can take minutes, so what
// strangers wrote runs in the sandbox's worker, and so does an operator's schema
// of which [Simple] does not say that it cannot do that.
//
// Most documents conform, so there are two ways through a schema. A recogniser
// reads the raw document once and knows the common keywords; when it says yes,
// that is the answer. Otherwise the library validates the decoded document and
// has the last word. The recogniser may be unsure, never wrong: tests hold it to
// the library on the official test suite and on generated cases.
package schema
