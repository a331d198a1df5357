// Package shell reads what a line of shell would run.
//
// It promises to find every command of a pipeline, a list, a substitution, a function, a -c string
// and a here-document that a shell reads, with the prefixes (env, sudo, xargs, ...) taken off; and
// to say of what it cannot know that it cannot know it, never that it is nothing.
//
// It must never run or expand anything, and reads files only through Options.ReadFile.
package shell

import (
	"path"
	"strings"
)

// Script is what a text would run.
type Script struct {
	// Commands are all commands, in the order in which they stand; those of an inner text follow
	// the command that runs it, and what a prefix runs (sudo, xargs) follows the prefix.
	Commands []Command
	// Unknown says in one sentence each what could not be read: any command may hide there.
	Unknown []string
}

// Command is a command that would be run, or may be.
type Command struct {
	// Words are the program and its arguments, without assignments and without git's own options
	// before its command. The program may be a path; where only its base name is known, it is that.
	Words []Word
	// Writes are the files that redirections write.
	Writes []Word
	// Code is program text that another interpreter is given (python -c), "" for none.
	Code string
	// Folder is where it runs: absolute, or relative to where the text begins to run.
	Folder Word
}

// Word is a word of a command.
type Word struct {
	// Text is the word without quotes. Where it is not Known, expansions in it are left out, but for
	// the wildcards of a pattern of files.
	Text string
	// Known reports that the text is exactly what the program gets.
	Known bool

	split   bool // not known, and perhaps none or several words
	pattern bool // not known for its wildcards alone
	base    bool // what follows the last slash is known
}

// Options are what Read may use beside the text.
type Options struct {
	// Folder is where the text begins to run, absolute; "" leaves files with a relative name unread.
	Folder string
	// Home is what ~ stands for; "" leaves it unknown.
	Home string
	// ReadFile reads the first limit bytes of a regular file, by its absolute name: scripts that the
	// text runs. Without it no file is read, and what a file would run is unknown.
	ReadFile func(name string, limit int) ([]byte, error)
}

// Resolve is a word of the command as a file: seen from where the text begins to run, where it is
// not absolute. Of a pattern of files it is the folder that they are in.
func (c Command) Resolve(w Word) Word {
	if w.pattern {
		at := strings.IndexAny(w.Text, "*?[")
		if before, after := w.Text[:max(at, 0)], w.Text[max(at, 0):]; !strings.Contains(after, "..") {
			w = Word{Text: before[:strings.LastIndexByte(before, '/')+1], Known: true}
			if w.Text == "" {
				w.Text = "."
			}
		}
	}
	if w.Text == "" || path.IsAbs(w.Text) {
		return w
	}
	return Word{Text: path.Join(c.Folder.Text, w.Text), Known: w.Known && c.Folder.Known}
}
