// Package shell reads which commands a line of shell runs.
//
// It promises to understand literal words: quotes, lists, pipes, redirections, groups, functions, cd,
// and some twenty wrappers (sudo, env, xargs, sh -c). Everything else that may decide which program
// runs is in Script.Unknown; it never guesses, and it never leaves out what it did not understand.
//
// It must never run anything, open a file, or look at the environment: a line may come from a caller
// that has no right to any of these. What a program reads from a file, or decodes, is out of reach.
package shell

import (
	"path"
	"regexp"
	"strings"
)

// Script is what a line of shell runs, as far as it can be read.
type Script struct {
	// Commands are in order of appearance; a wrapper (sudo, env) is followed by the command it runs. A
	// command that may act in two folders (after cd DIR; which may fail) appears once for each.
	Commands []Command
	Unknown  []Unknown
	// Whole is the index in Commands of the command that is the whole line: its exit status is that of
	// the line, and it runs exactly once, unconditionally. Around it there may be one cd DIR && before it,
	// set -e or set -o pipefail, redirections, and time; a pipe only after set -o pipefail, where Whole is
	// its first command. -1: the line is more than that, or has parts that are unknown.
	Whole int
	// Passed is text that the line passes on: here-documents, here-strings, the values of variables, and the arguments
	// of commands that print into pipes, files and words. A command that is not plain may run what it says.
	Passed string
}

// Unknown is a part of a line that cannot be read.
type Unknown struct {
	Reason  string // a sentence: which words, and what to write instead
	At      int    // byte offset in the line
	Program bool   // any program may run there: its name, or the script it is in, is not a literal word
	Text    string // the text of that part, which programs may be mentioned in; "" with Program
}

// Command is a command that the line runs, or may run. A group with redirections is a command ":".
type Command struct {
	Words  []Word // the program, then its arguments, without git's own options before its subcommand
	Writes []Word // files that redirections write
	Reads  []Word // files that redirections read
	// Plain reports that the program runs no other program: not for its words, and not for its input. A
	// wrapper is plain, too: what it runs follows.
	Plain      bool
	Folder     Word // where it acts: absolute, from ~/, or relative to where the line begins; "" = there
	Repository Word // --git-dir, --work-tree or GIT_DIR of git, resolved; "" for none
	At         int  // byte offset in the line
}

// Word is a word of a command.
type Word struct {
	Text    string // without quotes and without expansions; wildcards of file names stay
	Known   bool   // the text is exactly what the program gets
	Pattern bool   // it is not Known only for its wildcards of file names

	split bool // not known, and perhaps none or several words
	lead  int  // length of the text before the first expansion, where it is not known
}

// Resolve returns a word of the command as the name of a file, from where the line begins.
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

// isAbsolute reports whether a name does not depend on the folder.
func isAbsolute(name string) bool {
	return path.IsAbs(name) || name == "~" || strings.HasPrefix(name, "~/")
}

// address matches what follows the name of a program that is a part of an address: git@host, git+ssh://x.
var address = regexp.MustCompile(`^(@[A-Za-z0-9]|\+[a-z]+:|://)`)

// MentionsProgram reports whether a program's name appears in a text as a word of its own: as the base
// name of a path, after quotes, brackets, operators and escapes (\nNAME), or in an option (-cNAME). Case does not count;
// the name may have wildcards. The user of an address (git@host) is no mention.
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
