// Package shell determines which commands a line of shell runs.
//
// It understands literal words: quotes, lists, pipes, redirections, groups, functions, cd, and about twenty wrappers
// (sudo, env, xargs, sh -c). Anything else that may decide which program runs is reported in Script.Unknown. The
// package never guesses, and never omits a part that it did not understand.
//
// It must never run anything, open a file, or read the environment, because a line may come from a caller without the
// right to do so. Commands that a program reads from a file, or decodes, cannot be detected.
package shell

import (
	"path"
	"regexp"
	"strings"
)

// Script holds the commands that a line of shell runs, as far as it can be read.
type Script struct {
	// Commands are in order of appearance. A wrapper (sudo, env) is followed by the command that it runs. A command
	// that may run in two folders (after cd DIR; which may fail) appears once for each.
	Commands []Command
	Unknown  []Unknown
	// Whole is the index in Commands of the command that is the whole line, or -1. That command's exit status is the
	// line's, and it runs exactly once, unconditionally. One cd DIR &&, set -e or set -o pipefail may precede it, and
	// it may have redirections and time. A pipe is allowed only after set -o pipefail; Whole is then its first
	// command. Whole is -1 if any part of the line is unknown.
	Whole int
	// Passed is text that the line passes on: here-documents, here-strings, values of variables, and arguments of
	// commands that print to pipes, files and words. A command that is not plain may run it.
	Passed string
}

// Unknown is a part of a line that cannot be read.
type Unknown struct {
	Reason  string // a sentence that names the words, and what to write instead
	At      int    // byte offset in the line
	Program bool   // any program may run here: its name, or the script that it is in, is not a literal word
	Text    string // the part's text, to search for program names; "" if Program is set
}

// Command is a command that the line runs or may run. A group with redirections appears as a command ":".
type Command struct {
	Words  []Word // the program, then its arguments, without git's own options before its subcommand
	Writes []Word // files that redirections write
	Reads  []Word // files that redirections read
	// Plain reports that the program runs no other program, whatever its words or input. Wrappers are plain too,
	// because the command that they run follows.
	Plain      bool
	Folder     Word // working folder: absolute, starting with ~/, or relative to the line's folder; "" is that folder
	Repository Word // value of --git-dir, --work-tree or GIT_DIR, resolved; "" for none
	At         int  // byte offset in the line
}

// Word is a word of a command.
type Word struct {
	Text    string // without quotes and expansions; file name wildcards are kept
	Known   bool   // Text is exactly what the program receives
	Pattern bool   // Known is false only because of file name wildcards

	split bool // the word is not known and may expand to none or several words
	lead  int  // length of the text before the first expansion, if not known
}

// Resolve returns a word as a file name relative to the folder in which the line starts.
func (c Command) Resolve(w Word) Word {
	if at := strings.IndexAny(w.Text, "*?["); w.Pattern && strings.Contains(w.Text[max(at, 0):], "..") {
		w.Pattern = false
	}
	if trimmed := strings.TrimRight(w.Text, "/"); trimmed != "" {
		w.Text = trimmed
	}
	if w.Text == "" || isAbsolute(w.Text) || c.Folder.Known && c.Folder.Text == "" {
		return w
	}
	w.Text = strings.TrimSuffix(c.Folder.Text, "/") + "/" + w.Text
	if !c.Folder.Known {
		w.Text = strings.TrimPrefix(w.Text, "/")
		w.Known, w.Pattern = false, false
	}
	return w
}

// isAbsolute reports whether a name is independent of the working folder.
func isAbsolute(name string) bool {
	return path.IsAbs(name) || name == "~" || strings.HasPrefix(name, "~/")
}

// address matches the text after a program's name that makes it part of an address: git@host, git+ssh://x.
var address = regexp.MustCompile(`^(@[A-Za-z0-9]|\+[a-z]+:|://)`)

// MentionsProgram reports whether a program's name appears in a text as a separate word. It may be the base name of a
// path, follow a quote, bracket, operator or escape (\nNAME), or be part of an option (-cNAME). Case is ignored, and
// the name may contain wildcards. The user of an address (git@host) does not count.
func MentionsProgram(text, name string) bool {
	name = strings.ToLower(name)
	wild := strings.ContainsAny(name, "*?[")
	for at := 0; at < len(text); at++ {
		if !isNameByte(text[at]) {
			continue
		}
		from := at
		for at < len(text) && isNameByte(text[at]) {
			at++
		}
		token := text[from:at]
		if len(token) < len(name) && !wild || name == "" {
			continue
		}
		token = strings.TrimSuffix(strings.ToLower(token), ".exe")
		found := token == name || name == "git" && token == "git-core"
		if wild {
			found, _ = path.Match(name, token)
		}
		option := strings.HasPrefix(token, "-") && !strings.HasPrefix(token, "--")
		if escaped := from > 0 && (text[from-1] == '\\' || text[from-1] == '%'); (option || escaped) && !wild { // -cNAME, \nNAME, %nNAME
			found = strings.HasSuffix(token, name)
		}
		if found && !address.MatchString(text[at:]) {
			return true
		}
	}
	return false
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}
