// Package folder knows the form of a .workflows folder, as the Generic DFA server keeps
// it and as gavel exports to it: definitions, one file per instance that says where it
// stands, one log per instance of how it got there, and checkpoints.
//
// It promises to be tolerant of age and honest about damage: both shapes of the files
// are understood, what it does not know is kept, the beginning of a line at the end of a
// log is skipped and told, and everything else that is not as it must be is an error
// with file and line. Nothing outside the folder is ever read or written, whatever ids
// and links say, and no file can cost more than its limit.
//
// It must never decide what a history means: that is the engine's.
package folder
