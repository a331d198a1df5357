// Package shell reads what a line of shell would run.
//
// It promises to find every command of a pipeline, a list, a substitution, a function, a -c string
// and a here-document that a shell reads, with the prefixes (env, sudo, xargs, ...) taken off; and
// to say of what it cannot know that it cannot know it, never that it is nothing.
//
// It must never run or expand anything, and reads files only through the Reader that it is given.
package shell

// Script is what a text would run.
type Script struct {
	// Commands are all commands, in the order in which they stand; those of an inner text follow
	// the command that runs it.
	Commands []Command
	// Unknown says in one sentence each what could not be read: any command may hide there.
	Unknown []string
}

// Command is a command that would be run, or may be.
type Command struct {
	// Words are the program and its arguments, after assignments and prefixes.
	Words []Word
	// Writes are the files that redirections write.
	Writes []Word
	// Code is program text that another interpreter is given (python -c), "" for none.
	Code string
}

// Word is a word of a command.
type Word struct {
	// Text is the word without quotes. Where it is not Known, expansions in it are left out.
	Text string
	// Known reports that the text is exactly what the program gets.
	Known bool
}
