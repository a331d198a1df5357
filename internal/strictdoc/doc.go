// Package strictdoc reads JSON and YAML documents without mercy, and says where
// and why it refuses one.
//
// It promises that a document means one thing only, whoever reads it next. What
// two readers could understand differently is refused: invalid UTF-8, a lone
// surrogate escape, NUL, a key that stands twice, a number that a 64-bit float
// would turn into another decimal value, nesting beyond a limit, more bytes than
// a limit. Numbers keep the digits they were written with and keys keep their
// order. Every refusal is an [Issue] with line, column and JSON pointer.
//
// The parts:
//
//   - [Parse] reads a JSON or YAML document into a tree of [Node].
//   - [NewObject] reads such a tree key by key and collects every mistake,
//     unknown keys with the nearest known one included.
//   - [CheckJSON] only checks JSON, in one pass and almost without allocating:
//     it runs on everything that agents send.
//   - [Canonical] writes JSON in the one form of RFC 8785, for hashing.
//   - [Suggest] finds the word that somebody probably meant.
//
// It must never repair, guess or drop anything, never put a value of the
// document into a message (it may be a secret; keys are not), and never panic or
// recurse without bound on any input. It is the only importer of a YAML library.
//
// # Numbers
//
// A number is accepted when the shortest decimal form of the float64 nearest to
// it is the same decimal value: 0.1, 1.50 and 1e3 are; 9007199254740993, 1e400
// and 0.1000000000000000055 are not. So every reader that uses float64 sees what
// was written, and writing it again loses nothing.
//
// # NUL
//
// U+0000 is refused in keys and in values, however it is escaped: PostgreSQL
// cannot store it and programs in C cut text there.
package strictdoc
