// Package workflow knows what a workflow type is: the document that describes
// it, whether that document makes sense, what it looks like, and which question
// an action puts to the judge.
//
// It promises that everything here is a pure function of its arguments. [Parse]
// refuses what it does not understand and says where; [Definition.Lint] finds
// what parses and cannot work; [Definition.Case] turns a definition, a state, an
// action, its data and the facts of an instance into one [judge.Case], the same
// way every time. The states that an action can lead to come from the definition
// alone.
//
// It must never decide (that is the judge's part), read a store, a clock or the
// network, or run a script or a schema itself: those go to the [Compiler], which
// keeps what strangers wrote in a sandbox. [Definition.Mask] is the only place
// where sensitive values are masked.
package workflow
